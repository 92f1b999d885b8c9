#!/bin/sh
# Ranks and accumulation: the same global batch gives the same data and the same curve, however it is cut.
. "$(dirname "$0")/lib.sh"
token_data

# In f64 thirty steps stay together to rounding; f32 is looked at before differences grow.
for ranks in 1 2 4; do
    trained "$ranks" "f64-$ranks" tiny.yaml train.precision=f64 train.micro_batch=2 eval.every=10
    trained "$ranks" "f32-$ranks" tiny.yaml train.steps=10 train.micro_batch=2
    trained "$ranks" "lm-$ranks" tiny-lm.yaml train.precision=f64 train.micro_batch=1 eval.every=10 eval.batches=1
done
for ranks in 2 4; do
    for task in f64 lm; do
        same_text "$task-1" "$task-$ranks" step tokens lr epoch token_hash
        close_numbers "$task-1" "$task-$ranks" loss 1e-9 30
        close_numbers "$task-1" "$task-$ranks" grad_norm 1e-7 30
    done
    same_text f32-1 "f32-$ranks" step tokens lr epoch token_hash
    close_numbers f32-1 "f32-$ranks" loss 1e-4 10
done

# Validation covers the same sequences: 6 of them do not divide by 4 ranks.
for ranks in 2 4; do
    for task in f64 lm; do
        for run in "$task-1" "$task-$ranks"; do
            mkdir -p "runs/$run-val"
            grep val_loss "runs/$run/metrics.jsonl" >"runs/$run-val/metrics.jsonl"
        done
        close_numbers "$task-1-val" "$task-$ranks-val" val_loss 1e-9 3
    done
done

# Every step reads other sequences, and another seed other ones again.
check "some steps share a token hash" test "$(columns runs/f64-1/metrics.jsonl token_hash | sort -u | wc -l)" = 30
trained 1 seed tiny.yaml train.steps=2 run.seed=1
check_not "two seeds read the same data" test "$(columns runs/seed/metrics.jsonl token_hash | head -n 1)" = \
    "$(columns runs/f32-1/metrics.jsonl token_hash | head -n 1)"

# The launcher around one rank changes nothing.
# shellcheck disable=SC2086 # the launcher and its options
run $mpirun -np 1 "$FWA" train tiny.yaml run.name=launched train.steps=10 train.micro_batch=2
expect 0
same_curve f32-1 launched

# micro_batch x accumulation 8x1, 4x2, 1x8 on one rank, 4x1, 2x2, 1x4 on two. How far norms are apart in f32 is the BLAS
# kernels' matter, which differ from processor to processor; in f64 they are the same to rounding.
for ranks in 1 2; do
    for micro in 1 2 4 8; do
        [ $((ranks * micro)) -le 8 ] || continue
        trained "$ranks" "cut-$ranks-$micro" tiny.yaml train.steps=5 train.micro_batch="$micro"
        trained "$ranks" "exact-$ranks-$micro" tiny.yaml train.steps=5 train.micro_batch="$micro" train.precision=f64
        for precision in cut exact; do
            same_text $precision-1-1 "$precision-$ranks-$micro" step tokens token_hash
        done
        close_numbers cut-1-1 "cut-$ranks-$micro" loss 1e-5 3
        close_numbers exact-1-1 "exact-$ranks-$micro" loss 1e-12 5
        close_numbers exact-1-1 "exact-$ranks-$micro" grad_norm 1e-10 5
    done
done

# What the environment says of kernels and groups is the same on all ranks, or nobody starts.
cat >other.sh <<'SH'
#!/bin/sh
name=$1
shift
[ "$OMPI_COMM_WORLD_RANK" = 0 ] || export "$name=3"
exec "$@"
SH
shared=$(cd "${FWA_SOURCE_DIR:?}" && cat core/* dist/* io/* kernels/*.* kernels/*/* layers/* train/*.* train/*/* 2>/dev/null |
    sed -n 's/.*getenv("\(FWA_[A-Z_]*\)").*/\1/p' | sort -u)
check "the sources read no such variable" test -n "$shared"
for name in $shared; do
    # shellcheck disable=SC2086 # the launcher and its options
    run env "$name=2" $mpirun -np 2 sh other.sh "$name" "$FWA" train tiny.yaml run.name=other
    expect 2 "$name in the environment: got '3', but '2' on rank 0"
    check_not "$name: a run was started" test -e runs/other
done
finish
