#!/bin/bash
# sbatch [OPTIONS] slurm/train.sh CONFIG.yaml [key.path=value ...]
#
# Trains on all tasks of the job, one a GPU, and continues what the run folder holds. Eight GPUs on each of four nodes:
#
#   sbatch --nodes=4 --ntasks-per-node=8 --gpus-per-node=8 slurm/train.sh configs/lm/falcon1.yaml train.micro_batch=15
#
# Without GPUs: --gpus-per-node=0. docs/cluster.md has the rest.
#SBATCH --job-name=fwa
#SBATCH --output=%x-%j.log
#SBATCH --open-mode=append
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=1
#SBATCH --requeue
#SBATCH --signal=B:USR1@120
set -uo pipefail
script=train.sh

# Slurm runs a copy of this file; the others stand beside the original.
original=
[ -z "${SLURM_JOB_ID:-}" ] || original=$(scontrol show job -o "$SLURM_JOB_ID" | sed -n 's/.* Command=\([^ ]*\).*/\1/p' | head -n 1)
here=$(dirname "$(readlink -f "${original:-$0}")")
if [ ! -r "$here/job.sh" ]; then
    echo "$script: $here holds no job.sh: submit slurm/train.sh from where it stands" >&2
    exit 2
fi
# shellcheck source=slurm/job.sh
. "$here/job.sh"

if [ $# = 0 ]; then
    say "usage: sbatch [OPTIONS] slurm/train.sh CONFIG.yaml [key.path=value ...]"
    exit 2
fi
train train "$@" --resume auto
exit "$code"
