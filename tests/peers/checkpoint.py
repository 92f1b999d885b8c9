#!/usr/bin/env python3
"""Opens every file of a checkpoint with h5py and checks that it holds what docs/checkpoint.md says, and nothing else.

    python3 tests/peers/checkpoint.py RUN/checkpoints/step_00001000 [PACKED.h5]

Needs h5py and numpy. Exit code 1 where something is not as documented.
"""
import json
import os
import sys

import h5py
import numpy as np

PROBLEMS = []


def check(good, message):
    if not good:
        PROBLEMS.append(message)


def kind(value):
    """How h5py shows the type of an attribute."""
    if isinstance(value, str):
        return "string"
    value = np.asarray(value)
    return value.dtype.name + (f"[{value.size}]" if value.ndim else "")


def check_attributes(place, found, expected):
    """`expected`: name -> type as in the documentation, n the number of dimensions."""
    check(set(found) == set(expected), f"{place}: attributes {sorted(found)}, documented {sorted(expected)}")
    for name in set(found) & set(expected):
        check(kind(found[name]) == expected[name], f"{place}: {name} is {kind(found[name])}, documented {expected[name]}")


def dataset_attributes(dataset, row_start):
    expected = {"dtype": "string", "shape": f"int64[{dataset.ndim}]", "init": "string", "decay": "uint8"}
    if row_start:
        expected["row_start"] = "int64"
    return expected


def check_format(place, file):
    check(file.attrs.get("format") == "fwa-checkpoint" and file.attrs.get("format_version") == 1,
          f"{place}: format and version")


def read_shards(folder, ranks):
    """part -> name -> whole array, joined from the shards."""
    whole, seen = {"master": {}, "m": {}, "v": {}}, {}
    for rank in range(ranks):
        place = f"shard.rank{rank:05d}.h5"
        with h5py.File(os.path.join(folder, place)) as file:
            check_attributes(place, dict(file.attrs), {"format": "string", "format_version": "int64", "rank": "int64"})
            check_format(place, file)
            check(file.attrs["rank"] == rank, f"{place}: rank {file.attrs['rank']}")
            check(set(file) == set(whole), f"{place}: groups {sorted(file)}")
            for part, tensors in whole.items():
                for name, dataset in file[part].items():
                    where = f"{place}/{part}/{name}"
                    check_attributes(where, dict(dataset.attrs), dataset_attributes(dataset, True))
                    check(dataset.fletcher32 and dataset.chunks is not None, f"{where}: no fletcher32")
                    check(dataset.dtype in ("<f4", "<f8"), f"{where}: {dataset.dtype}")
                    check(dataset.attrs["dtype"] == {"<f4": "f32", "<f8": "f64"}[dataset.dtype.str], f"{where}: dtype")
                    shape, start = tuple(dataset.attrs["shape"]), int(dataset.attrs["row_start"])
                    array = tensors.setdefault(name, np.full(shape, np.nan, dataset.dtype))
                    count = seen.setdefault((part, name), np.zeros(shape[0], int))
                    array[start:start + dataset.shape[0]] = dataset[()]
                    count[start:start + dataset.shape[0]] += 1
    for (part, name), count in seen.items():
        check((count == 1).all(), f"{part}/{name}: a row is not there exactly once")
    return whole


def same(a, b):
    return a.shape == b.shape and a.dtype == b.dtype and a.tobytes() == np.ascontiguousarray(b).tobytes()


def check_view(place, group, tensors):
    check(set(group) == set(tensors), f"{place}: not the parameters of the shards")
    for name in set(group) & set(tensors):
        dataset = group[name]
        check(dataset.is_virtual, f"{place}/{name}: not a virtual dataset")
        check(np.isnan(dataset.fillvalue), f"{place}/{name}: fill value {dataset.fillvalue}")
        check_attributes(f"{place}/{name}", dict(dataset.attrs), dataset_attributes(dataset, False))
        check(same(tensors[name], dataset[()]), f"{place}/{name}: other values than in the shards")


def check_state(folder):
    integers = ["format_version", "step", "tokens", "accepted", "skipped", "skipped_in_a_row", "seed", "epoch"]
    expected = {name: "int64" for name in integers}
    expected.update({"format": "string", "norm_mean": "float64", "best_val_loss": "float64",
                     "data_fingerprint": "uint64", "config_hash": "uint64"})
    texts = {"config", "version", "command", "choices"}
    with h5py.File(os.path.join(folder, "state.h5")) as file:
        check_format("state.h5", file)
        check_attributes("state.h5", dict(file.attrs), expected)
        check(set(file) == texts, f"state.h5: datasets {sorted(file)}")
        for name in texts & set(file):
            check(isinstance(file[name].asstr()[()], str), f"state.h5/{name}: no text")
        check("model:" in file["config"].asstr()[()], "state.h5/config: no configuration")
        return int(file.attrs["step"])


def check_pack(path, masters, step):
    with h5py.File(path) as file:
        check_attributes(path, dict(file.attrs), {"format": "string", "step": "int64", "config": "string"})
        check(file.attrs["format"] == "fwa-model" and file.attrs["step"] == step, f"{path}: format or step")
        check(set(file) == set(masters), f"{path}: not the parameters of the checkpoint")
        for name in set(file) & set(masters):
            check(not file[name].is_virtual and same(masters[name], file[name][()]), f"{path}/{name}: other values")


def main(folder, packed=None):
    with open(os.path.join(folder, "manifest.json")) as file:
        manifest = json.load(file)
    check(set(manifest) == {"format", "version", "step", "ranks", "files"}, f"manifest.json: {sorted(manifest)}")
    names = {file["name"] for file in manifest["files"]} | {"manifest.json"}
    check(names == set(os.listdir(folder)), f"files {sorted(os.listdir(folder))}, in the manifest {sorted(names)}")
    for file in manifest["files"]:
        check(set(file) == {"name", "bytes", "xxh3_128"}, f"manifest.json: {file}")
    whole = read_shards(folder, manifest["ranks"])
    with h5py.File(os.path.join(folder, "model.h5")) as file:
        check_view("model.h5", file, whole["master"])
    with h5py.File(os.path.join(folder, "optim.h5")) as file:
        check(set(file) == {"m", "v"}, f"optim.h5: groups {sorted(file)}")
        for part in ("m", "v"):
            check_view(f"optim.h5/{part}", file[part], whole[part])
    check(check_state(folder) == manifest["step"], "state.h5 and manifest.json: another step")
    if packed:
        check_pack(packed, whole["master"], manifest["step"])
    for problem in PROBLEMS:
        print(problem)
    print(f"{folder}: {len(names) - 1} files, {len(whole['master'])} parameters, {len(PROBLEMS)} problems")
    return 1 if PROBLEMS else 0


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
