#!/bin/sh
# Threads of a rank: the cores that ranks share are divided among them, and a plan counts the threads of the real run.
. "$(dirname "$0")/lib.sh"
cores=$(env -u OMP_NUM_THREADS nproc)
granted=$("$FWA" info | sed -n 's/.* \([0-9]*\) cores\{0,1\} for this process/\1/p') # a container's quota may be less
check "fwa info: '$granted' cores of $cores" test "$granted" -le "$cores" || finish
cores=$granted

# share RANKS: threads of each
share() {
    echo $((cores > $1 ? cores / $1 : 1))
}

# says THREADS: what the start-up line of the backend says
says() {
    expect 0 "$([ "$1" = 1 ] && echo "1 thread a rank" || echo "$1 threads a rank")"
}

for ranks in 1 2 4; do
    launcher=
    [ $ranks = 1 ] || launcher="$mpirun --bind-to none -np $ranks"
    # shellcheck disable=SC2086 # the launcher and its options
    run $launcher "$FWA" train tiny.yaml run.name="auto-$ranks" run.threads=auto train.steps=1 train.micro_batch=2
    says "$(share $ranks)"
    # shellcheck disable=SC2086 # the launcher and its options
    run $launcher "$FWA" train tiny.yaml run.name="two-$ranks" run.threads=2 train.steps=1 train.micro_batch=2
    says 2
done

# A process that may use one core has one thread.
if command -v taskset >taskset.txt; then
    first=$(taskset -cp $$ | sed 's/.*: *\([0-9]*\).*/\1/')
    run taskset -c "$first" "$FWA" train tiny.yaml run.name=bound run.threads=auto train.steps=1
    says 1
fi

# What OpenMP is told from outside neither leaves one core to all threads nor hangs products that wait for more.
for words in "OMP_PROC_BIND=true" "OMP_PROC_BIND=close OMP_PLACES=cores" "OMP_PLACES=threads OMP_WAIT_POLICY=passive" \
    "OMP_DYNAMIC=true" "OMP_MAX_ACTIVE_LEVELS=0"; do
    # shellcheck disable=SC2086 # several words
    run env $words "$FWA" train tiny.yaml run.name="$words" run.threads=auto train.steps=1
    says "$cores"
done
run env OMP_THREAD_LIMIT=1 "$FWA" train tiny.yaml run.name=few run.threads=2 train.steps=1
says 1

# The dry run's memory is the run's.
for threads in 1 3 auto; do
    run "$FWA" train tiny.yaml run.name="plan-$threads" run.threads=$threads train.steps=1 --dry-run
    expect 0
    grep -o 'memory .*' err >planned.txt
    trained 1 "plan-$threads" tiny.yaml run.threads=$threads train.steps=1
    grep -o 'memory .*' err >real.txt
    check "no memory line with $threads threads" test -s real.txt
    check "$threads threads: another plan than the dry run's" diff planned.txt real.txt
done
finish
