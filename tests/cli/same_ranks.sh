#!/bin/sh
# Ranks that were started with something else than rank 0: configuration, options, data, a checkpoint of the same name on
# another disk. Exit code 2, and no run folder: the gradients of two runs would be added up.
. "$(dirname "$0")/lib.sh"
limit=30
token_data
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

# differs TEXT OTHER [ARGUMENTS...]: on rank 1.
differs() {
    text=$1 other=$2
    shift 2
    # shellcheck disable=SC2086 # the launcher and its options
    run env OTHER="$other" PLACE="${place:-.}" $mpirun -np 2 sh "$work/other.sh" "$FWA" train tiny-lm.yaml run.name=new \
        train.micro_batch=4 train.steps=4 comm.timeout_s=9 comm.first_timeout_s=9 "$@"
    expect 2 "$text" "rank 1"
    check_not "$other: a run was started" test -e runs/new
}

differs "run.seed: 0 -> 3" "optimizer.lr=1e-2 run.seed=3 run.name=other train.steps=3"
expect 2 "optimizer.lr: 0.003 -> 0.01" "run.name: new -> other" "train.steps: 4 -> 3"
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
# shellcheck disable=SC2086 # the launcher and its options
run env OTHER=optimizer.lr=1e-2 $mpirun -np 2 sh other.sh "$FWA" bench step tiny.yaml train.micro_batch=4 --steps 1
expect 2 "optimizer.lr: 0.003 -> 0.01"
# shellcheck disable=SC2086 # the launcher and its options
run env OTHER="--repeats 2" $mpirun -np 2 sh other.sh "$FWA" bench io
expect 2 "--repeats: got '2', but '' on rank 0"

# A rank's own: its threads, and where its data lies.
mkdir -p elsewhere/data
cp tiny.yaml tiny-lm.yaml elsewhere
cp data/* elsewhere/data
# shellcheck disable=SC2086 # the launcher and its options
run env OTHER="run.threads=2 data.train=$work/elsewhere/data/train_*.bin" $mpirun -np 2 sh other.sh "$FWA" train \
    tiny-lm.yaml run.name=own train.micro_batch=4 train.steps=2
expect 0

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
finish
