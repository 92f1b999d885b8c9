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
run "$FWA" bench io --to nowhere/at/all --repeats 0
expect 2 "--repeats '0'"
check_not "made in spite of a mistake" test -e nowhere
run "$FWA" bench io 5
expect 2 "got '5'"
finish
