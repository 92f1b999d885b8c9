#!/bin/sh
# A rank is killed at a random moment while one checkpoint after the other is written, again and again: the newest one
# that is there loads, is whole, and is no older than the newest before; nothing half-written is taken for one.
# FWA_KILLS: how often.
. "$(dirname "$0")/lib.sh"
kills=${FWA_KILLS:-2}
settings="train.micro_batch=4 parallel.zero=1 train.steps=1000000 checkpoint.every=1 checkpoint.keep_last=2"
newest=-1

# newest_step: of the folders that are called checkpoints
newest_step() {
    find runs/run/checkpoints -maxdepth 1 -name 'step_*' 2>/dev/null | sed 's/.*step_0*//' | sort -n | tail -n 1
}

kill_one() {
    rm -f rank.0 rank.1
    # shellcheck disable=SC2086 # several words
    start $mpirun -np 2 sh rank.sh "$FWA" train tiny.yaml run.name=run $settings --resume auto
    tries=0 # what the kill before has left stays until the first save
    until { grep -q '^step' err && [ -d "$(echo runs/run/checkpoints/.step_*.tmp)" ]; } ||
        [ $tries -gt $((limit * 50)) ]; do
        tries=$((tries + 1))
        sleep 0.02
    done
    sleep "$1"
    kill -9 "$(cat "rank.$2")"
    ended
    check "kill $3: the run ended with code $code" test "$code" != 0
    step=$(newest_step)
    [ "${step:--1}" -ge "$newest" ] || note_failure "kill $3: the newest checkpoint is $step, and was $newest"
    newest=${step:--1}
    [ "$newest" -ge 0 ] || return 0
    run "$FWA" checkpoint verify runs/run
    expect 0
    grep -q '^  step_0*'"$newest"' *sound' out || note_failure "kill $3: $newest is not called sound: $(cat out)"
}

# Seconds and rank, the same in every run of the test.
awk -v n="$kills" 'BEGIN { srand(7); for (i = 1; i <= n; i++) printf "%.3f %d %d\n", rand() * 0.4, rand() * 2, i }' >moments
while read -r seconds rank number; do kill_one "$seconds" "$rank" "$number"; done <moments
for seconds in 1 2 4 8; do # where no save was quick enough
    [ "$newest" -gt 0 ] || kill_one $seconds 0 "after $seconds s"
done
check "no checkpoint was written" test "$newest" -gt 0
# shellcheck disable=SC2086 # several words
trained 2 run tiny.yaml $settings train.stop_after=$((newest + 2)) --resume auto
expect 0 "at step $newest"
no_leftovers run
check "a step stands more than once, or is missing" test "$(columns runs/run/metrics.jsonl step | tr '\n' ' ')" = \
    "$(seq -s ' ' 1 $((newest + 2))) "
finish
