#!/bin/sh
# parallel.zero 1: the same curve and the same parameters as without, for any number of ranks; checkpoints go from any
# layout to any other.
. "$(dirname "$0")/lib.sh"

# layout RANKS ZERO RUN ARGUMENTS...: saved at step 6, ended at 12.
layout() {
    ranks=$1 zero=$2 name=$3
    shift 3
    trained "$ranks" "$name" tiny.yaml train.precision=f64 train.micro_batch=2 train.steps=12 checkpoint.every=6 \
        parallel.zero="$zero" "$@"
}

# values RUN STEP: masters and moments of a checkpoint, one number a line.
values() {
    for part in model optim; do
        h5dump -w 1 -y -m %.17g "runs/$1/checkpoints/step_$2/$part.h5" 2>/dev/null |
            awk '/DATASET/ { name = $2 } /^ *-?[0-9.][0-9.e+-]*,?$/ { sub(/,/, ""); print name, $1 }'
    done
}

# close_values RUN RUN STEP
close_values() {
    command -v h5dump >/dev/null || return 0
    values "$1" "$3" >one.txt
    values "$2" "$3" >other.txt
    # shellcheck disable=SC2016 # awk's variables, not the shell's
    check "runs $1 and $2: parameters or moments of step $3 are further apart than 1e-10" awk '
    NR == FNR { name[NR] = $1; one[NR] = $2; n = NR; next }
    {
        apart = one[FNR] - $2
        if (apart < 0) apart = -apart
        if (name[FNR] != $1 || apart > 1e-10) { print "row " FNR ": " $1 " " one[FNR] " and " $2; bad = 1 }
        m = FNR
    }
    END { if (n != m || n < 1000) { print n + 0 " and " m + 0 " values"; bad = 1 }; exit bad }' one.txt other.txt
}

layout 1 0 plain-1
for ranks in 1 2 4; do
    layout "$ranks" 1 "zero-$ranks"
    same_text plain-1 "zero-$ranks" step tokens lr epoch token_hash
    close_numbers plain-1 "zero-$ranks" loss 1e-10 12
    close_numbers plain-1 "zero-$ranks" grad_norm 1e-10 12
    close_values plain-1 "zero-$ranks" 00000012
    check "zero-$ranks: expected $ranks shards" test \
        "$(find "runs/zero-$ranks/checkpoints/step_00000012" -name 'shard.rank*.h5' | wc -l)" = "$ranks"
    no_leftovers "zero-$ranks"
done
# Every rank sums all gradients, in the same order: not one bit differs from the run without at the same ranks.
layout 4 0 plain-4
same_curve plain-4 zero-4

# resumed FROM RANKS ZERO: steps 7 to 12 from the sixth step of a run, elsewhere.
resumed() {
    name=from-$1-$2-$3
    mkdir -p "runs/$name/checkpoints"
    cp -r "runs/$1/checkpoints/step_00000006" "runs/$name/checkpoints/"
    layout "$2" "$3" "$name" --resume auto
    mkdir -p "runs/$name-rest"
    tail -n 6 "runs/plain-1/metrics.jsonl" >"runs/$name-rest/metrics.jsonl"
    same_text "$name-rest" "$name" step tokens token_hash
    close_numbers "$name-rest" "$name" loss 1e-10 6
    close_numbers "$name-rest" "$name" grad_norm 1e-10 6
    close_values plain-1 "$name" 00000012
}
resumed zero-4 2 0
resumed zero-4 1 0
resumed zero-4 2 1
resumed plain-1 4 1

# Weights alone, too.
trained 2 init tiny.yaml train.precision=f64 train.micro_batch=2 train.steps=1 parallel.zero=1 \
    --init-from runs/zero-4/checkpoints/step_00000006
trained 1 init-plain tiny.yaml train.precision=f64 train.micro_batch=2 train.steps=1 \
    --init-from runs/plain-1/checkpoints/step_00000006
close_numbers init-plain init loss 1e-10 1

# The plan tells: of four ranks each holds about a quarter of the moments.
moments_bytes() {
    sed -n 's/.*moments \([0-9.]*\) \([kMG]*B\).*/\1 \2/p' err
}
on 4 train tiny.yaml train.precision=f64 train.micro_batch=2 --dry-run
expect 0
whole=$(moments_bytes)
on 4 train tiny.yaml train.precision=f64 train.micro_batch=2 parallel.zero=1 --dry-run
expect 0
# shellcheck disable=SC2016 # awk's variables, not the shell's
check "moments memory: $whole, sharded over four ranks $(moments_bytes)" awk -v a="$whole" -v b="$(moments_bytes)" '
BEGIN {
    unit["B"] = 1; unit["kB"] = 1e3; unit["MB"] = 1e6
    split(a, x, " "); split(b, y, " ")
    quarter = x[1] * unit[x[2]] / 4; piece = y[1] * unit[y[2]]
    exit !(quarter > 0 && piece > 0.8 * quarter && piece < 1.4 * quarter)
}'
train 2 bad tiny.yaml train.micro_batch=2 parallel.zero=2
expect 2 "parallel.zero"
finish
