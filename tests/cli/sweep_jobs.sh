#!/bin/sh
# Several points of a sweep at once: each place its GPU and its cores, failures beside successes, signals that save all.
. "$(dirname "$0")/lib.sh"
export CUDA_VISIBLE_DEVICES=
cat >four.yaml <<'YAML'
base: tiny.yaml
set: {train.steps: 4, schedule.kind: constant, schedule.min_lr: 0, guard.max_skips: 2}
axes:
  optimizer.lr: [3e-3, 1e-3, 3e-4, 1e-4]
YAML

# A point waits until as many as expected are under way, notes where it is, and trains then.
cat >meet.sh <<'SH'
touch "here.$$"
tries=0
until [ "$(ls here.* | wc -l)" -ge "$AT_ONCE" ]; do
    tries=$((tries + 1))
    [ $tries -lt "$TRIES" ] || { rm "here.$$" && exit 9; }
    sleep 0.02
done
echo "${CUDA_VISIBLE_DEVICES-unset}" >>gpus.txt
env -u OMP_NUM_THREADS nproc >>cores.txt
sleep 0.2 # the others have seen it
"$@"
code=$?
rm "here.$$"
exit $code
SH

# meet AT_ONCE TRIES ARGUMENTS...: a sweep whose points wait for each other.
meet() {
    AT_ONCE=$1 TRIES=$2
    export AT_ONCE TRIES
    shift 2
    rm -f here.* gpus.txt cores.txt
    run "$FWA" sweep four.yaml --launch 'sh meet.sh' "$@"
}

# gpus NAMES...: what places had, each once.
gpus() {
    check "$what: places have $(sort -u gpus.txt | tr '\n' ' '), expected $*" \
        test "$(sort -u gpus.txt | tr '\n' ' ')" = "$* "
}

# until_there FILE...: they have bytes, within $limit seconds.
until_there() {
    for file in "$@"; do
        tries=0
        until [ -s "$file" ] || [ $tries -gt $((limit * 20)) ]; do
            tries=$((tries + 1))
            sleep 0.05
        done
        check "there is no $file" test -s "$file"
    done
}

# rows RUN: updates it has reported
rows() {
    if [ -f "runs/$1/metrics.jsonl" ]; then wc -l <"runs/$1/metrics.jsonl"; else echo 0; fi
}

# Two at once: each waits for the other. One after another they wait in vain.
meet 2 10 run.dir=one --jobs 1
expect 1 "4 of 4 points failed" "point 1, lr=3e-3: failed with exit code 9"
meet 2 1000 --jobs 2
expect 0 "point 1 of 4, lr=3e-3: new, place 1 of 2" "point 2 of 4, lr=1e-3: new, place 2 of 2" \
    "point 4, lr=1e-4: finished, loss"
check "not four finished points" grep -q 'sweep four: 4 of 4 points finished' out
check_not "what points print is mixed" grep -q 'step  *1/4' err
check "what a point prints is lost" grep -q 'step  *4/4' runs/four/lr=3e-3.out
check "not four trainings" test "$(wc -l <gpus.txt)" = 4
gpus ""
cores=$(env -u OMP_NUM_THREADS nproc)
granted=$("$FWA" info | sed -n 's/.* \([0-9]*\) cores\{0,1\} for this process/\1/p') # a container's quota may be less
# shellcheck disable=SC2016 # awk's variables, not the shell's
check "places do not share $cores cores, of which $granted are granted: $(cat cores.txt)" \
    awk -v cores="$cores" -v most="$(((granted + 1) / 2))" '
    function least(a, b) { return a < b ? a : b }
    $1 < least(int(cores / 2), most) || $1 > least(int((cores + 1) / 2), most) { bad = 1 }
    END { exit bad || !NR }' cores.txt
run "$FWA" train tiny.yaml run.name=straight train.steps=4 schedule.kind=constant schedule.min_lr=0 guard.max_skips=2
same_curve straight four/lr=3e-3

# More places than points; and each its GPUs.
meet 4 1000 run.dir=many --jobs 64
expect 0 "place 4 of 4"
export CUDA_VISIBLE_DEVICES=GPU-a,GPU-b,GPU-c,MIG-d,GPU-e
meet 2 1000 run.dir=gpus2 --jobs 2
expect 0 "place 2 of 2, CUDA_VISIBLE_DEVICES=GPU-b"
gpus GPU-a GPU-b
meet 2 1000 run.dir=gpus4 --jobs=2 --gpus-per-job 2
gpus GPU-a,GPU-b GPU-c,MIG-d
meet 4 1000 run.dir=all --jobs gpus
expect 0 "place 4 of 4"
gpus GPU-a GPU-b GPU-c MIG-d
meet 1 10 run.dir=three --gpus-per-job 3
expect 0 "step  4/4"
gpus GPU-a,GPU-b,GPU-c
meet 1 10 run.dir=plain
gpus "$CUDA_VISIBLE_DEVICES"

# refused TEXT ARGUMENTS...: before anything is started.
refused() {
    text=$1
    shift
    run "$FWA" sweep four.yaml run.dir=refused "$@"
    expect 2 "$text"
    check_not "$what: left a folder" test -e refused
}
for jobs in 0 -1 abc 65 '' 2x; do
    refused "--jobs '$jobs': expected a whole number from 1 to 64, or gpus" --jobs "$jobs"
done
refused "--jobs is for training all points" --jobs 2 --point 1
refused "--gpus-per-job '0'" --gpus-per-job 0
refused "4 points at once with 2 GPUs each, and 5 are visible" --jobs 4 --gpus-per-job 2
refused "3 points at once with 2 GPUs each, and 5 are visible" --jobs 3 --gpus-per-job 2
refused "say how many GPUs the processes of a point share, with --gpus-per-job G" run.backend=cuda --jobs 2 --launch env
CUDA_VISIBLE_DEVICES=GPU-a,GPU-b,GPU-a
refused "CUDA_VISIBLE_DEVICES names GPU GPU-a twice" --jobs 2
CUDA_VISIBLE_DEVICES=
refused "2 points at once with 1 GPU each, and 0 are visible" run.backend=cuda --jobs 2
refused "--jobs gpus: 0 GPUs are visible" --jobs gpus

# A failure beside a success: both are told, the end of what it has printed too, and nobody waits for anybody.
sed -e 's/1e-3, 3e-4/1e30, 3e-4/' four.yaml >bad.yaml
run "$FWA" sweep bad.yaml --jobs 2
expect 1 "point 2, lr=1e30: failed with exit code 3" "  | " "1 of 4 points failed"
check "not three finished points" grep -q 'sweep bad: 3 of 4 points finished' out

# A signal: all points under way save, no other is started, and the same command goes on as if nothing had been.
sed 's/steps: 4/steps: 900/' four.yaml >long.yaml
for signal in TERM HUP; do
    keeper=$(if [ $signal = TERM ]; then echo nohup; fi)
    one=$(rows long/lr=3e-3)
    other=$(rows long/lr=1e-3)
    start ${keeper:+"$keeper"} "$FWA" sweep long.yaml --jobs 2
    wait_for_rows long/lr=3e-3 $((one + 3))
    [ -z "$keeper" ] || kill -HUP "$background"
    wait_for_rows long/lr=1e-3 $((other + 60))
    kill -$signal "$background"
    ended
    expect 75 "point 1 stopped at step" "point 2 stopped at step" "the same command continues"
    check_not "a point was started after the signal" test -e runs/long/lr=3e-4
done
check_not "a stopped point counts as failed" grep -r . runs/long --include='*.failed'
limit=180 # 3,600 updates, slow with sanitizers beside other work
run "$FWA" sweep long.yaml --jobs 3
expect 0 "point 1 of 4, lr=3e-3: stopped at"
check "not four points of 900 rows" test "$(cat runs/long/*/metrics.jsonl | wc -l)" = 3600
for point in runs/long/*/; do no_leftovers "${point#runs/}"; done
run "$FWA" train tiny.yaml run.name=long1 train.steps=900 schedule.kind=constant schedule.min_lr=0 guard.max_skips=2
same_curve long1 long/lr=3e-3

# Children that do not hear the first request are told to end by the second, all of them; an echo is none.
cat >deaf.sh <<'SH'
trap '' USR1
trap 'echo ended >>deaf.txt; exit 9' TERM
echo there >>deaf.txt
for i in $(seq 300); do sleep 0.1; done
SH
start "$FWA" sweep long.yaml run.dir=deaf --launch 'sh deaf.sh' --jobs 3
tries=0
until [ "$(grep -c there deaf.txt 2>/dev/null)" = 3 ] || [ $tries = 400 ]; do
    tries=$((tries + 1))
    sleep 0.05
done
kill -TERM "$background"
sleep 0.3
kill -TERM "$background"
sleep 2
check_not "the first request ended one" grep -q ended deaf.txt
kill -TERM "$background"
ended
expect 75
check "the second request did not end all" test "$(grep -c ended deaf.txt)" = 3

# A reader of the output that ends does not end the sweep, nor keep an evaluation from writing its file; nor does it wait
# for ever where it was started with SIGCHLD ignored.
run sh -c '"$@" 2>&1 | head -n 1' sh "$FWA" sweep four.yaml run.dir=head --jobs 2
run "$FWA" sweep four.yaml run.dir=head --list
check "points are missing where the reader ended: $(cat out)" test "$(grep -c finished out)" = 4
run sh -c '"$@" 2>&1 | head -n 1' sh "$FWA" sweep four.yaml run.dir=head --point 1 --eval '--widths 1 --examples 5'
check "no evaluation where the reader ended" test -s head/four/lr=3e-3/eval-widths=1,examples=5.json
run env --ignore-signal=CHLD "$FWA" sweep four.yaml run.dir=ignored --jobs 2
expect 0 "point 4, lr=1e-4: finished"

# SIGKILL to the sweep: all its points save and leave.
sed 's/steps: 4/steps: 100000/' four.yaml >killed.yaml
start "$FWA" sweep killed.yaml --jobs 2
wait_for_rows killed/lr=3e-3 3
wait_for_rows killed/lr=1e-3 3
kill -9 "$background"
ended
expect 137
until_there runs/killed/lr=3e-3/checkpoints/latest runs/killed/lr=1e-3/checkpoints/latest
tries=0
until [ "$("$FWA" sweep killed.yaml --list | grep -c 'stopped at')" = 2 ] || [ $tries = 100 ]; do
    tries=$((tries + 1))
    sleep 0.1
done
check "the children of a killed sweep did not leave" test $tries -lt 100

# A failure of the sweep itself ends what is under way.
mkdir -p runs/blocked/lr=3e-4.out
sed 's/4, schedule/100000, schedule/' four.yaml >blocked.yaml
run "$FWA" sweep blocked.yaml --jobs 3
expect 1 "cannot write runs/blocked/lr=3e-4.out" "2 points under way must save"
run "$FWA" sweep blocked.yaml --list
check_not "a point is left running" grep -q running out

# Two sweeps of one folder share the points.
sed 's/steps: 4/steps: 300/' four.yaml >shared.yaml
start "$FWA" sweep shared.yaml --jobs 2 --eval '--widths 1 --examples 50'
run "$FWA" sweep shared.yaml --jobs 2 --eval '--widths 1 --examples 50'
expect 0
ended
expect 0
check "points were trained twice" test "$(cat runs/shared/*/log.txt | grep -c 'run folder')" = 4
check "a point that another sweep has counts as failed" test -z "$(find runs/shared -name '*.failed')"
run "$FWA" sweep shared.yaml --list
check "not all are finished" test "$(grep -c finished out)" = 4
finish
