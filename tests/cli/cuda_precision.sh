#!/bin/sh
# bf16 learns what f32 learns on real text: 200 steps of 16 x 1024 tokens on a GPU, the small Transformer and the small
# falcon1a in four layers of width 384. The mean losses of the last 20 steps lie within 0.02 nats.
# FWA_DATA_DIR names a folder with token shards train_*.bin; skips without it, or without a GPU.
. "$(dirname "$0")/lib.sh"
configs=${FWA_SOURCE_DIR:?names the sources}/configs/lm
if [ -z "${FWA_DATA_DIR:-}" ]; then
    echo "FWA_DATA_DIR names no folder with token shards"
    exit 77
fi
needs_gpus 1
limit=200

# mean RUN: of the losses of the last 20 steps.
mean() {
    columns "runs/$1/metrics.jsonl" loss | tail -n 20 | awk '{ sum += $1 } END { printf "%.4f", sum / NR }'
}

for model in transformer falcon1a; do
    for precision in f32 bf16; do
        train 1 "$model-$precision" "$configs/$model.yaml" run.backend=cuda train.precision=$precision \
            data.train="$FWA_DATA_DIR/train_*.bin" data.val='""' eval.every=0 checkpoint.every=0 \
            model.layers=4 model.d_model=384 model.heads=3 model.ffn=1024 train.steps=200 train.micro_batch=16 \
            train.global_batch=16 schedule.warmup=20 log.every=1
        expect 0 || finish
        awk -F'"ms":' -v run="$model-$precision" '{ ms += $2 + 0 } END { printf "%s: %.1f ms a step\n", run, ms / NR }' \
            "runs/$model-$precision/metrics.jsonl"
        rm -r "runs/$model-$precision/checkpoints"
    done
    same_text "$model-f32" "$model-bf16" step token_hash
    f32=$(mean "$model-f32") bf16=$(mean "$model-bf16")
    echo "$model: mean loss of steps 181 to 200: f32 $f32, bf16 $bf16"
    # shellcheck disable=SC2016 # awk's variables
    check "$model: f32 $f32 and bf16 $bf16 are further apart than 0.02, or learned nothing" \
        awk -v a="$f32" -v b="$bf16" 'BEGIN { d = a - b; exit !(d <= 0.02 && d >= -0.02 && a < 8 && a > 0) }'
done
finish
