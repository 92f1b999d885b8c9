#!/bin/sh
# Equal bits on GPUs. Without measuring (debug.deterministic) two runs are the same, and an interrupted one; where
# algorithms of products are measured, a run that is continued is, because it takes over what was measured: from its
# checkpoint, on every rank. With two GPUs, on two ranks too. Skips without a GPU.
. "$(dirname "$0")/lib.sh"
needs_gpus 1
limit=120
settings="run.backend=cuda train.steps=12 train.micro_batch=4 train.global_batch=16"

# whole RANKS RUN ARGUMENTS...
whole() {
    np=$1 run=$2
    shift 2
    # shellcheck disable=SC2086 # several words
    trained "$np" "$run" tiny.yaml $settings "$@"
}
# same RUN RUN: curve and parameters.
same() {
    same_curve "$1" "$2"
    same_parameters "$1" "$2" 12
}

# deterministic RANKS NAME ARGUMENTS...
deterministic() {
    count=$1 label=$2
    shift 2
    for which in one two; do whole "$count" "$label-$which" debug.deterministic=true eval.every=5 "$@"; done
    same "$label-one" "$label-two"
    whole "$count" "$label-cut" debug.deterministic=true eval.every=5 "$@" train.stop_after=5
    whole "$count" "$label-cut" debug.deterministic=true eval.every=5 "$@" --resume auto
    same "$label-one" "$label-cut"
    check_not "$label: something was measured" test -e "runs/$label-one/gemm_algos.json"
}

# measured RANKS NAME ARGUMENTS...: straight on, and again from its sixth step with what the checkpoint says.
measured() {
    count=$1 label=$2
    shift 2
    whole "$count" "$label" eval.every=5 checkpoint.every=6 "$@"
    check "$label: nothing was kept" grep -q '"operator": *"gemm"' "runs/$label/gemm_algos.json"
    mkdir -p "runs/$label-rest/checkpoints"
    cp -r "runs/$label/checkpoints/step_00000006" "runs/$label-rest/checkpoints/"
    head -n 6 "runs/$label/metrics.jsonl" >"runs/$label-rest/metrics.jsonl"
    whole "$count" "$label-rest" eval.every=5 checkpoint.every=6 "$@" --resume auto
    expect 0 "measured algorithms taken over from runs/$label-rest/checkpoints/step_00000006"
    check_not "$label: measured again: $(cat err)" grep -q "measured again" err
    same "$label" "$label-rest"
    check "$label: the choices differ" diff "runs/$label/gemm_algos.json" "runs/$label-rest/gemm_algos.json"
}

for precision in f32 bf16; do
    deterministic 1 fixed-$precision train.precision=$precision
    measured 1 measured-$precision train.precision=$precision
done

# Choices of another GPU are passed over, and a file that is none costs a warning.
mkdir -p runs/foreign runs/damaged
sed 's/"device": *"/&Another /' runs/measured-bf16/gemm_algos.json >runs/foreign/gemm_algos.json
echo "{" >runs/damaged/gemm_algos.json
whole 1 foreign train.precision=bf16
expect 0 "runs/foreign/gemm_algos.json are of another GPU" "measured again"
check_not "the file still names another GPU" grep -q Another runs/foreign/gemm_algos.json
whole 1 damaged train.precision=bf16
expect 0 "runs/damaged/gemm_algos.json" "measured again"
check "the file was not replaced" grep -q '"operator": *"gemm"' runs/damaged/gemm_algos.json

[ "$usable" -ge 2 ] || finish
deterministic 2 fixed-2 train.precision=bf16 parallel.zero=1
NCCL_ALGO=Ring NCCL_PROTO=Simple measured 2 measured-2 train.precision=bf16
finish
