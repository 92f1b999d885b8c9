#!/bin/sh
# Every rule learns with its quick kernels what it learns with the general ones: 500 steps of 8 x 256 tokens of real text
# in bf16 on a GPU, its small configuration in three layers of width 384 with heads of 128. No loss or norm is ever not
# finite, and the mean losses of every 100 steps lie within 0.03 nats of the other run's, of the last
# 100 within 0.02. What other random weights and another order of the text make of the last 100 is printed beside them.
# FWA_DATA_DIR names a folder with token shards train_*.bin; skips without it, or without a GPU. FWA_TEST_JOBS: rules at
# once; FWA_TEST_RULES: which ones, of all. A rule that has no quick kernels here runs once.
. "$(dirname "$0")/lib.sh"
configs=${FWA_SOURCE_DIR:?names the sources}/configs/lm
if [ -z "${FWA_DATA_DIR:-}" ]; then
    echo "FWA_DATA_DIR names no folder with token shards"
    exit 77
fi
needs_gpus 1
limit=240

# learn RUN RULE SEED: one run, with what the environment asks for.
learn() {
    shape="model.heads=3 model.head_dim=128"
    [ "$2" = mamba2 ] && shape="model.heads=12 model.head_dim=64"
    # shellcheck disable=SC2086 # two words
    train 1 "$1" "$configs/$2.yaml" run.backend=cuda run.seed="$3" data.train="$FWA_DATA_DIR/train_*.bin" data.val='""' \
        eval.every=0 checkpoint.every=0 model.layers=3 model.d_model=384 $shape model.ffn=1024 train.steps=500 \
        train.seq_len=256 train.micro_batch=8 train.global_batch=8 optimizer.lr=5e-4 schedule.warmup=50 guard.spike_factor=0 \
        log.every=1
    expect 0 || finish
    columns "runs/$1/metrics.jsonl" loss grad_norm skipped >numbers.txt
    # shellcheck disable=SC2016 # awk's variables
    check "$2, $1: 500 rows of finite numbers, no step skipped" \
        awk '$1 !~ /^[0-9.e+-]+$/ || $2 !~ /^[0-9.e+-]+$/ || $3 != 0 { print NR ": " $0; bad = 1 } END { exit bad || NR != 500 }' \
        numbers.txt
    rm -rf "runs/$1/checkpoints"
    awk '{ sum += $1 } NR % 100 == 0 { printf "%.4f\n", sum / 100; sum = 0 }' numbers.txt >"$1.txt"
    echo "$2 $1 $(tr '\n' ' ' <"$1.txt")"
}

# compare RULE: both kinds of kernels, in a folder of its own.
compare() {
    mkdir "$1" && cd "$1" || exit 1
    learn quick "$1" 1
    if grep -q "general recurrent kernel" runs/quick/log.txt; then
        echo "$1: general kernel alone"
        finish
    fi
    learn seed "$1" 2
    FWA_MIXER=general FWA_ATTENTION=general
    export FWA_MIXER FWA_ATTENTION
    learn general "$1" 1
    check "$1: FWA_MIXER did not leave the general kernel" grep -q "general" runs/general/log.txt
    same_text quick general step token_hash
    # shellcheck disable=SC2016 # awk's variables
    paste quick.txt general.txt seed.txt | awk -v rule="$1" '
        function apart(a, b) { return a < b ? b - a : a - b }
        { last = apart($1, $2); seed = apart($1, $3); if (last > most) most = last }
        END { printf "%s: last 100 steps %s, general %s, %.4f apart; means of 100 steps at most %.4f, of another seed %.4f\n",
                  rule, $1, $2, last, most, seed
              exit !(NR == 5 && last <= 0.02 && most <= 0.03 && $2 < 8 && $2 > 0) }' || note_failure "$1: the curves differ"
    finish
}

running=
rules=$(cuda_rules | sed 's/^softmax$/transformer/')

ended() {
    for one in $running; do
        wait "${one#*=}" || note_failure "${one%=*}"
        cat "${one%=*}.txt"
    done
    running=
}

for rule in ${FWA_TEST_RULES:-$rules}; do
    (compare "$rule") >"$rule.txt" 2>&1 &
    running="$running $rule=$!"
    [ "$(echo "$running" | wc -w)" -lt "${FWA_TEST_JOBS:-4}" ] || ended
done
ended
finish
