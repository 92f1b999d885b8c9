#!/bin/sh
# Run folders that cannot be written, before and during training: exit code 1 (2 where a folder is in the place of a file that
# is read first), what was there stays.
. "$(dirname "$0")/lib.sh"

# A file where a folder has to be
echo words >taken
train 1 new tiny.yaml run.dir=taken train.steps=2
expect 1 "taken"
train 2 new tiny.yaml run.dir=taken train.steps=2 train.micro_batch=4
expect 1 "taken"
check "the file was changed" grep -q words taken
mkdir -p runs/blocked
echo words >runs/blocked/checkpoints
train 1 blocked tiny.yaml train.steps=2
expect 1 "runs/blocked/checkpoints"
mkdir -p runs/metrics/metrics.jsonl
train 1 metrics tiny.yaml train.steps=2
expect 2 "metrics.jsonl is a folder"

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

# The rest needs file systems of its own.
mkdir small
if ! mount -t tmpfs -o size=1100k none small 2>/dev/null; then
    echo "no right to mount: full and read-only file systems are left out"
    finish
fi
disk=$work/small

# Full: the first checkpoint fits, the second does not. The first one stays and can be used.
trained 1 size tiny.yaml train.steps=1
bytes=$(du -sk runs/size | cut -f 1)
mount -o remount,size=$((bytes * 3 / 2))k small
train 1 full tiny.yaml run.dir=small train.steps=9 checkpoint.every=3
expect 1 "step_00000006" "small/full"
check "the checkpoint before is gone" test -s small/full/checkpoints/step_00000003/manifest.json
check_not "a checkpoint that did not fit is there" test -e small/full/checkpoints/step_00000006
check_not "half of a checkpoint is left" sh -c 'find small/full -name ".*" -o -name "*.tmp*" | grep .'
mkdir -p runs
cp -r small/full runs/full
trained 1 full tiny.yaml train.steps=9 --resume auto
expect 0 "at step 3"
trained 1 straight tiny.yaml train.steps=9
same_curve straight full
train 2 full tiny.yaml run.dir=small train.steps=9 train.micro_batch=4 --resume auto
expect 1 "step_00000009" "small/full"
check "the checkpoint before is gone" test -s small/full/checkpoints/step_00000003/manifest.json

# Full to the last byte: not even a line of metrics fits.
rm -r small/full
dd if=/dev/zero of=small/ballast bs=1k 2>/dev/null
train 1 crammed tiny.yaml run.dir=small train.steps=3
expect 1 "small/crammed"
rm small/ballast

# Read-only, and turned read-only between two starts
trained 1 stopped tiny.yaml run.dir=small train.steps=9 train.stop_after=3
mount -o remount,ro small
train 1 stopped tiny.yaml run.dir=small train.steps=9 --resume auto
expect 1 "small/stopped" "Read-only file system"
train 2 new tiny.yaml run.dir=small train.steps=2 train.micro_batch=4
expect 1 "small/new" "Read-only file system"
mount -o remount,rw,size=8m small
trained 1 stopped tiny.yaml run.dir=small train.steps=9 --resume auto
finish
