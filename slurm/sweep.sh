#!/bin/bash
# slurm/sweep.sh [OPTIONS OF SBATCH --] SWEEP.yaml [key.path=value ...]
#
# Submits the points of a sweep as an array of jobs, one point each, and a job that makes the table when all have ended.
#
#   slurm/sweep.sh --ntasks-per-node=4 --gpus-per-node=4 -- configs/sweeps/window.yaml
#
# FWA_AT_ONCE=N: most points at a time (default 4). docs/cluster.md has the rest.
set -uo pipefail
script=sweep.sh
here=${FWA_SLURM_FOLDER:-$(dirname "$(readlink -f "$0")")}
# shellcheck source=slurm/job.sh
. "$here/job.sh"

submit() {
    local options=() word points array
    for word in "$@"; do
        [ "$word" = -- ] || continue
        while [ "$1" != -- ]; do
            options+=("$1")
            shift
        done
        shift
        break
    done
    if [ $# = 0 ]; then
        say "usage: slurm/sweep.sh [OPTIONS OF SBATCH --] SWEEP.yaml [key.path=value ...]"
        exit 2
    fi
    points=$("${program[@]}" sweep "$@" --list) || exit 2
    points=$(wc -l <<<"$points")
    export FWA_SLURM_FOLDER=$here
    array=$(sbatch --parsable --job-name=fwa-sweep --output=%x-%A_%a.log --open-mode=append --nodes=1 \
        --ntasks-per-node=1 --gpus-per-node=1 --requeue --signal=B:USR1@120 "${options[@]}" \
        --array="1-$points%${FWA_AT_ONCE:-4}" "$here/sweep.sh" "$@") || exit 1
    array=${array%%;*}
    echo "$points points: job array $array, at most ${FWA_AT_ONCE:-4} at once"
    array=$(sbatch --parsable --job-name=fwa-table --output=%x-%j.log --nodes=1 --ntasks=1 \
        --dependency="afterany:$array" --export="ALL,FWA_SWEEP_TABLE=1" "$here/sweep.sh" "$@") || exit 1
    echo "table at the end: job ${array%%;*}"
}

# The words of this task's point; its failure is noted where `fwa sweep` looks for it.
point() {
    local words note folder
    words=$("${program[@]}" sweep "$@" --words "$SLURM_ARRAY_TASK_ID") || exit 2
    readarray -t words <<<"$words"
    folder=$(run_folder "${words[@]}") || exit 2
    note=$folder.failed
    mkdir -p "$(dirname "$folder")" || exit 1
    rm -f "$note"
    train "${words[@]}"
    case $code in
    0 | 75) ;;
    *) echo "$code" >"$note" ;;
    esac
    exit "$code"
}

if [ -n "${FWA_SWEEP_TABLE:-}" ]; then
    exec "${program[@]}" sweep "$@" --table
elif [ -n "${SLURM_ARRAY_TASK_ID:-}" ]; then
    point "$@"
else
    submit "$@"
fi
