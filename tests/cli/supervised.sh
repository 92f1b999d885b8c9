#!/bin/sh
# slurm/train.sh without Slurm, from a terminal: Ctrl-C and the end of the terminal, which reach all processes that it runs,
# save; Ctrl-C again ends the ranks.
. "$(dirname "$0")/lib.sh"
command -v setsid >/dev/null && command -v ps >/dev/null || exit 77
script=${FWA_SOURCE_DIR:-$(dirname "$0")/../..}/slurm/train.sh
export SLURM_NTASKS=2 FWA FWA_LAUNCH="${FWA_MPIRUN:-mpirun --allow-run-as-root --oversubscribe}"
export ASAN_OPTIONS="$ASAN_OPTIONS:detect_leaks=0"
unset SLURM_JOB_ID

# supervised RUN: a session of its own, like a terminal's, with the actions for signals that it has there.
supervised() {
    start setsid env --default-signal=INT,HUP "$script" tiny.yaml run.name="$1" train.steps=100000 train.micro_batch=4
    wait_for_rows "$1" 5
}

for signal in INT HUP; do
    supervised $signal
    env kill -s $signal -- -"$background"
    ended
    expect 75 "SIG$signal: the ranks are told to save" "start again to continue"
    check "the checkpoint is not of the last step" grep -q "step_$(printf %08d "$(wc -l <runs/$signal/metrics.jsonl)")" \
        runs/$signal/checkpoints/latest
    no_leftovers $signal
done

# Ctrl-C ends tee first; the script lives to tell the ranks.
# shellcheck disable=SC2016 # the inner shell's variables
start setsid env --default-signal=INT,HUP,PIPE sh -c '(trap : INT; "$@"; echo $? >script.txt) 2>&1 | tee log.txt' sh \
    "$script" tiny.yaml run.name=tee train.steps=100000 train.micro_batch=4
wait_for_rows tee 5
env kill -s INT -- -"$background"
ended
tries=0
until [ -s script.txt ] || [ $tries -gt $((limit * 20)) ]; do
    tries=$((tries + 1))
    sleep 0.05
done
check "the script ended by SIGPIPE, before the ranks" test "$(cat script.txt)" != 141
check "tee: the checkpoint is not of the last step" grep -q "step_$(printf %08d "$(wc -l <runs/tee/metrics.jsonl)")" \
    runs/tee/checkpoints/latest

# Stopped ranks cannot save.
supervised again
ranks=$(ps -eo pid=,args= | awk -v f="$FWA" '$2 == f && / run.name=again / { print $1 }')
check "not two ranks: $ranks" test "$(echo "$ranks" | wc -l)" = 2
# shellcheck disable=SC2086 # several processes
kill -STOP $ranks
env kill -s INT -- -"$background"
sleep 2.2
env kill -s INT -- -"$background"
ended
check "the run ended with code $code" test "$code" != 75
expect "$code" "SIGINT again: ending"
for rank in $ranks; do check "rank $rank is left" gone_within 10 "$rank"; done
finish
