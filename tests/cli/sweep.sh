#!/bin/sh
# Sweeps: every point its own run, what is finished is skipped, what is interrupted continues, a failure is told.
. "$(dirname "$0")/lib.sh"
cat >four.yaml <<'YAML'
base: tiny.yaml
set: {train.steps: 6, schedule.kind: constant, schedule.min_lr: 0, guard.max_skips: 2, eval.every: 3}
axes:
  optimizer.lr: [3e-3, 1e30]
seeds: [0, 1]
YAML

# Four points of which two fail: the others train, and a second start tries only the failed ones again.
run "$FWA" sweep four.yaml --list
expect 0
check "not four new points" test "$(grep -c ' new  *lr=' out)" = 4
check_not "a list made a folder" test -e runs
for round in first second; do
    run "$FWA" sweep four.yaml
    expect 1 "2 of 4 points failed" "point 3, lr=1e30,seed=0: failed with exit code 3"
    check "$round: no means of two seeds" grep -q '^3e-3 *2/2 *[0-9.]* ± [0-9.]* *[0-9.]* ± ' out
    check "$round: failures are not in the table" test "$(grep -c '^failed (3): runs/four/lr=1e30' out)" = 2
    check "$round: a finished point was started again" test "$(grep -c 'starting fresh' err)" = \
        "$(if [ $round = first ]; then echo 4; else echo 2; fi)"
done
run "$FWA" sweep four.yaml --list
check "not two finished and two failed" test "$(grep -c -e ' finished ' out) $(grep -c 'failed (3)' out)" = "2 2"
check "the CSV has no line a point" test "$(wc -l <runs/four/results.csv)" = 5
check "the CSV does not hold the failure" grep -q '^3,"lr=1e30,seed=0",1e30,0,failed,3,' runs/four/results.csv
run "$FWA" sweep four.yaml --csv nowhere/own.csv
expect 2 "--csv nowhere/own.csv"
check "points were trained for nothing" test ! -s out
run "$FWA" sweep four.yaml --table --csv own.csv
expect 0
check "another table of the same runs" diff own.csv runs/four/results.csv

# One point, and its exit code; the words are those that train it.
run "$FWA" sweep four.yaml --point 3
expect 3 "point 3, lr=1e30,seed=0"
run "$FWA" sweep four.yaml --point 1
expect 0 "finished"
run "$FWA" sweep four.yaml --words 2 run.dir=other
expect 0
tr '\n' ' ' <out >words.txt
# shellcheck disable=SC2046 # words without blanks
run "$FWA" $(cat words.txt)
expect 0 "run folder  other/four/lr=3e-3,seed=1"
mkdir -p runs/again
cp other/four/lr=3e-3,seed=1/metrics.jsonl runs/again
same_curve again "four/lr=3e-3,seed=1"

# What stands in the folders must be what the file says.
run "$FWA" sweep four.yaml optimizer.clip=2
expect 2 "runs/four/lr=3e-3,seed=0 holds a run of another configuration" "optimizer.clip: 1 -> 2"
run "$FWA" sweep four.yaml --list optimizer.clip=2
check "the list does not tell other configurations" grep -q 'other configuration *lr=3e-3,seed=0' out
run "$FWA" sweep four.yaml train.steps=7
expect 1 "2 of 4 points failed"
check "a point did not go on to more steps" test "$(wc -l <"runs/four/lr=3e-3,seed=0/metrics.jsonl")" = 7

# A signal: the point saves, the sweep leaves with 75, and the same command goes on as if nothing had been.
sed -e 's/1e30/1e-3/' -e 's/steps: 6/steps: 120/' four.yaml >long.yaml
for launch in "" "$mpirun -np 2"; do
    name=long${launch:+2}
    [ "$name" = long ] || cp long.yaml "$name.yaml"
    micro=$(if [ -n "$launch" ]; then echo 4; else echo 8; fi)
    for signal in USR1 TERM INT; do
        rows=$(cat "runs/$name"/*/metrics.jsonl 2>/dev/null | wc -l)
        start "$FWA" sweep "$name.yaml" train.micro_batch="$micro" ${launch:+--launch "$launch"}
        tries=0
        until [ "$(cat "runs/$name"/*/metrics.jsonl 2>/dev/null | wc -l)" -gt $((rows + 3)) ] || [ $tries = 200 ]; do
            tries=$((tries + 1))
            sleep 0.05
        done
        kill -$signal "$background"
        ended
        expect 75 "stopped at step" "the same command continues"
    done
    check_not "a stopped point counts as failed" grep -r . "runs/$name" --include='*.failed'
    run "$FWA" sweep "$name.yaml" train.micro_batch="$micro" ${launch:+--launch "$launch"}
    expect 0 "resumed from"
    check "not four points of 120 rows" test "$(cat "runs/$name"/*/metrics.jsonl | wc -l)" = 480
    for point in "runs/$name"/*/; do no_leftovers "${point#runs/}"; done
done
trained 1 straight tiny.yaml train.steps=120 schedule.kind=constant schedule.min_lr=0 guard.max_skips=2 eval.every=3
same_curve straight long/lr=3e-3,seed=0
close_numbers straight long2/lr=3e-3,seed=0 loss 1e-3 20

# SIGKILL to the sweep: its child saves and leaves, and another sweep goes on; while it trains, another one passes it by.
sed 's/steps: 120/steps: 100000/' long.yaml >killed.yaml
start "$FWA" sweep killed.yaml
wait_for_rows killed/lr=3e-3,seed=0 5
run "$FWA" sweep killed.yaml --list
check "a running point is not told" grep -q 'running  *lr=3e-3,seed=0' out
kill -9 "$background"
ended
expect 137
tries=0
until [ -s runs/killed/lr=3e-3,seed=0/checkpoints/latest ] || [ $tries = 400 ]; do
    tries=$((tries + 1))
    sleep 0.05
done
check "the child of a killed sweep did not save" test -s runs/killed/lr=3e-3,seed=0/checkpoints/latest
sleep 0.5
run "$FWA" sweep killed.yaml --list
check "the child of a killed sweep did not leave" grep -q 'stopped at [0-9]*  *lr=3e-3,seed=0' out
at=$(wc -l <"runs/killed/lr=3e-3,seed=0/metrics.jsonl")
run "$FWA" sweep killed.yaml --point 1 train.stop_after=$((at + 5))
expect 0 "at step $at"

# A child that does not hear the first request to stop is told to end by the second.
cat >deaf.sh <<'SH'
trap '' USR1
trap 'echo ended >deaf.txt; exit 9' TERM
echo there >deaf.txt
while :; do sleep 0.1; done
SH
start "$FWA" sweep killed.yaml run.dir=deaf --launch 'sh deaf.sh'
until [ -s deaf.txt ]; do sleep 0.02; done
kill -TERM "$background"
sleep 0.3
kill -TERM "$background" # an echo of the first
sleep 2
check "the first request ended it" grep -q there deaf.txt
kill -TERM "$background"
ended
expect 75
check "the second request did not end it" grep -q ended deaf.txt

# Mistakes: all of them at once with their places, before anything is started.
cat >wrong.yaml <<'YAML'
base: tiny.yaml
axes:
  model.mixer.one.rule: [falcon1, falcon9]
  optimizer.lrr: [1, 2]
seeds: [0, 1]
YAML
run "$FWA" sweep wrong.yaml
expect 2 "wrong.yaml:3: model.mixer.one.rule: 'falcon9' is not a rule" "wrong.yaml:4: optimizer.lrr: unknown key"
check "a mistake was told twice" test "$(grep -c optimizer.lrr err)" = 1
check_not "a wrong sweep made a folder" test -e runs/wrong
run "$FWA" sweep four.yaml run.seed=3
expect 2 "run.seed=3: point lr=3e-3,seed=0 has a value of its own (four.yaml:5)"
printf '%s\n' 'base: tiny.yaml' 'axes:' '  model.mixer.chunk: [4, 8]' >entries.yaml
run "$FWA" sweep entries.yaml --list model.mixer.one.chunk=2
expect 2 "model.mixer.one.chunk=2: point chunk=4 has a value of its own (entries.yaml:3)"
run "$FWA" sweep entries.yaml --list model.mixer.one.beta=fixed
expect 0
run "$FWA" sweep four.yaml --point 5
expect 2 "--point '5'"
run "$FWA" sweep four.yaml --list --table
expect 2 "exclude each other"
run "$FWA" sweep
expect 2 "expected a sweep file"
run "$FWA" sweep four.yaml --base gone.yaml
expect 2 "gone.yaml"
# shellcheck disable=SC2086 # the launcher and its options
run $mpirun -np 2 "$FWA" sweep four.yaml
expect 2 "--launch 'mpirun -np 2'"
run "$FWA" sweep four.yaml train.steps=7 --launch "no-such-launcher -np 2"
expect 1 "cannot start no-such-launcher: No such file"

# A folder that cannot be written is an error of the sweep, not of a point.
: >file
run "$FWA" sweep four.yaml run.dir=file
expect 1 "file is a file: expected a folder"
finish
