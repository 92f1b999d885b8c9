#!/bin/sh
# A run folder that is removed, and made anew by another run, while the first one still trains: that one saves nothing in it.
. "$(dirname "$0")/lib.sh"
for ranks in 1 2; do
    # shellcheck disable=SC2016,SC2086 # the inner shell's variables; the launcher and its options
    start sh -c 'exec "$@" >first.out 2>&1' sh $mpirun -np $ranks "$FWA" train tiny.yaml run.name=taken \
        train.steps=1000000 train.micro_batch=4
    wait_for_rows taken 3
    mv runs/taken runs/moved$ranks
    trained 1 taken tiny.yaml train.steps=2 run.seed=7
    cp -r runs/taken before
    kill -USR1 "$background"
    ended
    check "a run without its folder ended with code $code" test "$code" = 1
    check "does not say why: $(cat first.out)" grep -q "runs/taken is not the one that this run was started in" first.out
    check "it has touched that of another run" diff -r before runs/taken
    rm -r before runs/taken
done
finish
