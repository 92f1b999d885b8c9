#!/bin/sh
# A rank of two is killed or stopped while it trains and saves: the other one and mpirun leave in time, the TERM that
# mpirun sends then starts no save, and what was saved before is sound.
. "$(dirname "$0")/../cli/lib.sh"
settings="train.micro_batch=4 parallel.zero=1"

# gone SECONDS: both ranks, within that time each.
gone() {
    for rank in 0 1; do check "rank $rank is left after $1 s" gone_within "$1" "$(cat rank.$rank)"; done
}
# Killed: everyone is gone within 10 s, and the TERM that mpirun sends then starts no save.
start_pair killed
wait_for_rows killed 3
kill -9 "$(cat rank.1)"
gone 10
ended
check "a rank was killed, and the run ended with code $code" test "$code" != 0
check_not "a save was started after a rank was lost" test -e runs/killed/checkpoints

# Stopped while steps and saves go on: code 4 within the time-out. What was saved before is sound.
start_pair stopped checkpoint.every=1 checkpoint.keep_last=2 comm.timeout_s=2
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
