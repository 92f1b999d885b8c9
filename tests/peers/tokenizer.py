"""fwa data tokenize beside tiktoken with the same vocabulary, on the same JSONL file: ids must be equal, on 10,000 lines
of it, on every character and on random mixtures of awkward ones too; then times.

    python3 tests/peers/tokenizer.py --fwa build/fwa --vocabulary data/gpt2 corpus.jsonl

tiktoken is given the texts in memory and hands back lists; fwa's time is that of the whole command, from reading the
file to synced shards. Best of the repeats, which alternate; CPU seconds beside it, for machines that do other work.
"""

import argparse
import json
import os
import random
import resource
import subprocess
import tempfile
import time

import numpy as np
import tiktoken

PATTERN = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"


def load(folder):
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    byte_of = {chr(byte): byte for byte in printable}
    byte_of.update({chr(256 + i): byte for i, byte in enumerate(others)})
    with open(os.path.join(folder, "encoder.json"), encoding="utf-8") as file:
        ids = json.load(file)
    mark = ids.pop("<|endoftext|>")
    ranks = {bytes(byte_of[c] for c in name): id for name, id in ids.items()}
    return mark, tiktoken.Encoding("local", pat_str=PATTERN, mergeable_ranks=ranks,
                                   special_tokens={"<|endoftext|>": mark})


def children_seconds():
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def run_fwa(arguments, threads, out, source=None):
    start, used = time.perf_counter(), children_seconds()
    subprocess.run([arguments.fwa, "data", "tokenize", source or arguments.input, "--tokenizer", arguments.vocabulary,
                    "--val", "0", "--threads", str(threads), "--shard-tokens", str(2**31 - 1), "--out", out],
                   check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start, children_seconds() - used


def run_tiktoken(encoding, texts, threads):
    start, used = time.perf_counter(), time.process_time()
    if threads == 1:
        ids = [encoding.encode_ordinary(text) for text in texts]
    else:
        ids = encoding.encode_ordinary_batch(texts, num_threads=threads)
    return (time.perf_counter() - start, time.process_time() - used), ids


def read_shard(out):
    return np.fromfile(os.path.join(out, "train_000000.bin"), dtype=np.uint16)[512:]


def check_ids(shard, mark, ids):
    expected = np.fromiter((id for document in ids for id in (mark, *document)), dtype=np.uint16)
    if not np.array_equal(shard, expected):
        raise SystemExit("the ids differ")


def check_strings(arguments, mark, encoding, name, strings):
    strings = [string for string in strings if string]
    with tempfile.TemporaryDirectory() as folder:
        source, out = os.path.join(folder, "strings.jsonl"), os.path.join(folder, "shards")
        with open(source, "w", encoding="utf-8") as file:
            file.writelines(json.dumps({"text": string}, ensure_ascii=False) + "\n" for string in strings)
        run_fwa(arguments, 2, out, source)
        shard = read_shard(out)
        check_ids(shard, mark, [encoding.encode_ordinary(string) for string in strings])
    print(f"{name}: {len(strings)} strings, {len(shard) - len(strings)} ids, equal")


def awkward_strings():
    draw = random.Random(1)
    pool = (" \n\t'strel0a1.,\0\u00a0\u3000\u0085\u180e\u200b\u200d\u0301\u00bd\u0661\ufeff\u4e2d\u00e9"
            "\U0001f469\U0010ffff")
    fixed = ["it's we'll I'LL 'tis ''s", " " * 300, " " * 300 + "x", "x" * 300, "ab" * 500, "\n" * 77 + "x",
             "<|endoftext|>", "\r\n\r\n", "\U0001f3f3\ufe0f\u200d\U0001f308"]
    return fixed + ["".join(draw.choices(pool, k=draw.randint(1, 30))) for _ in range(30000)]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("input")
    parser.add_argument("--fwa", default="build/fwa")
    parser.add_argument("--vocabulary", default="data/gpt2")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    mark, encoding = load(arguments.vocabulary)
    with open(arguments.input, encoding="utf-8") as file:
        texts = [json.loads(line)["text"] for line in file]
    lines = [line for text in texts for line in text.split("\n") if line][:10000]
    check_strings(arguments, mark, encoding, "lines", lines)
    check_strings(arguments, mark, encoding, "awkward", awkward_strings())
    characters = [chr(point) for point in range(0x110000) if not 0xD800 <= point < 0xE000]
    check_strings(arguments, mark, encoding, "characters", [f"a{c} {c}\n" for c in characters])
    megabytes = sum(len(text.encode()) for text in texts) / 1e6
    print(f"{len(texts)} documents, {megabytes:.1f} MB of text; tiktoken {tiktoken.__version__}")
    print("threads    fwa MB/s    tiktoken MB/s    ratio    fwa CPU s    tiktoken CPU s    ratio")
    for threads in arguments.threads:
        ours, theirs = [], []
        for _ in range(arguments.repeats):
            with tempfile.TemporaryDirectory() as folder:
                out = os.path.join(folder, "shards")
                ours.append(run_fwa(arguments, threads, out))
                shard = read_shard(out)
            times, ids = run_tiktoken(encoding, texts, threads)
            theirs.append(times)
            check_ids(shard, mark, ids)
        wall, cpu = map(min, zip(*ours))
        their_wall, their_cpu = map(min, zip(*theirs))
        print(f"{threads:7d}  {megabytes / wall:10.1f}  {megabytes / their_wall:15.1f}  {their_wall / wall:7.2f}"
              f"  {cpu:11.2f}  {their_cpu:16.2f}  {their_cpu / cpu:7.2f}")


if __name__ == "__main__":
    main()
