#!/bin/sh
# parallel.sp: sequences cut into pieces over ranks give the curve of whole ones, with data ranks and sharded optimizer
# state beside them; checkpoints go from any layout to any other; a rank that stops or dies ends all.
. "$(dirname "$0")/lib.sh"
token_data

# Heads of different gates, more than one, and every kind of state: pieces of 4 tokens are shorter than the window of 6.
cat >pieces.yaml <<'YAML'
base: tiny-lm.yaml
model:
  layers: 5
  mixers: [one, many, all, wide, space]
  mixer:
    many: {rule: falcon3, window: 6, chunk: 4}
    wide: {rule: falcon2a, beta_init: 0.3}
    space: {rule: mamba2}
train: {precision: f64, micro_batch: 2, global_batch: 4}
eval: {every: 10, batches: 1}
YAML

# layout RANKS SP ZERO RUN ARGUMENTS...
layout() {
    ranks=$1 sp=$2 zero=$3 name=$4
    shift 4
    trained "$ranks" "$name" pieces.yaml parallel.sp="$sp" parallel.zero="$zero" checkpoint.every=15 "$@"
}

layout 1 1 0 whole
for layout in "2 2 0" "4 4 0" "4 4 1" "4 2 0" "4 2 1"; do
    # shellcheck disable=SC2086 # three words
    set -- $layout
    layout "$1" "$2" "$3" "ranks-$1-sp-$2-zero-$3" parallel.sp_strategy=ring
    same_text whole "ranks-$1-sp-$2-zero-$3" step tokens lr epoch token_hash
    close_numbers whole "ranks-$1-sp-$2-zero-$3" loss 1e-9 30
    close_numbers whole "ranks-$1-sp-$2-zero-$3" grad_norm 1e-7 30
    no_leftovers "ranks-$1-sp-$2-zero-$3"
done
same_curve ranks-4-sp-4-zero-0 ranks-4-sp-4-zero-1
for run in whole ranks-4-sp-4-zero-0 ranks-4-sp-2-zero-1; do
    mkdir -p "runs/$run-val" "runs/$run-rest"
    grep val_loss "runs/$run/metrics.jsonl" >"runs/$run-val/metrics.jsonl"
    tail -n 15 "runs/$run/metrics.jsonl" >"runs/$run-rest/metrics.jsonl"
done
close_numbers whole-val ranks-4-sp-4-zero-0-val val_loss 1e-9 3
close_numbers whole-val ranks-4-sp-2-zero-1-val val_loss 1e-9 3

# resumed FROM RANKS SP ZERO: the second half from a checkpoint in the middle, in another layout.
resumed() {
    name=from-$1-$2-$3-$4
    mkdir -p "runs/$name/checkpoints"
    cp -r "runs/$1/checkpoints/step_00000015" "runs/$name/checkpoints/"
    layout "$2" "$3" "$4" "$name" --resume auto
    close_numbers whole-rest "$name" loss 1e-9 15
}
resumed ranks-4-sp-4-zero-1 1 1 0
resumed ranks-4-sp-2-zero-1 2 2 1
resumed whole 4 4 0

# Fifty steps from one seed, and a few in f32, at rates at which roundings stay small.
trained 1 whole-50 pieces.yaml train.steps=50 optimizer.lr=1e-3
trained 4 pieces-50 pieces.yaml train.steps=50 optimizer.lr=1e-3 parallel.sp=4
same_text whole-50 pieces-50 step tokens lr token_hash
close_numbers whole-50 pieces-50 loss 1e-8 50
trained 1 whole-f32 pieces.yaml train.precision=f32 train.steps=5 optimizer.lr=3e-4
trained 4 pieces-f32 pieces.yaml train.precision=f32 train.steps=5 optimizer.lr=3e-4 parallel.sp=4
close_numbers whole-f32 pieces-f32 loss 1e-4 5

# One group in the ring, and as many as there are.
for groups in 1 100; do
    # shellcheck disable=SC2086 # the launcher and its options
    run env FWA_RING_GROUPS=$groups $mpirun -np 2 "$FWA" train pieces.yaml run.name="groups-$groups" parallel.sp=2 \
        train.stop_after=5
    expect 0
    head -n 5 runs/whole/metrics.jsonl >runs/whole-rest/metrics.jsonl
    close_numbers whole-rest "groups-$groups" loss 1e-10
done

# A number of groups that three heads cannot be shared out to.
trained 1 three pieces.yaml model.heads=3 train.stop_after=3
# shellcheck disable=SC2086 # the launcher and its options
run env FWA_RING_GROUPS=5 $mpirun -np 2 "$FWA" train pieces.yaml model.heads=3 run.name=three-pieces parallel.sp=2 \
    train.stop_after=3
expect 0
close_numbers three three-pieces loss 1e-10 3
close_numbers three three-pieces grad_norm 1e-8 3

# shellcheck disable=SC2086 # the launcher and its options
run env FWA_RING_GROUPS=2x $mpirun -np 2 "$FWA" train pieces.yaml run.name=refused parallel.sp=2
expect 2 "FWA_RING_GROUPS" "2x"

# The plan says how it is cut.
on 4 train pieces.yaml parallel.sp=2 --dry-run
expect 0 "2 data x 2 sequence" "sequences of 8 tokens" "64 tokens a step"

# What cannot be
train 4 refused pieces.yaml parallel.sp=4 train.seq_len=18
expect 2 "parallel.sp" "18 tokens" "4 pieces"
train 4 refused pieces.yaml parallel.sp=3
expect 2 "parallel.sp" "got 3 with 4 ranks"
train 2 refused pieces.yaml parallel.sp=2 parallel.sp_strategy=gather
expect 2 "parallel.sp_strategy" "auto or ring"
train 4 refused pieces.yaml parallel.sp=2 train.micro_batch=4
expect 2 "train.global_batch" "2 data ranks"
check_not "a refused start left a run folder" test -e runs/refused

# begin RUN: four pieces, steps without end.
begin() {
    # shellcheck disable=SC2086 # the launcher and its options
    start $mpirun -np 4 sh rank.sh "$FWA" train pieces.yaml run.name="$1" parallel.sp=4 train.steps=1000000 \
        eval.every=0 comm.timeout_s=3
    wait_for_rows "$1" 3 || finish
}
begin stopped
kill -STOP "$(cat rank.2)"
since=$(date +%s)
ended
expect 4
check "nobody says what they waited for" grep -q -e "no answer" -e "a training step took longer" err
check "a stopped rank kept the others for longer than the time-out" test $(($(date +%s) - since)) -le 13
begin killed
kill -9 "$(cat rank.1)"
since=$(date +%s)
ended
check "a rank was killed, and the run ended with code $code" test "$code" != 0
check "a killed rank kept the others" test $(($(date +%s) - since)) -le 10
finish
