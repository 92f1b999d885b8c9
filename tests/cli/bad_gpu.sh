#!/bin/sh
# Devices that cannot do what a run asks for: refused before training, with an exit code and a reason, and never by
# going on with another backend. Part of it runs anywhere, part with a GPU, part without one; what cannot run is said.
. "$(dirname "$0")/lib.sh"

# refused CODE ARGUMENTS TEXT...: with the tiny model; nothing is written, and nothing else is tried.
refused() {
    code_wanted=$1 arguments=$2
    shift 2
    # shellcheck disable=SC2086 # several words
    train 1 refused tiny.yaml $arguments
    expect "$code_wanted" "$@"
    check_not "$what: left a run folder" test -e runs
    rm -rf runs
}
run "$FWA" info
cp out info.txt
gpus=$(awk '/^  cuda / { on = 1; next } /^[A-Z]/ { on = 0 } on && /^ +device [0-9]/ { n++ } END { print n + 0 }' info.txt)

# Memory that no machine has: which classes want it, what there is, which key to change. A plan alone needs none.
huge="train.micro_batch=1048576 train.global_batch=1048576 model.layers=256 model.d_model=65536"
refused 2 "$huge" "train.micro_batch" "PB of memory" "parameters" "gradients" "moments" "activations" "scratch" \
    "the host has" "lower train.micro_batch from 1048576"
# shellcheck disable=SC2086 # several words
train 1 plan tiny.yaml $huge --dry-run
expect 0 "PB a rank"
train 2 refused tiny.yaml train.micro_batch=524288 train.global_batch=1048576 model.layers=256 model.d_model=65536
expect 2 "train.micro_batch" "for all its ranks"
check "the message comes more than once" test "$(grep -c 'PB of memory' err)" = 1

# Types that a backend does not compute in.
refused 2 "train.precision=bf16" "train.precision" "bf16 needs the cuda backend" "train.precision=f32"

if [ "$gpus" = 0 ]; then
    echo "no usable GPU: refusals of memory, types and crowded GPUs are left out"
    # What `fwa info` gives as the reason is what a run is refused with.
    reason=$(awk '/^  cuda / { on = 1 } on' info.txt | sed -n 's/^ *not usable: //p' | head -n 1)
    check "fwa info gives no reason: $(cat info.txt)" test -n "$reason"
    refused 2 "run.backend=cuda" "$reason" "run.backend: cpu"
    train 1 auto tiny.yaml run.backend=auto train.steps=1
    expect 0 "backend cpu"
    if grep -q "CUDA: on" info.txt; then expect 0 "run.backend auto takes the cpu: $reason"; fi
    rm -rf runs
    refused 2 "run.backend=cuda train.precision=bf16" "run.backend: cpu"
    finish
fi

cuda="run.backend=cuda"
refused 2 "$cuda train.precision=f64" "train.precision" "f64 runs on the cpu backend" "bf16 or f32"
refused 2 "$cuda $huge" "train.micro_batch" "PB of memory" "the GPU has" "lower train.micro_batch from 1048576"
refused 2 "$cuda train.micro_batch=1 train.global_batch=1 model.layers=256 model.d_model=131072" \
    "model.d_model" "the GPU has" "choose a smaller model" "parallel.zero=1"
refused 2 "$cuda model.head_dim=1026" "K = 1026" "at most 1024" "model.head_dim" "run.backend: cpu"

# No device is visible, though there is one.
export CUDA_VISIBLE_DEVICES=
refused 2 "$cuda" "no CUDA device is visible" "CUDA_VISIBLE_DEVICES"
train 1 auto tiny.yaml run.backend=auto train.steps=1
expect 0 "run.backend auto takes the cpu: no CUDA device is visible" "backend cpu"
unset CUDA_VISIBLE_DEVICES
rm -rf runs

# One device that two ranks both take for their own.
export CUDA_VISIBLE_DEVICES=0
train 2 crowd tiny.yaml $cuda train.micro_batch=4
expect 2 "GPU"
check_not "$what: left a run folder" test -e runs
unset CUDA_VISIBLE_DEVICES

finish
