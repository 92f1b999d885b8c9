#!/bin/sh
# The demo behind ./dev demo: trains configs/addition/demo.yaml on two MPI ranks, stops half way, resumes from the
# checkpoint, and prints how often the trained model adds numbers of each width correctly.
set -eu
export LC_ALL=C # awk reads and writes decimal points
cd "$(dirname "$0")/.."

fwa=build/fwa
run=runs/dev-demo # no folder that a command of the README makes
limit=95 # per cent of exact matches that every trained width must reach
train="$fwa train configs/addition/demo.yaml run.dir=runs run.name=dev-demo run.backend=cpu train.micro_batch=32"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_btl_base_warn_component_unused=0

echo "== two ranks train the first 700 steps and stop"
rm -rf "$run"
# shellcheck disable=SC2086 # words of a command
mpirun --oversubscribe -np 2 $train train.stop_after=700
echo "== two new processes resume from the checkpoint and finish"
# shellcheck disable=SC2086
mpirun --oversubscribe -np 2 $train --resume auto
echo "== how often is the whole sum right? (widths 5 and 6 were never trained)"
$fwa eval "$run" --widths 1-6 --json "$run/accuracy.json"

awk -v limit=$limit '
    /"width": [1-4],/ {
        for (i = 1; i <= NF; i++) if ($i == "\"exact\":") { checked++; if (100 * $(i + 1) < limit) bad = 1 }
    }
    END {
        if (checked != 4 || bad) { print "demo: a trained width stayed under " limit " %"; exit 1 }
        print "demo: every trained width reaches " limit " %"
    }' "$run/accuracy.json"
