#!/bin/sh
# Run folders that cannot be written, before and during training: exit code 1 (2 where a folder is in the place of a file that
# is read first), what was there stays.
. "$(dirname "$0")/lib.sh"

# A file where a folder has to be
echo words >taken
train 1 new tiny.yaml run.dir=taken train.steps=2
expect 1 "taken is a file: expected a folder"
train 2 new tiny.yaml run.dir=taken train.steps=2 train.micro_batch=4
expect 1 "taken is a file: expected a folder"
check "the file was changed" grep -q words taken
mkdir -p runs/blocked
echo words >runs/blocked/checkpoints
train 1 blocked tiny.yaml train.steps=2
expect 1 "runs/blocked/checkpoints"
for file in metrics gates; do
    mkdir -p runs/$file/$file.jsonl
    train 1 $file tiny.yaml train.steps=2
    expect 2 "$file.jsonl is a folder"
done

ln -s nowhere runs/link
train 1 link tiny.yaml train.steps=2
expect 1 "runs/link is a link that leads nowhere"

# Standard output that takes nothing
trained 1 good tiny.yaml train.steps=1
for words in "help" "help configuration" "--version" "eval --help" "info" "eval runs/good --widths 1-1 --examples 2" \
    "checkpoint list runs/good" "bench step tiny.yaml --steps 1"; do
    run sh -c "\"$FWA\" $words >/dev/full"
    expect 1 "cannot write"
done

# Without permission
if [ "$(id -u)" != 0 ]; then
    mkdir -p locked
    chmod 555 locked
    train 1 new tiny.yaml run.dir=locked train.steps=2
    expect 1 "locked" "Permission denied"
fi
finish
