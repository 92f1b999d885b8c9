#!/bin/sh
# Packed addition: the curve of one example a sequence, validation included, on one and two ranks and in pieces of a
# sequence; runs that stop and go on; scores, texts and memory of packed runs; what does not fit ends before training.
. "$(dirname "$0")/lib.sh"

cat >plain.yaml <<'YAML'
base: tiny.yaml
train: {steps: 8, micro_batch: 16, global_batch: 16, precision: f64}
eval: {every: 4}
checkpoint: {every: 4}
YAML
cat >packed.yaml <<'YAML'
base: plain.yaml
task: {examples: 16}
data: {reset_documents: true}
train: {seq_len: 62, micro_batch: 2, global_batch: 8}
YAML
trained 1 plain plain.yaml
trained 1 packed packed.yaml
check "a step has other tokens than 8 x 62" grep -q '"step":1,"tokens":496,' runs/packed/metrics.jsonl
for arguments in "1 whole train.micro_batch=8" "2 ranks" "2 sharded parallel.zero=1" "2 pieces parallel.sp=2"; do
    # shellcheck disable=SC2086 # several words
    set -- $arguments
    ranks=$1 name=$2
    shift 2
    trained "$ranks" "$name" packed.yaml "$@"
    same_text packed "$name" step tokens lr token_hash
done
for name in packed whole ranks sharded pieces; do
    close_numbers plain "$name" loss 1e-9 8
    close_numbers plain "$name" grad_norm 1e-8 8
    columns "runs/$name/metrics.jsonl" val_loss | grep '[0-9]' >"$name.val"
    check "$name: no two validations" test "$(wc -l <"$name.val")" = 2
done
columns runs/plain/metrics.jsonl val_loss | grep '[0-9]' >plain.val
# shellcheck disable=SC2016 # awk's variables, not the shell's
check "validation is of other examples: $(paste plain.val packed.val)" sh -c \
    'paste plain.val packed.val | awk "{ d = \$1 - \$2; if (d < 0) d = -d; if (d > 1e-9 * \$1) exit 1 }"'

# Stopped and resumed: the same bits. Longer: more updates are looked at. Packing is part of what a run is.
trained 1 stopped packed.yaml train.stop_after=4
trained 1 stopped packed.yaml --resume auto
same_curve packed stopped
same_parameters packed stopped 8
train 1 stopped packed.yaml --resume auto train.steps=9 task.examples=15
expect 2 "task.examples: 16 -> 15"
train 1 stopped packed.yaml --resume auto train.steps=2000 train.stop_after=9
expect 0
train 1 tight packed.yaml train.global_batch=6 train.seq_len=62 train.steps=2000
expect 2 "train.global_batch is 6" "task.examples" "update" "smallest train.global_batch"
smallest=$(sed -n 's/.*every update of this run is \([0-9]*\).*/\1/p' err | head -n 1)
check_not "left a checkpoint" test -e runs/tight/checkpoints/latest
train 1 tight packed.yaml --dry-run train.global_batch="$smallest" train.micro_batch=1 train.steps=2000
expect 0 "16 examples packed into $smallest sequences"
train 1 tight packed.yaml --dry-run train.global_batch=$((smallest - 1)) train.micro_batch=1 train.steps=2000
expect 2 "smallest train.global_batch that holds every update of this run is $smallest "
run "$FWA" train packed.yaml --print-config
check "the printed configuration lacks the key" grep -q '^ *examples: 16$' out

# A packed model is measured like any other: one example a sequence. Both runs have the same model up to rounding.
for name in plain packed; do
    run "$FWA" eval runs/$name --widths 1-3 --examples 40 --greedy
    expect 0
    cp out "$name.txt"
done
check "other scores" diff plain.txt packed.txt
run "$FWA" generate runs/packed --prompt '[1] + [2] =' --tokens 4 --temperature 0
expect 0
cp out packed-text.txt
run "$FWA" generate runs/plain --prompt '[1] + [2] =' --tokens 4 --temperature 0
check "another text" diff out packed-text.txt

cat >sweep.yaml <<'YAML'
base: packed.yaml
set: {train.steps: 2, train.precision: f32}
axes:
  model.mixer.one.rule: [falcon1, mamba2]
YAML
run "$FWA" sweep sweep.yaml
expect 0
finish
