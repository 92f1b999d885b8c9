#!/usr/bin/env python3
"""Event files of `fwa report --tensorboard` read by the tensorboard package: every scalar of metrics.jsonl at its step.

    pip install tensorboard
    build/fwa report runs/NAME --tensorboard events
    python3 tests/peers/events.py runs/NAME/metrics.jsonl events/NAME
"""
import json
import sys

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

TAGS = {"train/loss": "loss", "train/grad_norm": "grad_norm", "train/lr": "lr", "train/skipped": "skipped",
        "val/loss": "val_loss", "speed/tokens_per_s": "tokens_per_s", "speed/ms": "ms", "speed/mfu": "mfu",
        **{f"gates/{name}": name for name in ("gamma_mean", "eta_mean", "ridge_mean", "clamp_share")}}


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    events = EventAccumulator(sys.argv[2], size_guidance={"scalars": 0})
    events.Reload()
    compared = 0
    for tag, field in TAGS.items():
        wanted = [(row["step"], row[field], row["time"]) for row in rows if field in row]
        got = [(e.step, e.value, e.wall_time) for e in events.Scalars(tag)] if wanted else []
        if len(got) != len(wanted):
            sys.exit(f"{tag}: {len(got)} values, expected {len(wanted)}")
        for (step, value, time), (step_read, value_read, time_read) in zip(wanted, got):
            if step != step_read or abs(value - value_read) > 1e-6 * abs(value) or time != time_read:
                sys.exit(f"{tag}: {(step_read, value_read, time_read)}, expected {(step, value, time)}")
        compared += len(got)
    print(f"{compared} values are as in {sys.argv[1]}")


if __name__ == "__main__":
    main()
