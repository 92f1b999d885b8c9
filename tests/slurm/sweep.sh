#!/bin/sh
# slurm/sweep.sh: four points of which one fails, as an array of jobs, and the table at the end.
. "$(dirname "$0")/lib.sh"
cat >four.yaml <<'YAML'
base: tiny.yaml
set: {train.steps: 60, train.micro_batch: 4, schedule.kind: constant, schedule.min_lr: 0, guard.max_skips: 2}
axes:
  optimizer.lr: [3e-3, 1e-3, 3e-4, 1e30]
YAML
export FWA_AT_ONCE=2
run "$slurm/sweep.sh" --nodes=2 --gpus-per-node=0 -- four.yaml
expect 0 || finish
check "four points in an array" grep -q '^4 points: job array [0-9]*, at most 2 at once' out
table=$(sed -n 's/^table at the end: job //p' out)
most=0
be_patient
until [ "$(job_field "$table" JobState)" = COMPLETED ] || too_late; do
    at_once=$(squeue -h -t R -n fwa-sweep -r -o %i | wc -l)
    [ "$at_once" -le "$most" ] || most=$at_once
    sleep 0.5
done
check "no table at the end: $(squeue)" test "$(job_field "$table" JobState)" = COMPLETED
check "more than two points at once" test "$most" -le 2
result=fwa-table-$table.log
check "three of four points" grep -q 'sweep four: 3 of 4 points finished in runs/four' "$result"
check "the point that fails is not told" grep -q 'failed (3): runs/four/lr=1e30' "$result"
check "the CSV" grep -q '^4,lr=1e30,1e30,,failed,3,' runs/four/results.csv
check "the point's log" grep -q 'exit code 3: another start would end in the same way' fwa-sweep-*_4.log
for point in 1 2 3; do
    rate=$(echo 3e-3 1e-3 3e-4 | cut -d' ' -f$point)
    trained 2 "whole$point" tiny.yaml train.steps=60 train.micro_batch=4 schedule.kind=constant schedule.min_lr=0 \
        guard.max_skips=2 optimizer.lr="$rate"
    same_curve "whole$point" "four/lr=$rate"
done

# Mistakes are told before anything is submitted.
sed 's/3e-4/many/' four.yaml >wrong.yaml
run "$slurm/sweep.sh" --gpus-per-node=0 -- wrong.yaml
expect 2 "wrong.yaml:4: optimizer.lr: got many"
run "$slurm/sweep.sh"
expect 2 "usage:"
check "a wrong sweep was submitted" test -z "$(squeue -h)"
finish
