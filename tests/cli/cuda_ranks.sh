#!/bin/sh
# Ranks on GPUs over NCCL: two give the losses of one, with and without parallel.zero; checkpoints go from one layout to
# the other; a rank that dies or stands still ends the job; more ranks than GPUs are refused. Skips without a GPU; with
# one alone only the refusal is tested.
. "$(dirname "$0")/lib.sh"
needs_gpus 1
limit=120
settings="run.backend=cuda train.steps=10 train.micro_batch=4 optimizer.lr=1e-4 schedule.min_lr=1e-5"

# shellcheck disable=SC2086 # several words
train $((usable + 1)) crowd tiny.yaml $settings train.micro_batch=1 train.global_batch=$((usable + 1))
expect 2 "ranks and $usable visible GPU" "start fewer ranks"
check_not "a refused run left a folder" test -d runs/crowd
[ "$usable" -ge 2 ] || finish

# layout RANKS ZERO RUN ARGUMENTS...
layout() {
    ranks=$1 zero=$2 name=$3
    shift 3
    # shellcheck disable=SC2086 # several words
    trained "$ranks" "$name" tiny.yaml $settings parallel.zero="$zero" "$@"
}
# same RUN: the data of one rank, and its losses.
same() {
    same_text one "$1" step tokens lr token_hash
    close_numbers one "$1" loss 1e-5 10
    close_numbers one "$1" grad_norm 1e-4 10
}
layout 1 0 one checkpoint.every=5
layout 2 0 two checkpoint.every=5
layout 2 1 zero checkpoint.every=5
same two
same zero

# moved FROM RANKS ZERO: steps 6 to 10 from the fifth of a run, in another layout.
moved() {
    name=from-$1-$2-$3
    mkdir -p "runs/$name/checkpoints" "runs/$name-rest"
    cp -r "runs/$1/checkpoints/step_00000005" "runs/$name/checkpoints/"
    layout "$2" "$3" "$name" --resume auto
    tail -n 5 runs/one/metrics.jsonl >"runs/$name-rest/metrics.jsonl"
    same_text "$name-rest" "$name" step tokens token_hash
    close_numbers "$name-rest" "$name" loss 1e-5 5
}
moved two 1 0
moved zero 1 0
moved one 2 1

# bf16 has masters apart from values: ranks that update pieces send values.
layout 2 0 half train.precision=bf16
layout 2 1 half-zero train.precision=bf16
same_text half half-zero step tokens lr token_hash
close_numbers half half-zero loss 1e-3 10

# lost SIGNAL CODE: rank 1 gets the signal in the middle of a long run; all ranks are gone soon, with that code.
lost() {
    rm -f rank.0 rank.1
    # shellcheck disable=SC2086 # several words
    start $mpirun -np 2 sh rank.sh "$FWA" train tiny.yaml run.name="lost-$1" $settings train.steps=1000000 \
        comm.timeout_s=5
    wait_for_rows "lost-$1" 20
    began=$(date +%s)
    kill "-$1" "$(cat rank.1)"
    ended
    expect "$2"
    check "rank 1 got $1, and the job went on for $(($(date +%s) - began)) s" test $(($(date +%s) - began)) -le 20
    for rank in 0 1; do
        check "rank $rank still runs 10 s after rank 1 got $1" gone_within 10 "$(cat rank.$rank)"
    done
}
lost KILL 137
lost STOP 4
finish
