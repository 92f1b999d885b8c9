#!/bin/sh
# A run that goes on from an earlier checkpoint of its folder, by its path or as the newer ones are damaged: the next start
# continues from there, whatever was there before.
. "$(dirname "$0")/lib.sh"
settings="train.steps=12 schedule.kind=constant"

# steps RUN: of its checkpoints
steps() {
    find "runs/$1/checkpoints" -maxdepth 1 -name 'step_*' 2>/dev/null | sed 's/.*step_0*//' | sort -n | tr '\n' ' '
}

# shellcheck disable=SC2086 # several words
{
    trained 1 straight tiny.yaml $settings
    trained 1 back tiny.yaml $settings checkpoint.every=3

    # A finished run, back to step 6; fewer checkpoints are kept than lie behind it. Of the last there is another, which a
    # replacement that was killed has left: it must not come back either.
    cp -r runs/back/checkpoints/step_00000012 runs/back/checkpoints/.step_00000012.old
    trained 1 back tiny.yaml $settings checkpoint.keep_last=1 train.stop_after=8 \
        --resume runs/back/checkpoints/step_00000006
    expect 0 "runs/back/checkpoints/set_aside_1 holds 2 checkpoints" "step 12 the newest"
    check "checkpoints $(steps back)" test "$(steps back)" = "8 "
    check "latest does not name step 8" grep -q step_00000008 runs/back/checkpoints/latest
    check_not "called finished at step 8" test -e runs/back/FINISHED
    run "$FWA" checkpoint verify runs/back/checkpoints/set_aside_1/step_00000012
    expect 0
    trained 1 back tiny.yaml $settings --resume auto
    expect 0 "at step 8"
    same_curve straight back
    same_parameters straight back 12

    # Another run's checkpoint goes before this folder's own of the same step.
    trained 1 other tiny.yaml $settings checkpoint.every=6
    trained 1 other tiny.yaml $settings checkpoint.keep_last=1 checkpoint.every=1 train.stop_after=7 \
        --resume runs/back/checkpoints/set_aside_1/step_00000009
    check "checkpoints $(steps other)" test "$(steps other)" = "9 "

    # From elsewhere, and killed before the first save: the next start goes on from there, not from nothing, and not from what
    # the folder held before.
    settings="train.steps=1000000 schedule.kind=constant"
    trained 1 source tiny.yaml $settings checkpoint.every=3 train.stop_after=6
    for name in used new; do
        [ $name = new ] || trained 1 used tiny.yaml $settings checkpoint.every=3 train.stop_after=9
        start "$FWA" train tiny.yaml run.name=$name $settings --resume runs/source/checkpoints/step_00000003
        tries=0
        until grep -q '^step' err || [ $tries -gt $((limit * 20)) ]; do
            tries=$((tries + 1))
            sleep 0.05
        done
        kill -9 "$background"
        ended
        check "$name has a checkpoint: $(steps $name)" test -z "$(steps $name)"
        trained 1 $name tiny.yaml $settings train.stop_after=5 --resume auto
        expect 0 "which was started from" "at step 3"
        trained 1 $name tiny.yaml $settings train.stop_after=6 --resume auto
        expect 0 "at step 5"
        check_not "still started from elsewhere" test -e runs/$name/started_from
        same_parameters source $name 6
    done
    # The same where nothing is left to train: the folder has the checkpoint then.
    mkdir -p runs/late
    echo "$work/runs/source/checkpoints/step_00000006" >runs/late/started_from
    trained 1 late tiny.yaml $settings train.stop_after=6 --resume auto
    check "checkpoints $(steps late)" test "$(steps late)" = "6 "
    mkdir -p runs/lost
    echo "$work/nowhere/step_00000006" >runs/lost/started_from
    run "$FWA" train tiny.yaml run.name=lost $settings --resume auto
    expect 2 "nowhere/step_00000006: no such run" "remove runs/lost/started_from"
    settings="train.steps=12 schedule.kind=constant"

    # The newest one is damaged, of the size that it should have, and one is kept.
    trained 1 hurt tiny.yaml $settings checkpoint.every=6
    rm runs/hurt/FINISHED
    printf 'x' | dd of=runs/hurt/checkpoints/step_00000012/shard.rank00000.h5 bs=1 seek=20000 conv=notrunc 2>/dev/null
    trained 1 hurt tiny.yaml $settings checkpoint.keep_last=1 train.stop_after=8 --resume auto
    expect 0 "step_00000012 is passed over" "at step 6" "set_aside_1 holds 1 checkpoint"
    check "checkpoints $(steps hurt)" test "$(steps hurt)" = "8 "
    trained 2 hurt tiny.yaml $settings train.micro_batch=4 --resume auto
    expect 0 "at step 8"
}
finish
