#!/bin/sh
# Training on a GPU beside the CPU: the same first steps in f32 for every rule, bf16 close to it, checkpoints that cross
# over in both directions. Skips without a usable GPU.
. "$(dirname "$0")/lib.sh"
needs_gpus 1
limit=200

# both RULE SETTINGS...: five steps of one rule on both backends. The rate is small: Adam's first updates go by the sign of
# a gradient, so that where it is nearly zero rounding decides, and large steps of a rule without norms part the runs.
both() {
    rule=$1
    shift
    for backend in cpu cuda; do
        train 1 "$rule-$backend" tiny.yaml model.mixers="[one]" model.mixer.one="{rule: $rule}" train.steps=5 \
            optimizer.lr=1e-4 schedule.min_lr=1e-5 run.backend=$backend "$@"
        expect 0
    done
    close_numbers "$rule-cpu" "$rule-cuda" loss 1e-4
    close_numbers "$rule-cpu" "$rule-cuda" grad_norm 1e-4 1
    close_numbers "$rule-cpu" "$rule-cuda" grad_norm 1e-3
    same_text "$rule-cpu" "$rule-cuda" token_hash
}
cuda_rules >rules.txt
check "no rules found" test -s rules.txt
while read -r rule; do both "$rule"; done <rules.txt

# bf16 learns like f32: the mean of the last losses.
for precision in f32 bf16; do
    train 1 long-$precision tiny.yaml run.backend=cuda train.precision=$precision train.steps=200 log.every=1
    expect 0
    columns "runs/long-$precision/metrics.jsonl" loss | tail -n 20 | awk '{ sum += $1 } END { print sum / NR }' >mean-$precision.txt
done
# shellcheck disable=SC2016 # awk's variables
check "bf16 and f32 end apart: $(cat mean-f32.txt mean-bf16.txt)" awk 'NR == FNR { a = $1; next }
    { d = a - $1; if (d < 0) d = -d; exit !(d <= 0.05 && $1 < 2) }' mean-f32.txt mean-bf16.txt

# Checkpoints cross over: CPU -> GPU -> CPU ends where the CPU alone does, within rounding.
train 1 alone tiny.yaml train.steps=9 schedule.warmup=1
expect 0
train 1 crossed tiny.yaml train.steps=9 train.stop_after=3
expect 0
train 1 crossed tiny.yaml train.steps=9 train.stop_after=6 run.backend=cuda --resume auto
expect 0
train 1 crossed tiny.yaml train.steps=9 --resume auto
expect 0
close_numbers alone crossed loss 1e-4

finish
