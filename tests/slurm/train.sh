#!/bin/sh
# slurm/train.sh on two nodes: a signal saves and requeues, a lost rank too, and the curve is that of one piece.
. "$(dirname "$0")/lib.sh"
limit=180
settings="train.steps=1500 train.micro_batch=4 checkpoint.every=200 schedule.kind=constant"

# Signals to the batch script, as Slurm sends them in front of a time limit or a pre-emption, then a rank that is killed.
# shellcheck disable=SC2086 # several words
submit tiny.yaml run.name=job $settings
count=0
for signal in USR1 TERM; do
    runs_again $((count * 200 + 5)) job
    scancel --signal=$signal --batch "$job"
    count=$((count + 1))
    requeued $count
    check "the log does not say what was done" grep -q "SIG$signal: the ranks are told to save" "$log"
    check "no checkpoint of the last step" grep -q "step_$(printf %08d "$(wc -l <runs/job/metrics.jsonl)")" \
        runs/job/checkpoints/latest
done
rows=$(wc -l <runs/job/metrics.jsonl)
runs_again $((rows + 5)) job
rank=$(ps -eo pid=,args= | awk -v f="$FWA" '$2 == f && / run.name=job / { print $1; exit }')
kill -9 "$rank"
requeued 3
check "the failure is not told" grep -q 'failed with exit code .*to resume from the latest checkpoint; requeued' "$log"
ends COMPLETED 0 "saved after a signal; requeued (number 1)" "resumed from runs/job/checkpoints/step_" "start 4, 2 tasks"
# shellcheck disable=SC2086 # several words
trained 2 whole tiny.yaml $settings
same_curve whole job
same_parameters whole job 1500
no_leftovers job
check_not "failures are left in the run folder" test -e runs/job/slurm.failures

# Finished: submitted again it leaves at once, and nothing is touched.
cp -r runs/job before
# shellcheck disable=SC2086 # several words
submit tiny.yaml run.name=job $settings
ends COMPLETED 0 "runs/job is finished; nothing to do"
check "a finished run was touched" diff -r runs/job before

# What another start would not mend is not tried again.
submit tiny.yaml run.name=wrong train.micro_batch=8
ends FAILED 2 "train.global_batch" "another start would end in the same way"
submit tiny.yaml run.name=wrong optimizer.lrr=5
ends FAILED 2 "optimizer.lrr: unknown key" "not started"
submit gone.yaml
ends FAILED 2 "gone.yaml" "not started"
submit
ends FAILED 2 "usage:"
submit tiny.yaml run.name=hot train.micro_batch=4 optimizer.lr=1e30 schedule.kind=constant guard.max_skips=2
ends FAILED 3 "exit code 3: another start"
check_not "wrong jobs made run folders" test -e runs/wrong

# Bounds: no requeue left; failures in a row.
export FWA_REQUEUES=0
# shellcheck disable=SC2086 # several words
submit tiny.yaml run.name=bound $settings train.steps=100000
runs_again 5 bound
scancel --signal=USR1 --batch "$job"
ends FAILED 75 "saved after a signal; not requeued: it was 0 times, FWA_REQUEUES is 0"
export FWA_REQUEUES=9
cat >failing.sh <<'SH'
#!/bin/sh
case $* in *--print-config*) exec "$REAL_FWA" "$@" ;; esac
exit 1
SH
chmod +x failing.sh
mkdir -p runs/failing
export REAL_FWA="$FWA" FWA_FAILURES=2
FWA=$work/failing.sh
submit tiny.yaml run.name=failing train.micro_batch=4
FWA=$REAL_FWA
ends FAILED 1 "requeued (number 1)" "start 2" "not requeued: too many failures in a row"

# Ranks that MPI does not bring together: one process for the job's two tasks.
export FWA_LAUNCH="env"
submit tiny.yaml run.name=alone train.micro_batch=4
ends FAILED 2 "expected one of 2 (FWA_TASKS)"
check_not "a job of the wrong size trained" test -e runs/alone

# An mpirun that stays although its ranks have left is ended.
cat >mpirun <<'SH'
#!/bin/sh
sh -c 'exec sleep 3' &
wait
trap '' TERM
while :; do read -r line <"$STAYS"; done
SH
chmod +x mpirun
mkfifo stays
mkdir -p runs/stays
export STAYS="$work/stays" FWA_LAUNCH="$work/mpirun" FWA_LINGER=4 FWA_REQUEUES=0
submit tiny.yaml run.name=stays train.micro_batch=4
ends FAILED 137 "no ranks are left on this node, ending $work/mpirun"
finish
