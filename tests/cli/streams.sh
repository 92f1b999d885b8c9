#!/bin/sh
# What becomes of the output while a run trains: a reader that ends or does not read, streams that are closed, a limit on
# the size of files, a process or a launcher that is stopped for a while. Training goes on, or saves and says why not.
. "$(dirname "$0")/lib.sh"
settings="train.steps=1000000 train.micro_batch=4"

# saved_at_end RUN: left with 75 and a checkpoint of the last row's step.
saved_at_end() {
    expect 75 || return
    rows=$(wc -l <"runs/$1/metrics.jsonl")
    check "$1: the checkpoint is not of step $rows" grep -q "step_$(printf %08d "$rows")" "runs/$1/checkpoints/latest"
    check_not "$1: something else among the rows" grep -v '^{.*}$' "runs/$1/metrics.jsonl"
    run "$FWA" checkpoint verify "runs/$1"
    expect 0
    no_leftovers "$1"
}

# more_rows RUN COUNT: it trains that much further.
more_rows() {
    wait_for_rows "$1" $(($(wc -l <"runs/$1/metrics.jsonl") + $2))
}

# The reader of both streams ends, as of `| head`, or tee that is killed.
# shellcheck disable=SC2016 # the inner shell's variables
start sh -c 'echo $$ >reader.pid; exec "$@" 2>&1 | head -n 3' sh sh -c 'echo $$ >pid.run; exec "$@"' sh \
    "$FWA" train tiny.yaml run.name=head train.steps=1000000 train.micro_batch=4
wait_for_rows head 3 && more_rows head 50
kill -TERM "$(cat pid.run)"
ended
gone_within 20 "$(cat pid.run)"
code=75
what="a run whose reader ended"
saved_at_end head

# No streams at all: files take their numbers, and no line for people may land in them.
# shellcheck disable=SC2016,SC2086 # the inner shell's variables; several words
start sh -c 'exec "$@" <&- >&- 2>&-' sh "$FWA" train tiny.yaml run.name=closed $settings checkpoint.every=5
wait_for_rows closed 20
kill -TERM "$background"
ended
saved_at_end closed
check "something in the lock file" test ! -s runs/closed/lock
# shellcheck disable=SC2016
run sh -c '"$1" info >&-' sh "$FWA"
expect 1 "cannot write to standard output"

# Standard error that nobody reads: lines are left out there, and the log has them all.
mkfifo full
# shellcheck disable=SC2016,SC2086 # the inner shell's variables; several words
start sh -c 'exec "$@" 2>full' sh "$FWA" train tiny.yaml run.name=unread $settings &
exec 3<full
until [ -s pid ]; do sleep 0.05; done
background=$(cat pid)
wait_for_rows unread 1500
cat <&3 >unread.txt &
more_rows unread 300
kill -TERM "$background"
ended
wait
exec 3<&-
saved_at_end unread
check "left-out lines are not counted: $(grep -c . unread.txt)" grep -q 'lines not shown here' unread.txt
check "the log lacks steps" test "$(grep -c 'step  *[0-9]*/' runs/unread/log.txt)" = "$(wc -l <runs/unread/metrics.jsonl)"

# Stopped for longer than the time-out, alone (Ctrl-Z) and as two ranks.
# shellcheck disable=SC2086 # several words
start "$FWA" train tiny.yaml run.name=stopped $settings comm.timeout_s=2 comm.first_timeout_s=2
wait_for_rows stopped 3
kill -STOP "$background"
sleep 2.6
kill -CONT "$background"
more_rows stopped 20
kill -TERM "$background"
ended
saved_at_end stopped
start_pair pair comm.timeout_s=2 comm.first_timeout_s=2
wait_for_rows pair 3
kill -STOP "$(cat rank.0)" "$(cat rank.1)"
sleep 2.6
kill -CONT "$(cat rank.0)" "$(cat rank.1)"
more_rows pair 20
kill -USR1 "$(cat rank.0)"
ended
saved_at_end pair

# Files that may not grow beyond a limit: no shard fits; then a row of metrics does not, and what it stands for is saved.
limited() {
    # shellcheck disable=SC2016 # the inner shell's variables
    run sh -c 'ulimit -f "$1"; shift; exec "$@"' sh "$@"
}
limited 100 "$FWA" train tiny.yaml run.name=small train.steps=3
expect 1 "runs/small/checkpoints" "File too large"
check_not "half of a checkpoint is left" sh -c 'find runs/small/checkpoints -name "*step*" | grep .'
for file in metrics gates; do
    # shellcheck disable=SC2086 # several words
    trained 1 "grown-$file" tiny.yaml $settings train.stop_after=3
    rows=runs/grown-$file/$file.jsonl
    row=$(tail -n 1 "$rows")
    yes "$(echo "$row" | sed 's/"step":3/"step":2/')" | head -n 10000 | cat - "$rows" >long
    mv long "$rows"
    size=$(($(wc -c <"$rows") / 512 + 2))
    # shellcheck disable=SC2086 # several words
    limited $size "$FWA" train tiny.yaml run.name="grown-$file" $settings --resume auto
    expect 1 "$file.jsonl" "saved at step" "continue with --resume auto"
    last=$(sed 's/^step_0*//' "runs/grown-$file/checkpoints/latest")
    check "nothing was saved where a row did not fit" test "$last" -gt 3
    run "$FWA" checkpoint verify "runs/grown-$file"
    expect 0
    # shellcheck disable=SC2086 # several words
    trained 1 "grown-$file" tiny.yaml $settings train.stop_after=$((last + 2)) --resume auto
    check "$file: rows behind the one that did not fit are missing" \
        test "$(tail -n 2 "$rows" | columns - step | tr '\n' ' ')" = "$((last + 1)) $((last + 2)) "
done

# Checkpoints on a disk that is not there: no fresh start over what the run has.
# shellcheck disable=SC2086 # several words
trained 1 away tiny.yaml $settings train.stop_after=3
mv runs/away/checkpoints elsewhere
ln -s "$work/not-mounted" runs/away/checkpoints
cp runs/away/metrics.jsonl before
for ranks in 1 2; do
    # shellcheck disable=SC2086 # several words
    train $ranks away tiny.yaml $settings train.stop_after=5 --resume auto
    expect 1 "runs/away/checkpoints is a link that leads nowhere"
    check "the rows are gone" cmp before runs/away/metrics.jsonl
done
mv elsewhere not-mounted
# shellcheck disable=SC2086 # several words
trained 1 away tiny.yaml $settings train.stop_after=5 --resume auto
expect 0 "at step 3"
finish
