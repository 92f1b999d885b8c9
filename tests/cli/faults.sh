#!/bin/sh
# Signals at awkward moments, to one of two ranks: in the first step, in an evaluation, in a save. A disk that fills up in
# a save: no checkpoint is lost or half there. tests/slow/lost_ranks.sh stops and kills ranks.
. "$(dirname "$0")/lib.sh"
settings="train.micro_batch=4 parallel.zero=1"

# says TEXT: waits until it stands in standard error, at most $limit seconds.
says() {
    tries=0
    until grep -qF -e "$1" err; do
        tries=$((tries + 1))
        if [ $tries -gt $((limit * 20)) ]; then
            note_failure "$what
  does not say: $1"
            finish
        fi
        sleep 0.05
    done
}

# saved RUN TEXT...: ended by a signal, with a checkpoint of the last row's step that is sound.
saved() {
    interrupted=$1
    shift
    ended
    expect 75 "saved at step" "continue with --resume auto" "$@"
    rows=$(wc -l <"runs/$interrupted/metrics.jsonl")
    check "$interrupted: the checkpoint is not of the last step" grep -q "step_$(printf %08d "$rows")" \
        "runs/$interrupted/checkpoints/latest"
    run "$FWA" checkpoint verify "runs/$interrupted"
    expect 0
    no_leftovers "$interrupted"
}

# whole RUN STEPS ARGUMENTS...: what was interrupted goes on to STEPS, and has the curve of a run that never was.
whole() {
    interrupted=$1 last=$2
    shift 2
    # shellcheck disable=SC2086 # several words
    trained 2 "$interrupted" tiny.yaml $settings train.steps=1000000 train.stop_after="$last" "$@" --resume auto
    # shellcheck disable=SC2086 # several words
    trained 2 "$interrupted-whole" tiny.yaml $settings train.steps=1000000 train.stop_after="$last" "$@"
    same_curve "$interrupted-whole" "$interrupted"
    same_parameters "$interrupted-whole" "$interrupted" "$last"
}

# In the first step, of 200 micro-batches a rank
start_pair first train.global_batch=1600
says "run folder"
kill -TERM "$(cat rank.1)"
saved first
check "the first step did not end the run" test "$(wc -l <runs/first/metrics.jsonl)" = 1

# In a validation that would take minutes; a run that goes on makes up for it.
start_pair evaluation eval.every=2 eval.batches=200000
wait_for_rows evaluation 1
sleep 0.3
kill -TERM "$(cat rank.1)"
saved evaluation "validation after step 2 left out after a signal"
whole evaluation 3 eval.every=2

# While one checkpoint after the other is written
start_pair saving checkpoint.every=1 checkpoint.keep_last=2
wait_for_rows saving 4
tries=0
until [ -d "$(echo runs/saving/checkpoints/.step_*.tmp)" ] || [ $tries -gt 5000 ]; do
    tries=$((tries + 1))
    sleep 0.005
done
kill -USR2 "$(cat rank.0)"
saved saving

# A disk that fills up in a save, of two shards: the space that is asked for is there, what it takes is more.
mkdir small
if mount -t tmpfs -o size=1700k none small 2>/dev/null; then
    disk=$work/small
    # shellcheck disable=SC2086 # several words
    train 2 full tiny.yaml $settings run.dir=small train.steps=9 checkpoint.every=3 schedule.kind=constant
    expect 1 "No space left on device"
    run "$FWA" checkpoint verify small/full
    expect 0
    check_not "half of a checkpoint is left" sh -c 'find small/full -name ".*" -o -name "*.tmp*" | grep .'
    # What cannot fit is said before it is begun.
    dd if=/dev/zero of=small/filler bs=1024 2>/dev/null
    truncate -s -131072 small/filler
    # shellcheck disable=SC2086 # several words
    train 1 full tiny.yaml $settings run.dir=small train.steps=9 schedule.kind=constant --resume auto
    expect 1 "a checkpoint in small/full/checkpoints needs" "are free on its disk"
    rm small/filler
    mount -o remount,size=9m small
    # shellcheck disable=SC2086 # several words
    trained 2 full tiny.yaml $settings run.dir=small train.steps=9 schedule.kind=constant --resume auto
    expect 0 "resumed from"
else
    echo "no right to mount: a full disk is left out"
fi
finish
