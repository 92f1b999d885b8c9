#!/bin/sh
# A rank of two is killed or stopped while it trains and saves: the other one and mpirun leave in time, the TERM that
# mpirun sends then starts no save, and what was saved before is sound.
. "$(dirname "$0")/../cli/lib.sh"
two="$mpirun -np 2 sh rank.sh $FWA train tiny.yaml train.micro_batch=4 parallel.zero=1"
settings="train.micro_batch=4 parallel.zero=1"

# begin RUN ARGUMENTS...: without end
begin() {
    name=$1
    shift
    rm -f rank.0 rank.1
    # shellcheck disable=SC2086 # the launcher and its options
    start $two run.name="$name" train.steps=1000000 "$@"
    tries=0
    until { [ -s rank.0 ] && [ -s rank.1 ]; } || [ $tries -gt $((limit * 20)) ]; do
        tries=$((tries + 1))
        sleep 0.05
    done
}

# gone SECONDS: both ranks, within that time from now.
gone() {
    tries=0
    while kill -0 "$(cat rank.0)" 2>/dev/null || kill -0 "$(cat rank.1)" 2>/dev/null; do
        tries=$((tries + 1))
        if [ $tries -gt $(($1 * 20)) ]; then
            note_failure "a rank is left after $1 s"
            return
        fi
        sleep 0.05
    done
}

# Killed: everyone is gone within 10 s, and the TERM that mpirun sends then starts no save.
begin killed
wait_for_rows killed 3
kill -9 "$(cat rank.1)"
gone 10
ended
check "a rank was killed, and the run ended with code $code" test "$code" != 0
check_not "a save was started after a rank was lost" test -e runs/killed/checkpoints

# Stopped while steps and saves go on: code 4 within the time-out. What was saved before is sound.
begin stopped checkpoint.every=1 checkpoint.keep_last=2 comm.timeout_s=2
wait_for_rows stopped 4
kill -STOP "$(cat rank.1)"
since=$(date +%s)
ended
expect 4
check "a stopped rank kept the others for longer than the time-out" test $(($(date +%s) - since)) -le 12
gone 5
# shellcheck disable=SC2086 # several words
trained 2 stopped tiny.yaml $settings train.steps=1000000 train.stop_after=9 --resume auto
expect 0 "resumed from"
finish
