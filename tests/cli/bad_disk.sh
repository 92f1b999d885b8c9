#!/bin/sh
# File systems that are full or read-only, before and during training: exit code 1, what was there stays. Only a log that is
# lost does not end training. Skips without the right to mount.
. "$(dirname "$0")/lib.sh"
mkdir small
if ! mount -t tmpfs -o size=1100k none small 2>reason; then
    echo "no right to mount: $(head -n 1 reason)"
    exit 77
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

# Nor a line of the log, which stands there alone: said once, and training goes on.
for ranks in 1 2; do
    mkdir -p runs/quiet$ranks
    ln -s "$work/small/log.txt" runs/quiet$ranks/log.txt
    trained $ranks quiet$ranks tiny.yaml train.steps=3 train.micro_batch=4
    expect 0 "warning" "cannot write to runs/quiet$ranks/log.txt: No space left on device" "step  3/3"
    check "said $(grep -c 'cannot write to' err) times" test "$(grep -c 'cannot write to' err)" = 1
    check "no metrics" test "$(wc -l <"runs/quiet$ranks/metrics.jsonl")" = 3
    rm small/log.txt
done
rm small/ballast

# Read-only, and turned read-only between two starts
trained 1 stopped tiny.yaml run.dir=small train.steps=9 train.stop_after=3
mkdir small/stopped/checkpoints/.step_00000009.tmp
echo 5 >small/stopped/FINISHED
mount -o remount,ro small
trained 1 stopped tiny.yaml run.dir=small train.steps=5 --resume auto
expect 0 "small/stopped is finished; nothing to do"
check_not "a word about what cannot be cleared" grep -i -e '\.step_' -e read-only -e lock err
check "not cleared, and gone" test -d small/stopped/checkpoints/.step_00000009.tmp
train 1 stopped tiny.yaml run.dir=small train.steps=9 --resume auto
expect 1 "small/stopped" "Read-only file system"
train 2 new tiny.yaml run.dir=small train.steps=2 train.micro_batch=4
expect 1 "small/new" "Read-only file system"
mount -o remount,rw,size=8m small
trained 1 stopped tiny.yaml run.dir=small train.steps=9 --resume auto
check_not "not cleared on a disk that takes it" test -e small/stopped/checkpoints/.step_00000009.tmp
finish
