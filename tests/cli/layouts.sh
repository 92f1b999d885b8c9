#!/bin/sh
# Saved on four ranks with sharded moments and odd sizes, gone on with on three, two and one, and with sequences cut in
# two: what was read is what was written, bit for bit, and the next steps are those of the run that stayed, to rounding.
. "$(dirname "$0")/lib.sh"
token_data
cat >odd.yaml <<'YAML'
run: {threads: 1, backend: cpu}
model:
  layers: 2
  d_model: 22
  heads: 2
  head_dim: 11
  ffn: 29
  vocab_size: 277
  mixers: [one, many]
  mixer:
    one: {rule: falcon1}
    many: {rule: falcon3a, window: 3, chunk: 8}
task: {name: lm}
data: {train: data/train_*.bin, val: data/val.bin}
train: {steps: 8, seq_len: 16, micro_batch: 1, global_batch: 12, precision: f64}
optimizer: {lr: 3e-3}
schedule: {kind: constant, warmup: 1}
parallel: {zero: 1}
checkpoint: {every: 6}
eval: {every: 0}
log: {every: 1}
YAML
trained 4 four odd.yaml
saved=runs/four/checkpoints/step_00000006
mkdir -p runs/rest
tail -n 2 runs/four/metrics.jsonl >runs/rest/metrics.jsonl

# layout NAME RANKS ARGUMENTS...
layout() {
    name=$1 np=$2
    shift 2
    trained "$np" "$name" odd.yaml "$@" train.stop_after=6 --resume $saved
    run "$FWA" checkpoint diff $saved "runs/$name"
    expect 0
    check "$name: $(tail -n 1 out)" grep -q ' tensors are equal bit for bit, 0 differ$' out
    trained "$np" "$name" odd.yaml "$@" --resume auto
    expect 0 "at step 6"
    same_text rest "$name" step tokens token_hash
    close_numbers rest "$name" loss 1e-11 2
    close_numbers rest "$name" grad_norm 1e-9 2
    for mean in gamma_mean eta_mean ridge_mean; do close_numbers rest "$name" $mean 1e-11 2; done
    same_text rest "$name" clamp_share
    check "$name: gates of other updates" test "$(columns "runs/$name/gates.jsonl" step)" = "$(columns "runs/$name/metrics.jsonl" step)"
}
layout three 3
check "not three shards" test -s runs/three/checkpoints/step_00000006/shard.rank00002.h5
layout two 2 parallel.zero=0
layout one 1
layout pieces 2 parallel.sp=2
layout four-pieces 4 parallel.sp=2
finish
