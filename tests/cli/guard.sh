#!/bin/sh
# Steps that are not finite or far too large are skipped and counted; several in a row end the run with exit code 3.
. "$(dirname "$0")/lib.sh"

# every_number_is_finite RUN: masters and moments of its newest checkpoint
every_number_is_finite() {
    check "run $1 has no checkpoint" test -s "runs/$1/checkpoints/latest" || return
    command -v h5dump >/dev/null || return 0
    h5dump "runs/$1/checkpoints/$(cat "runs/$1/checkpoints/latest")/shard.rank00000.h5" >dump.txt
    check "nothing to look at" grep -q blocks.2 dump.txt
    check_not "run $1 saved what is not finite" grep -i -m 3 -e '[( ,]-*nan' -e '[ ,]-*inf' dump.txt
}

for ranks in 1 2; do
    for precision in f32 f64; do
        name=$precision-$ranks
        train "$ranks" "$name" tiny.yaml optimizer.lr=1e30 schedule.kind=constant schedule.min_lr=0 train.micro_batch=4 \
            train.precision=$precision guard.max_skips=4 checkpoint.every=1
        expect 3 "4 steps in a row" "nothing of them was applied" "optimizer.lr"
        check_not "a NaN has a sign" grep -q -e -nan err
        every_number_is_finite "$name"
        no_leftovers "$name"
        rows=$(wc -l <"runs/$name/metrics.jsonl")
        check "run $name lost the checkpoint that was being written" grep -q "step_$(printf %08d "$rows")" \
            "runs/$name/checkpoints/latest"
        check_not "run $name is called finished" test -e "runs/$name/FINISHED"
        check "run $name did not count what it skipped" grep -q '"skipped":3' "runs/$name/metrics.jsonl"
        check_not "metrics of run $name hold what JSON has not" grep -e nan -e inf -i "runs/$name/metrics.jsonl"
    done
done

# The count goes on after a restart: two skipped steps before it and two behind it.
settings="optimizer.lr=1e30 schedule.kind=constant schedule.min_lr=0 guard.max_skips=4"
# shellcheck disable=SC2086 # several words
{
    train 1 whole tiny.yaml $settings
    expect 3
    at=$(wc -l <runs/whole/metrics.jsonl)
    trained 1 parts tiny.yaml $settings train.stop_after=$((at - 1))
    train 1 parts tiny.yaml $settings --resume auto
    expect 3 "step $((at + 1))" "4 steps in a row"
}
same_curve whole parts

# An update that is itself too large for the parameters is not saved.
train 1 beyond tiny.yaml optimizer.lr=1e300 schedule.kind=constant schedule.min_lr=0 checkpoint.every=1
expect 3 "not finite" "optimizer.lr"
no_leftovers beyond
check "a checkpoint with infinite parameters was saved" test -z "$(find runs/beyond -name 'step_*')"

# A spike is skipped; the run goes on and comes to its end.
trained 1 spiky tiny.yaml guard.spike_factor=1.2 guard.window=1 guard.max_skips=30
check "no step was skipped" test "$(columns runs/spiky/metrics.jsonl skipped | tail -n 1)" -gt 0
# What a norm is compared with outlives a restart.
trained 1 spiky-parts tiny.yaml guard.spike_factor=1.2 guard.window=1 guard.max_skips=30 train.stop_after=9
trained 1 spiky-parts tiny.yaml guard.spike_factor=1.2 guard.window=1 guard.max_skips=30 --resume auto
same_curve spiky spiky-parts
trained 1 smooth tiny.yaml guard.spike_factor=0
check "a step was skipped" test "$(columns runs/smooth/metrics.jsonl skipped | tail -n 1)" = 0
finish
