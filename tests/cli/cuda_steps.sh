#!/bin/sh
# Steps that follow each other on a GPU without a wait: rows, checkpoints and the end are what they are where every step
# is waited for; ten steps at once and in parts are the same run, bit for bit; rows of timed steps have their own time;
# skipped steps end the run; a signal saves the last step. FWA_TEST_RANKS: the same over several GPUs. Skips without them.
. "$(dirname "$0")/lib.sh"
n=${FWA_TEST_RANKS:-1}
needs_gpus "$n"
limit=200
settings="run.backend=cuda debug.deterministic=true train.steps=10 train.micro_batch=4 train.global_batch=$((8 * n))"

for precision in f32 bf16; do
    at="$settings train.precision=$precision"
    # shellcheck disable=SC2086 # several words
    {
        trained "$n" whole-$precision tiny.yaml $at
        trained "$n" waited-$precision tiny.yaml $at checkpoint.every=1
        trained "$n" looked-$precision tiny.yaml $at eval.every=3
        trained "$n" parts-$precision tiny.yaml $at train.stop_after=4
        trained "$n" parts-$precision tiny.yaml $at train.stop_after=7 --resume auto
        trained "$n" parts-$precision tiny.yaml $at --resume auto
    }
    check "not 10 rows" test "$(wc -l <runs/whole-$precision/metrics.jsonl)" = 10
    for second in waited parts; do
        same_curve whole-$precision "$second-$precision"
        same_parameters whole-$precision "$second-$precision" 10
    done
    same_text whole-$precision looked-$precision step tokens loss grad_norm lr skipped epoch token_hash
    same_parameters whole-$precision looked-$precision 10
    check "not validated 4 times" test "$(grep -c val_loss runs/looked-$precision/metrics.jsonl)" = 4
done

# Steps timed by parts are waited for, and their rows have their time, not that of a neighbour.
# shellcheck disable=SC2086 # several words
trained "$n" timed tiny.yaml $settings debug.profile=3
# shellcheck disable=SC2016 # awk's variables, not the shell's
check "rows 3 to 5 have less than the time of their steps" awk -v rows="$(columns runs/timed/metrics.jsonl ms)" '
/"ms": / && !mean { match($0, /"ms": [0-9.e+-]*/); mean = substr($0, RSTART + 6, RLENGTH - 6) }
END { split(rows, ms, "\n"); exit !(mean > 0 && ms[3] + ms[4] + ms[5] > 0.95 * 3 * mean) }' runs/timed/profile.json

# The guard looks one step late and applies nothing of what it refused.
# shellcheck disable=SC2086 # several words
train "$n" wild tiny.yaml $settings train.steps=30 optimizer.lr=1e30 schedule.kind=constant schedule.min_lr=0 guard.max_skips=4
expect 3 "4 steps in a row" "optimizer.lr"
check "did not count what it skipped" grep -q '"skipped":3' runs/wild/metrics.jsonl

# A signal: the step given last is reported and saved.
if [ "$n" = 1 ]; then
    settings="run.backend=cuda debug.deterministic=true train.steps=100000"
    # shellcheck disable=SC2086 # several words
    start "$FWA" train tiny.yaml run.name=stopped $settings
    wait_for_rows stopped 3
    kill -TERM "$background"
    ended
    expect 75 "--resume auto" "saved checkpoint at step"
    at=$(wc -l <runs/stopped/metrics.jsonl)
    check "the checkpoint is not of the last row" grep -q "step_$(printf %08d "$at")" runs/stopped/checkpoints/latest
fi
finish
