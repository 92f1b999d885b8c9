#!/bin/sh
# Ranks that were started with something else than rank 0: configuration, options, data, a checkpoint of the same name on
# another disk. Exit code 2, and no run folder: the gradients of two runs would be added up.
# shellcheck disable=SC2317 # functions that aside calls
. "$(dirname "$0")/lib.sh"
token_data
mkdir elsewhere
trained 1 source tiny-lm.yaml train.steps=2 checkpoint.every=1

# Rank 1 takes other words beside those of all, OTHER in the environment, in the folder PLACE; or INSTEAD of all.
cat >other.sh <<'SH'
#!/bin/sh
# shellcheck disable=SC2086 # several words
if [ "$OMPI_COMM_WORLD_RANK" = 1 ]; then
    [ -z "${INSTEAD:-}" ] || exec $INSTEAD
    cd "${PLACE:-.}" && exec "$@" $OTHER
fi
exec "$@"
SH

# aside COMMAND...: in a folder of its own, with what is here now, beside at most three others.
cases=0
aside() {
    cases=$((cases + 1))
    mkdir case.$cases
    cp -r tiny.yaml tiny-lm.yaml data runs elsewhere case.$cases
    (
        cd case.$cases || exit 1
        "$@"
        echo "$failures" >failures
    ) >said.$cases 2>&1 &
    [ $((cases % 4)) != 0 ] || wait
}

# differs TEXT OTHER [ARGUMENTS...]: on rank 1.
differs() {
    aside find_difference "$@"
}

find_difference() {
    text=$1 other=$2
    shift 2
    # shellcheck disable=SC2086 # the launcher and its options
    run env OTHER="$other" PLACE="${place:-.}" $mpirun -np 2 sh "$work/other.sh" "$FWA" train tiny-lm.yaml run.name=new \
        train.micro_batch=4 train.steps=4 comm.timeout_s=9 comm.first_timeout_s=9 "$@"
    expect 2 "$text" "rank 1"
    check_not "$other: a run was started" test -e runs/new
}

several_keys() {
    find_difference "run.seed: 0 -> 3" "optimizer.lr=1e-2 run.seed=3 run.name=other train.steps=3"
    expect 2 "optimizer.lr: 0.003 -> 0.01" "run.name: new -> other" "train.steps: 4 -> 3"
}
aside several_keys
differs "parallel.sp: 1 -> 2" parallel.sp=2
differs "eval.every: 0 -> 2" eval.every=2
differs "model.mixer.many.window: 3 -> 2" model.mixer.many.window=2
differs "--init-from: got 'runs/source', but '' on rank 0" "--init-from runs/source"
differs "--dry-run: got 'given', but '' on rank 0" --dry-run
differs "unknown option '--bad'" --bad
export INSTEAD="$FWA train"
differs "no configuration given" ""
INSTEAD="$FWA eval"
differs "command: got 'eval', but 'train' on rank 0" ""
INSTEAD=
# started CODE TEXT OTHER ARGUMENTS...: the same with another command.
started() {
    wanted_code=$1 text=$2 other=$3
    shift 3
    # shellcheck disable=SC2086 # the launcher and its options
    run env OTHER="$other" $mpirun -np 2 sh "$work/other.sh" "$FWA" "$@"
    expect "$wanted_code" "$text"
}
aside started 2 "optimizer.lr: 0.003 -> 0.01" optimizer.lr=1e-2 bench step tiny.yaml train.micro_batch=4 --steps 1
aside started 2 "--repeats: got '2', but '' on rank 0" "--repeats 2" bench io

# A rank's own: its threads, and where its data lies.
cp tiny.yaml tiny-lm.yaml elsewhere
cp -r data elsewhere
aside started 0 "" "run.threads=2 data.train=elsewhere/data/train_*.bin" train tiny-lm.yaml run.name=own train.micro_batch=4 \
    train.steps=2

# Another disk: nothing there, other shards, another run.
place=elsewhere
cp data/val.bin elsewhere/data/train_1.bin
differs "training data is not that of rank 0" ""
rm elsewhere/data/*
differs 'no file matches "data/train_*.bin"' ""
cp data/* elsewhere/data
differs "step_00000002 is not there, but on rank 0: expected" "" --init-from runs/source
mkdir -p elsewhere/runs/source/checkpoints
cp -r runs/source/checkpoints/step_00000001 elsewhere/runs/source/checkpoints/step_00000002
for option in --init-from --resume; do
    differs "step_00000002 is another checkpoint here than on rank 0" "" $option runs/source
done
wait
for number in $(seq $cases); do
    cat "said.$number"
    failures=$((failures + $(cat "case.$number/failures")))
done
finish
