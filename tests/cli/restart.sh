#!/bin/sh
# What a run folder lets a second start do.
. "$(dirname "$0")/lib.sh"

# Finished: nothing to do, at once. Without --resume the folder is left alone.
trained 1 over tiny.yaml train.steps=6
cp -r runs/over before
trained 1 over tiny.yaml train.steps=6 --resume auto
expect 0 "finished"
check "a finished run was touched" diff -r runs/over before
for mistake in optimizer.lr=fast model.mixer.many.windw=3 model.mixer.one.rule=falcon9 train.micro_batch=5; do
    train 1 over tiny.yaml train.steps=6 --resume auto "$mistake"
    expect 2 "${mistake%%=*}"
done
train 1 over tiny.yaml train.steps=6
expect 2 "runs/over" "--resume auto"
train 1 over tiny.yaml train.steps=6 --resume none
expect 2 "runs/over" "--resume auto"
train 2 over tiny.yaml train.steps=6 train.micro_batch=4
expect 2 "runs/over" "--resume auto"
check "a refused start touched the run" diff -r runs/over before

# A damaged mark of the end finishes nothing: the run goes on from its checkpoint, and is marked again.
echo 6x >runs/over/FINISHED
trained 1 over tiny.yaml train.steps=6 --resume auto
expect 0 "runs/over/FINISHED" "at step 6"
check "the run is not marked again" grep -qx 6 runs/over/FINISHED

# leave RUN: what a killed save leaves behind
leave() {
    mkdir -p "runs/$1/checkpoints/.step_00000009.tmp"
    echo part >"runs/$1/checkpoints/.step_00000009.tmp/shard.rank00000.h5"
}

# What a killed save left goes though nothing is left to do, and nothing else of the run changes.
cp -r runs/over before-clearing
leave over
trained 1 over tiny.yaml train.steps=6 --resume auto
expect 0 "finished"
check "a finished run was touched" diff -r runs/over before-clearing
leave over
train 1 over tiny.yaml train.steps=6 # refused: it is for --resume auto
expect 2 "runs/over"
check "a refused start has cleared" test -d runs/over/checkpoints/.step_00000009.tmp
rm runs/over/FINISHED # killed between the last save and its mark
trained 1 over tiny.yaml train.steps=6 --resume auto
no_leftovers over

# A folder without anything: auto starts and says so.
trained 1 fresh tiny.yaml train.steps=2 --resume auto
expect 0 "starting fresh"

# So it does where a finished run has lost its checkpoints.
rm -r runs/fresh/checkpoints
trained 1 fresh tiny.yaml train.steps=3 --resume auto
expect 0 "starting fresh"
check "the run is not marked again" grep -qx 3 runs/fresh/FINISHED

# Stopped: the same bound again has nothing left to do, and is not finished.
trained 1 bound tiny.yaml train.stop_after=3
leave bound
trained 1 bound tiny.yaml train.stop_after=3 --resume auto
no_leftovers bound
check "a run went beyond train.stop_after" test "$(wc -l <runs/bound/metrics.jsonl)" = 3
check_not "a stopped run is called finished" test -e runs/bound/FINISHED

# More steps: a finished run goes on. The rate is a function of the new length from there on.
trained 1 longer tiny.yaml schedule.kind=constant train.steps=4
trained 1 longer tiny.yaml schedule.kind=constant train.steps=9 --resume auto
trained 1 straight tiny.yaml schedule.kind=constant train.steps=9
same_curve straight longer
same_parameters straight longer 9
trained 1 longer tiny.yaml schedule.kind=constant train.steps=9 --resume auto
expect 0 "finished"

# Killed after a checkpoint and some steps more: each step stands once in metrics.jsonl.
trained 1 killed tiny.yaml train.steps=100000 train.stop_after=6
start "$FWA" train tiny.yaml run.name=killed train.steps=100000 --resume auto
wait_for_rows killed 12
kill -9 "$background"
ended
expect 137
check "the run was over before it was killed" test -z "$(find runs/killed -name FINISHED)"
printf '{"step":99,"tok' >>runs/killed/metrics.jsonl
printf '{"step":99,"gam' >>runs/killed/gates.jsonl
trained 1 killed tiny.yaml train.steps=100000 train.stop_after=15 --resume auto
expect 0 "at step 6"
trained 1 whole tiny.yaml train.steps=100000 train.stop_after=15
same_curve whole killed
same_parameters whole killed 15
check "other gates" cmp runs/whole/gates.jsonl runs/killed/gates.jsonl
no_leftovers killed

# Killed before the first checkpoint: starts again from nothing.
start "$FWA" train tiny.yaml run.name=early train.steps=100000
wait_for_rows early 3
kill -9 "$background"
ended
expect 137
trained 1 early tiny.yaml train.steps=100000 train.stop_after=15 --resume auto
expect 0 "starting fresh"
same_curve whole early
check "other gates" cmp runs/whole/gates.jsonl runs/early/gates.jsonl

# The same with another rule, which has no gates: those of the start before do not stay.
mkdir -p runs/other
cp runs/whole/metrics.jsonl runs/whole/gates.jsonl runs/other
trained 1 other tiny.yaml train.steps=3 'model.mixers=[all]' --resume auto
expect 0 "starting fresh"
check "not three rows" test "$(wc -l <runs/other/metrics.jsonl)" = 3
check_not "gates of another rule are left" test -e runs/other/gates.jsonl

# A damaged newest checkpoint: the one before is taken, with a warning.
trained 1 hurt tiny.yaml train.steps=9 checkpoint.every=3 schedule.kind=constant
rm runs/hurt/FINISHED
printf 'x' | dd of=runs/hurt/checkpoints/step_00000009/shard.rank00000.h5 bs=1 seek=20000 conv=notrunc 2>/dev/null
trained 1 hurt tiny.yaml train.steps=9 schedule.kind=constant --resume auto
expect 0 "step_00000009" "at step 6"
same_curve straight hurt
same_parameters straight hurt 9
truncate -s 1000 runs/hurt/checkpoints/*/shard.rank00000.h5
rm runs/hurt/FINISHED
train 1 hurt tiny.yaml train.steps=9 schedule.kind=constant --resume auto
expect 2 "step_00000003"

# What is kept: the last ones, and every so many for good.
trained 1 kept tiny.yaml train.steps=10 checkpoint.every=1 checkpoint.keep_last=2 checkpoint.keep_every=4
# shellcheck disable=SC2012 # plain names
check "not the checkpoints 4, 8, 9, 10 and latest" test "$(ls runs/kept/checkpoints | tr '\n' ' ')" = \
    "latest step_00000004 step_00000008 step_00000009 step_00000010 "
check "latest does not name step 10" grep -q step_00000010 runs/kept/checkpoints/latest
finish
