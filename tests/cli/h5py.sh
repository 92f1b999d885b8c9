#!/bin/sh
# h5py reads every file of a checkpoint and finds what docs/checkpoint.md says. Skips where python3 has no h5py;
# FWA_PYTHON names another python.
. "$(dirname "$0")/lib.sh"
needs_python h5py
script=${FWA_SOURCE_DIR:?}/tests/peers/checkpoint.py
trained 1 one tiny.yaml train.steps=2 train.precision=f64
trained 2 two tiny.yaml train.steps=2 train.micro_batch=4 parallel.zero=1 eval.every=2
for name in one two; do
    run "$FWA" checkpoint pack runs/$name --out $name.h5
    expect 0
    run "$python" "$script" runs/$name/checkpoints/step_00000002 $name.h5
    check "h5py and run $name: $(cat out err)" test "$code" = 0
done

# The script sees what is wrong.
rm runs/two/checkpoints/step_00000002/shard.rank00001.h5
run "$python" "$script" runs/two/checkpoints/step_00000002
check "a shard that is not there was not noticed" test "$code" != 0
finish
