#!/bin/sh
# What reads a run folder while its run trains, saves at every step and keeps one checkpoint: that goes away while it is
# read, which is no damage; the one that is there then is taken. Readers are started until this was met.
. "$(dirname "$0")/lib.sh"
# shellcheck disable=SC2016 # the inner shell's variables
start sh -c 'exec "$@" >train.out 2>&1' sh "$FWA" train tiny.yaml run.name=run train.steps=1000000 checkpoint.every=1 \
    checkpoint.keep_last=1 train.global_batch=80
tries=0
until [ -e runs/run/checkpoints/latest ] || [ $tries -gt $((limit * 20)) ]; do
    tries=$((tries + 1))
    sleep 0.05
done

# read_once ARGUMENTS...: of the program; counts in $removed where a checkpoint went away under it.
read_once() {
    run "$FWA" "$@"
    expect 0
    check_not "a checkpoint is called damaged" grep damaged out err
    ! grep -q "removed by its run" out err || removed=$((removed + 1))
}
removed=0 round=0
until [ $removed -ge 4 ] || [ $round = 100 ] || [ $failures != 0 ]; do
    round=$((round + 1))
    read_once eval runs/run --widths 1-1 --examples 2
    read_once generate runs/run --tokenizer bytes --prompt 1 --tokens 1
    read_once export runs/run export.$round --logits 4
    read_once checkpoint pack runs/run --out packed.$round.h5
    read_once checkpoint list runs/run
    read_once checkpoint verify runs/run
    read_once train tiny.yaml run.name=branch.$round train.steps=1 --init-from runs/run
done
check "in $round rounds $removed readers met what the test is about" test $removed -ge 4
run "$FWA" report runs/run -o report.html
expect 0
kill -USR1 "$background"
ended
check "training ended with code $code: $(tail -n 3 train.out)" test "$code" = 75
finish
