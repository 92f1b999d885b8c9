#!/bin/sh
# fwa bench io: checkpoints of any number of ranks come back as they were, and nothing of them stays.
. "$(dirname "$0")/lib.sh"

for ranks in 1 3; do
    on $ranks bench io --parameters 20000 --repeats 2
    expect 0
    for row in "write shards" publish "check digests" "read rows"; do
        check "$ranks ranks: no speed of: $row" grep -q "^  $row  *[0-9.]* s  *[0-9.]* GB/s$" out
    done
    check "$ranks ranks: size or ranks are wrong: $(head -n 1 out)" grep -q "^checkpoint of 295 kB in bench-io: $ranks rank" out
    check_not "$ranks ranks: the folder stays" test -e bench-io
done

# A folder that is somebody's is left alone.
mkdir -p mine/checkpoints
on 2 bench io --to mine
expect 2 "--to mine"
check "the folder is gone" test -d mine/checkpoints
run "$FWA" bench io --to nowhere/at/all
expect 2 "--to nowhere/at/all" "in one that is there"
run "$FWA" bench io --to nowhere --repeats 0
expect 2 "--repeats '0'"
check_not "made in spite of a mistake" test -e nowhere

# A rank that cannot go on waits until rank 0 has removed the folder.
mkdir rank.0 rank.1
# shellcheck disable=SC2016 # the inner shell's variables
for repeat in 1 2 3; do
    # shellcheck disable=SC2086 # the launcher and its options
    run $mpirun -np 2 sh -c 'cd "rank.$OMPI_COMM_WORLD_RANK" && exec "$FWA" bench io --parameters 500000'
    expect 1 "made by rank 0, is not seen by rank 1"
    check_not "the folder stays, start $repeat" test -e rank.0/bench-io
done

# What does not fit is not begun.
on 2 bench io --to large --parameters 1000000000000
expect 1 "--to large: needs 24000000098304 bytes, two checkpoints, and" "lower --parameters"
check_not "made for what does not fit" test -e large
run "$FWA" bench io --to large --parameters 1000000000000 --repeats 1
expect 1 "needs 12000000049152 bytes, a checkpoint, and"
run "$FWA" bench io 5
expect 2 "got '5'"
finish
