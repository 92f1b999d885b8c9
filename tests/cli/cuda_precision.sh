#!/bin/sh
# bf16 learns what f32 learns on real text: 200 steps of 16 x 1024 tokens on a GPU, the small Transformer and the small
# falcon1a in four layers of width 128. The mean losses of the last 20 steps lie within 0.02 nats.
# FWA_DATA_DIR names a folder with token shards train_*.bin; skips without it, or without a GPU. Both models run at once,
# on two GPUs where there are two.
. "$(dirname "$0")/lib.sh"
configs=${FWA_SOURCE_DIR:?names the sources}/configs/lm
if [ -z "${FWA_DATA_DIR:-}" ]; then
    echo "FWA_DATA_DIR names no folder with token shards"
    exit 77
fi
needs_gpus 1
limit=240

# mean RUN: of the losses of the last 20 steps.
mean() {
    columns "runs/$1/metrics.jsonl" loss | tail -n 20 | awk '{ sum += $1 } END { printf "%.4f", sum / NR }'
}

# compare MODEL: both precisions, in a folder of its own.
compare() {
    mkdir "$1" && cd "$1" || exit 1
    for precision in f32 bf16; do
        train 1 $precision "$configs/$1.yaml" run.backend=cuda train.precision=$precision \
            data.train="$FWA_DATA_DIR/train_*.bin" data.val='""' eval.every=0 checkpoint.every=0 \
            model.layers=4 model.d_model=128 model.heads=2 model.head_dim=64 model.ffn=344 train.steps=200 train.micro_batch=16 \
            train.global_batch=16 optimizer.lr=5e-4 schedule.warmup=20 log.every=1
        expect 0 || finish
        awk -F'"ms":' -v run="$1, $precision" '{ ms += $2 + 0 } END { printf "%s: %.1f ms a step\n", run, ms / NR }' \
            "runs/$precision/metrics.jsonl"
    done
    same_text f32 bf16 step token_hash
    f32=$(mean f32) bf16=$(mean bf16)
    echo "$1: mean loss of steps 181 to 200: f32 $f32, bf16 $bf16"
    # shellcheck disable=SC2016 # awk's variables
    check "$1: f32 $f32 and bf16 $bf16 are further apart than 0.02, or learned nothing" \
        awk -v a="$f32" -v b="$bf16" 'BEGIN { d = a - b; exit !(d <= 0.02 && d >= -0.02 && a < 8 && a > 0) }'
    finish
}

(compare transformer) >transformer.txt 2>&1 &
one=$!
(
    [ "$usable" -lt 2 ] || [ -n "${CUDA_VISIBLE_DEVICES:-}" ] || export CUDA_VISIBLE_DEVICES=1
    compare falcon1a
) >falcon1a.txt 2>&1 &
other=$!
wait $one || note_failure "transformer"
wait $other || note_failure "falcon1a"
cat transformer.txt falcon1a.txt
finish
