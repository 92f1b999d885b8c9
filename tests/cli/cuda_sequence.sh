#!/bin/sh
# parallel.sp over GPUs: sequences cut over two give the losses of whole ones for every rule, with and without
# parallel.zero, in f32 and bf16, also where pieces are shorter than the windows; a rank that stops ends both. Skips with
# fewer than two GPUs.
. "$(dirname "$0")/lib.sh"
needs_gpus 2
limit=120
token_data
shard data/long.bin 4000 4
cuda_rules >rules.txt
check "no rules found" test -s rules.txt
paste -d ' ' - - - - <rules.txt >groups.txt
# write_config RULE...: pieces.yaml, a layer for each of up to four rules, and one with a wide window.
write_config() {
    cat >pieces.yaml <<YAML
base: tiny-lm.yaml
model:
  layers: $(($# + 1))
  mixers: [$(printf '%s, ' "$@")wide]
  mixer:
$(for rule in "$@"; do echo "    $rule: {rule: $rule}"; done)
    wide: {rule: falcon3, window: 6, chunk: 4}
run: {backend: cuda}
train: {precision: f32, steps: 6, micro_batch: 2, global_batch: 4}
optimizer: {lr: 1e-4}
schedule: {min_lr: 1e-5}
YAML
}

# layouts NAME LOSS NORM ARGUMENTS...: whole sequences, pieces of them, pieces with sharded optimizer state; relative
# differences allowed of losses and of gradient norms.
layouts() {
    of=$1 loss=$2 norm=$3
    shift 3
    trained 1 "$of-whole" pieces.yaml "$@"
    trained 2 "$of-pieces" pieces.yaml parallel.sp=2 "$@"
    trained 2 "$of-zero" pieces.yaml parallel.sp=2 parallel.zero=1 "$@"
    for layout in pieces zero; do
        same_text "$of-whole" "$of-$layout" step tokens lr token_hash
        close_numbers "$of-whole" "$of-$layout" loss "$loss" 6
        close_numbers "$of-whole" "$of-$layout" grad_norm "$norm" 6
        for mean in gamma_mean eta_mean ridge_mean; do
            close_numbers "$of-whole" "$of-$layout" $mean "$norm" 6
        done
    done
}
# Long sequences run on chunk kernels: heads of 64, and pieces of several chunks, in segments of two where kernels have
# them, which hand states over in front of their pass.
export FWA_SEGMENT_CHUNKS=2
long="train.precision=bf16 data.train=data/long.bin data.val=data/long.bin model.d_model=128 model.heads=2 train.seq_len=384 train.micro_batch=1
    train.global_batch=2"
while read -r group; do
    # shellcheck disable=SC2086 # several words
    write_config $group
    layouts "${group%% *}-f32" 1e-5 1e-3
    # shellcheck disable=SC2086 # several words
    layouts "${group%% *}-long" 2e-3 3e-2 $long
done <groups.txt

rm -f rank.0 rank.1
# shellcheck disable=SC2086 # the launcher and its options
start $mpirun -np 2 sh rank.sh "$FWA" train pieces.yaml run.name=stopped parallel.sp=2 train.steps=1000000 comm.timeout_s=5
wait_for_rows stopped 3
kill -STOP "$(cat rank.1)"
since=$(date +%s)
ended
expect 4 "no answer"
check "a stopped rank kept the other for $(($(date +%s) - since)) s" test $(($(date +%s) - since)) -le 20
finish
