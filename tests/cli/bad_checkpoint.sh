#!/bin/sh
# Checkpoints that a run cannot start from.
. "$(dirname "$0")/lib.sh"
trained 1 source tiny.yaml train.steps=4 checkpoint.every=2
trained 1 stopped tiny.yaml train.stop_after=3
cp -r runs before

# refused RANKS TEXT... -- ARGUMENTS...: exit code 2, each TEXT is said, nothing in the run folders changes.
refused() {
    ranks=$1 texts=
    shift
    while [ "$1" != -- ]; do
        texts="$texts$1
"
        shift
    done
    shift
    on "$ranks" train tiny.yaml "$@"
    expect 2
    printf '%s' "$texts" | while read -r text; do grep -qF -e "$text" err || echo "does not say: $text"; done >unsaid.txt
    check "$what: $(cat unsaid.txt err)" test ! -s unsaid.txt
    check "$what: touched a run folder" diff -r runs before
}

# There is none
refused 1 runs/nothing "no such run folder or checkpoint" -- run.name=new --resume runs/nothing
refused 1 runs/nothing -- run.name=new --init-from runs/nothing
refused 1 runs/source/checkpoints/step_00000003 -- run.name=new --resume runs/source/checkpoints/step_00000003
refused 1 always "no such run folder or checkpoint" -- run.name=new --resume always
refused 2 runs/nothing -- run.name=new train.micro_batch=4 --resume runs/nothing

# Of another model: by --resume the configuration shows it, by --init-from the parameters.
refused 1 "model.layers: 3 -> 2" "--init-from" -- run.name=new model.layers=2 --resume runs/source
refused 1 "blocks.2." "another model" -- run.name=new model.layers=2 --init-from runs/source
refused 1 "blocks.3." "another model" -- run.name=new model.layers=4 --init-from runs/source
refused 1 "[277, 32]" "[277, 48]" -- run.name=new model.d_model=48 --init-from runs/source
refused 1 runs/source -- run.name=new model.mixer.one.gate=false --init-from runs/source
refused 2 "blocks.2." "another model" -- run.name=new train.micro_batch=4 model.layers=2 --init-from runs/source

# Another configuration than before: every difference is listed, and what may differ does.
refused 1 runs/stopped "optimizer.lr: 0.003 -> 0.004" "run.seed: 0 -> 7" "train.global_batch: 8 -> 16" "--init-from" -- \
    run.name=stopped optimizer.lr=4e-3 run.seed=7 train.global_batch=16 log.every=5 eval.every=3 --resume auto
refused 1 "model.mixer.many.window: 3 -> 2" -- run.name=stopped model.mixer.many.window=2 --resume auto
refused 1 "model.mixer.all.rotary: auto -> false" -- run.name=stopped model.mixer.all.rotary=false --resume auto
refused 1 "train.steps: 30 -> 20" -- run.name=stopped train.steps=20 --resume auto
refused 1 "train.precision: f32 -> f64" -- run.name=stopped train.precision=f64 --resume auto
refused 2 "optimizer.lr: 0.003 -> 0.004" -- run.name=stopped train.micro_batch=4 optimizer.lr=4e-3 --resume auto
trained 1 stopped tiny.yaml train.steps=40 train.stop_after=4 train.micro_batch=2 log.every=2 eval.every=2 \
    checkpoint.every=1 comm.timeout_s=50 debug.deterministic=true --resume auto
expect 0 "at step 3"
rm -r runs
cp -r before runs

# Damaged: which file, and what is wrong with it.
checkpoint=runs/source/checkpoints/step_00000004
# damaged TEXT...: of $checkpoint, by each way to use it
damaged() {
    rm -rf before
    cp -r runs before
    for option in --resume --init-from; do
        refused 1 step_00000004 "$@" -- run.name=new $option $checkpoint
    done
    rm -r $checkpoint
    cp -r saved $checkpoint
}
cp -r $checkpoint saved
truncate -s -1 $checkpoint/shard.rank00000.h5
damaged shard.rank00000.h5
printf 'xyz' | dd of=$checkpoint/shard.rank00000.h5 bs=1 seek=20000 conv=notrunc 2>/dev/null
damaged shard.rank00000.h5
rm $checkpoint/state.h5
damaged state.h5
printf '{"format": "fwa-checkpoint", "version": 9}' >$checkpoint/manifest.json
damaged manifest.json
head -c 40 saved/manifest.json >$checkpoint/manifest.json
damaged manifest.json
finish
