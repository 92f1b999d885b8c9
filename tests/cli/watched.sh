#!/bin/sh
# What reads a run folder while its run trains, saves at every step and keeps one checkpoint: that goes away while it is
# read, which is no damage; the one that is there then is taken.
. "$(dirname "$0")/lib.sh"
# shellcheck disable=SC2016 # the inner shell's variables
start sh -c 'exec "$@" >train.out 2>&1' sh "$FWA" train tiny.yaml run.name=run train.steps=1000000 checkpoint.every=1 \
    checkpoint.keep_last=1 train.global_batch=400
tries=0
until [ -e runs/run/checkpoints/latest ] || [ $tries -gt $((limit * 20)) ]; do
    tries=$((tries + 1))
    sleep 0.05
done
for round in 1 2 3 4; do
    run "$FWA" eval runs/run --widths 1-1 --examples 2
    expect 0 || break
    run "$FWA" generate runs/run --tokenizer bytes --prompt 1 --tokens 1
    expect 0 || break
    run "$FWA" export runs/run export.$round --logits 4
    expect 0 || break
    run "$FWA" checkpoint pack runs/run --out packed.$round.h5
    expect 0 || break
    run "$FWA" checkpoint list runs/run
    expect 0 || break
    check_not "a checkpoint is called damaged" grep damaged out
    run "$FWA" checkpoint verify runs/run
    expect 0 || break
    run "$FWA" train tiny.yaml run.name=branch.$round train.steps=1 --init-from runs/run
    expect 0 || break
    run "$FWA" report runs/run -o report.html
    expect 0 || break
done
kill -USR1 "$background"
ended
check "training ended with code $code: $(tail -n 3 train.out)" test "$code" = 75
finish
