#!/bin/sh
# A signal saves and leaves with 75; resuming then gives the curve of a run that was never interrupted.
. "$(dirname "$0")/lib.sh"
settings="train.steps=100000 train.micro_batch=4"
two="$mpirun -np 2"

# compare RUN RANKS: the interrupted run's end, and three steps more against an uninterrupted run.
compare() {
    ended
    expect 75 "--resume auto" "saved checkpoint at step"
    at=$(wc -l <"runs/$1/metrics.jsonl")
    check "the checkpoint is not of the last step" grep -q "step_$(printf %08d "$at")" "runs/$1/checkpoints/latest"
    no_leftovers "$1"
    # shellcheck disable=SC2086 # several words
    trained "$2" "$1" tiny.yaml $settings train.stop_after=$((at + 3)) --resume auto
    # shellcheck disable=SC2086 # several words
    trained "$2" "whole-$1" tiny.yaml $settings train.stop_after=$((at + 3))
    same_curve "whole-$1" "$1"
    same_parameters "whole-$1" "$1" $((at + 3))
}

for signal in TERM USR1 USR2 INT HUP; do
    # shellcheck disable=SC2086 # several words
    start "$FWA" train tiny.yaml run.name=$signal $settings
    wait_for_rows $signal 3
    kill -$signal "$background"
    compare $signal 1
done

# timeout(1) sends its signal to the program and once more to the group that the program is in.
# shellcheck disable=SC2086 # several words
start timeout --preserve-status 60 "$FWA" train tiny.yaml run.name=timed $settings
wait_for_rows timed 3
kill -TERM "$background"
compare timed 1

# nohup: the terminal that closes ends nothing.
# shellcheck disable=SC2086 # several words
start nohup "$FWA" train tiny.yaml run.name=nohup $settings
wait_for_rows nohup 3
kill -HUP "$background"
wait_for_rows nohup $(($(wc -l <runs/nohup/metrics.jsonl) + 20))
kill -USR1 "$background"
compare nohup 1

# Under mpirun the signal comes to one rank only, rank 0 or another.
for rank in 0 1; do
    # shellcheck disable=SC2086 # several words
    start $two sh rank.sh "$FWA" train tiny.yaml run.name=rank$rank $settings
    wait_for_rows rank$rank 3
    [ $rank = 0 ] && signal=INT || signal=USR1
    kill -"$signal" "$(cat rank.$rank)"
    compare rank$rank 2
done

# mpirun hands USR1 on to every rank.
# shellcheck disable=SC2086 # several words
start $two "$FWA" train tiny.yaml run.name=all $settings
wait_for_rows all 3
kill -USR1 "$background"
compare all 2
finish
