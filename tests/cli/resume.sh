#!/bin/sh
# Ten steps at once and in three parts are the same run, bit for bit: addition and token shards, across an epoch's end.
. "$(dirname "$0")/lib.sh"
token_data

# in_parts RANKS RUN CONFIGURATION ARGUMENTS...: 4 + 3 + 3 steps
in_parts() {
    ranks=$1 name=$2 configuration=$3
    shift 3
    trained "$ranks" "$name" "$configuration" "$@" train.stop_after=4
    expect 0 "saved checkpoint at step 4"
    check_not "run $name is called finished after 4 steps" test -e "runs/$name/FINISHED"
    trained "$ranks" "$name" "$configuration" "$@" train.stop_after=7 --resume auto
    expect 0 "at step 4" "saved checkpoint at step 7"
    trained "$ranks" "$name" "$configuration" "$@" --resume auto
    expect 0 "at step 7" "saved checkpoint at step 10"
    check "run $name is not called finished" test -e "runs/$name/FINISHED"
    no_leftovers "$name"
}

for ranks in 1 2; do
    for task in tiny tiny-lm; do
        settings="train.steps=10 eval.every=5 train.micro_batch=2"
        # shellcheck disable=SC2086 # several words
        trained $ranks "$task-$ranks" $task.yaml $settings
        # shellcheck disable=SC2086 # several words
        in_parts $ranks "$task-parts-$ranks" $task.yaml $settings
        check "run $task-$ranks does not have 10 rows" test "$(wc -l <"runs/$task-$ranks/metrics.jsonl")" = 10
        check "run $task-$ranks was not validated twice" test "$(grep -c val_loss "runs/$task-$ranks/metrics.jsonl")" = 2
        same_curve "$task-$ranks" "$task-parts-$ranks"
        same_parameters "$task-$ranks" "$task-parts-$ranks" 10
    done
    # 26 sequences, 8 a step: the epoch that a step begins in
    check "other epochs" test "$(columns "runs/tiny-lm-$ranks/metrics.jsonl" epoch | tr -d '\n')" = 0000111222
done

# A run that is finished stays as it is: settings that would define another are said, others are not.
# said COUNT: lines on standard error
said() {
    check "$what: $(cat err)" test "$(wc -l <err)" = "$1"
}
trained 1 tiny-1 tiny.yaml train.steps=10 log.every=5 train.micro_batch=4 --resume auto
said 1
trained 2 tiny-1 tiny.yaml train.steps=9 optimizer.lr=4e-3 train.micro_batch=4 --resume auto
expect 0 "no effect" "train.steps: 10 -> 9" "optimizer.lr: 0.003 -> 0.004" "runs/tiny-1 is finished; nothing to do"
said 4
cp runs/tiny-1/config.yaml config.saved
echo 'model: [' >runs/tiny-1/config.yaml
trained 1 tiny-1 tiny.yaml train.steps=10 --resume auto
expect 0 "no effect" "runs/tiny-1/config.yaml:" "nothing to do"
cp config.saved runs/tiny-1/config.yaml

# A checkpoint does not remember the number of ranks.
settings="train.steps=10 train.precision=f64 train.micro_batch=2"
# shellcheck disable=SC2086 # several words
{
    trained 1 alone tiny.yaml $settings
    trained 1 mixed tiny.yaml $settings train.stop_after=4
    trained 2 mixed tiny.yaml $settings train.stop_after=7 --resume auto
    trained 1 mixed tiny.yaml $settings --resume auto
}
same_text alone mixed step tokens lr epoch token_hash
close_numbers alone mixed loss 1e-9 10

# An older checkpoint, by its path: in another folder the rows start behind it, in its own they are cut back to it.
cp -r runs/tiny-parts-1 runs/back
rm runs/back/FINISHED
settings="train.steps=10 eval.every=5 train.micro_batch=2"
for name in branch back; do
    # shellcheck disable=SC2086 # several words
    trained 1 $name tiny.yaml $settings --resume runs/tiny-parts-1/checkpoints/step_00000004
    same_parameters tiny-1 "$name" 10
done
same_curve tiny-1 back
mkdir runs/rest
tail -n 6 runs/tiny-1/metrics.jsonl >runs/rest/metrics.jsonl
same_curve rest branch

# The best validation loss is that of all parts: two before the restart, none behind it.
settings="train.steps=10 eval.every=3"
# shellcheck disable=SC2086 # several words
{
    trained 1 best tiny.yaml $settings train.stop_after=6
    trained 1 best tiny.yaml $settings train.stop_after=7 --resume auto
}
run "$FWA" checkpoint list runs/best
expect 0
best=$(columns runs/best/metrics.jsonl val_loss | grep -v '^-' | sort -g | head -n 1)
best=$(printf 'best val %.4f' "$best")
check "not twice $best: $(cat out)" test "$(grep -c -F "$best" out)" = 2

# Weights alone: the run begins at step 1 with the first batch, but not with a fresh model's loss.
trained 1 warm tiny.yaml train.steps=3 --init-from runs/tiny-1
mkdir runs/start
head -n 3 runs/tiny-1/metrics.jsonl >runs/start/metrics.jsonl
same_text start warm step tokens token_hash
check "weights of another run made no difference" test "$(columns runs/warm/metrics.jsonl loss | head -n 1 | cut -c 1)" -lt \
    "$(columns runs/start/metrics.jsonl loss | head -n 1 | cut -c 1)"
finish
