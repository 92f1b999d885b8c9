#!/bin/sh
# fwa checkpoint: list, verify, diff, pack. A flipped byte in any file is found and named, and resuming takes the
# checkpoint before.
. "$(dirname "$0")/lib.sh"
settings="train.micro_batch=4 parallel.zero=1 schedule.kind=constant"
# shellcheck disable=SC2086 # several words
trained 2 run tiny.yaml $settings train.steps=4 checkpoint.every=2
newest=runs/run/checkpoints/step_00000004

# Where the weights come from: program, libraries, command line and configuration, in the checkpoint and in the log.
for text in 'fwa [0-9.]* (commit [^ ]*); OpenBLAS [0-9.]*, .*MPI .*, HDF5 [0-9.]*' 'fwa train .*parallel.zero=1'; do
    check "state.h5 does not say $text" grep -aq "$text" $newest/state.h5
done
for text in 'libraries   OpenBLAS [0-9.]*, .*MPI .*, HDF5 [0-9.]*$' 'command     fwa train .*parallel.zero=1' \
    'run folder  runs/run (configuration [0-9a-f]\{16\})$'; do
    check "log.txt does not say $text" grep -q "$text" runs/run/log.txt
done

run "$FWA" checkpoint list runs/run
expect 0
check "list: $(cat out)" test "$(grep -c '^  step_0000000[24]  20.* 2 shards ' out)" = 2
run "$FWA" checkpoint verify runs/run
expect 0
check "verify: $(cat out)" test "$(grep -c 'sound: 5 files' out)" = 2
run "$FWA" checkpoint diff runs/run $newest
expect 0
check "diff: $(cat out)" grep -q '^141 tensors are equal bit for bit, 0 differ$' out
run "$FWA" checkpoint diff $newest runs/run/checkpoints/step_00000002
expect 1 "differ"
check "diff does not name the step" grep -q '^step: 4 and 2$' out
check "diff does not name a moment" grep -q '^v/blocks.0.mixer.q.weight: differs in 1024 of 1024 values,' out
run "$FWA" checkpoint diff $newest runs/run/checkpoints/step_00000002 --tolerance 100
expect 1
check "a wide tolerance leaves tensors apart: $(tail -n 1 out)" grep -q ', 0 differ$' out
# Runs that differ in a key of the configuration alone, and in their rates.
# shellcheck disable=SC2086 # several words
{
    trained 2 twin tiny.yaml $settings train.steps=4 checkpoint.every=4 guard.spike_factor=9
    trained 2 rates tiny.yaml $settings train.steps=2 optimizer.lr=2.9e-3
}
run "$FWA" checkpoint diff $newest runs/twin
expect 1 "differ"
check "other than one key: $(cat out)" test "$(grep -c -v 'bit for bit' out) $(grep -c '^guard.spike_factor: 10 -> 9$' out)" = "1 1"
run "$FWA" checkpoint diff runs/run/checkpoints/step_00000002 runs/rates
expect 1 "differ"
check "not the mean of the gradients' norms: $(cat out)" grep -q '^norm_mean: ' out
run "$FWA" checkpoint diff $newest runs/run/checkpoints/step_00000003
expect 2 "runs/run/checkpoints/step_00000003"
run "$FWA" checkpoint pack runs/run --out plain.h5
expect 0
check "nothing was packed" test -s plain.h5
cp $newest/state.h5 state.h5
run "$FWA" checkpoint pack runs/run --out $newest/state.h5
expect 2 "belongs to the checkpoint"
run "$FWA" checkpoint pack runs/run --out plain.h5
expect 2 "there is such a file already"
check "pack wrote over a file" cmp state.h5 $newest/state.h5
run "$FWA" checkpoint pack runs/run --out nowhere/plain.h5
expect 2 "--out nowhere/plain.h5"

# What is wrong with the command line
run "$FWA" checkpoint
expect 2 "list, verify, diff or pack"
run "$FWA" checkpoint look runs/run
expect 2 "look"
run "$FWA" checkpoint verify
expect 2 "expected run folders"
run "$FWA" checkpoint verify runs/none
expect 2 "runs/none"
run "$FWA" checkpoint verify tiny.yaml
expect 2 "tiny.yaml is a file"
mkdir nothing
run "$FWA" checkpoint verify nothing
expect 2 "nothing verified"
run "$FWA" checkpoint list $newest/
expect 0
check "the name of a folder with a slash: $(cat out)" grep -q '^  step_00000004  ' out
run "$FWA" checkpoint diff runs/run
expect 2 "expected two"
run "$FWA" checkpoint pack runs/run
expect 2 "--out"
on 2 checkpoint list runs/run
expect 2 "without mpirun"

# flip FILE: another bit in the middle of it
flip() {
    at=$(($(wc -c <"$1") / 2))
    byte=$(dd if="$1" bs=1 skip=$at count=1 2>/dev/null | od -An -tu1)
    printf '%b' "\\0$(printf %o $((byte ^ 16)))" | dd of="$1" bs=1 seek=$at conv=notrunc 2>/dev/null
}
rm runs/run/FINISHED
cp -r runs/run sound
for file in shard.rank00000.h5 shard.rank00001.h5 model.h5 optim.h5 state.h5 manifest.json; do
    flip $newest/$file
    run "$FWA" checkpoint verify runs/run
    expect 1 "1 of 2 checkpoints damaged"
    check "$file is not named: $(cat out)" grep -q "^    .*$newest.*$file" out
    check "the sound one is not told: $(cat out)" grep -q '^  step_00000002  sound' out
    run "$FWA" checkpoint diff $newest runs/run/checkpoints/step_00000002
    expect 2 "$file"
    # shellcheck disable=SC2086 # several words
    case $file in
    shard.rank00001.h5)
        train 2 run tiny.yaml $settings train.steps=4 --resume auto
        expect 0 "$file" "is passed over" "at step 2"
        ;;
    model.h5)
        train 1 run tiny.yaml $settings train.steps=4 train.micro_batch=8 --resume auto
        expect 0 "$file" "is passed over" "at step 2"
        ;;
    esac
    rm -r runs/run
    cp -r sound runs/run
done
rm $newest/state.h5 $newest/optim.h5
touch $newest/notes
run "$FWA" checkpoint verify $newest
expect 1
check "not all three are named: $(cat out)" test "$(grep -c '^    .*\(state.h5\|optim.h5\|notes\)' out)" = 3
run "$FWA" checkpoint list runs/run
expect 0
check "list calls it sound: $(cat out)" grep -q '^  step_00000004 .*damaged: .*optim.h5' out
rm $newest/manifest.json
run "$FWA" checkpoint verify $newest
expect 1
check "a folder without manifest: $(cat out)" grep -q 'manifest.json' out
finish
