#!/bin/sh
# fwa bench op on a GPU: every rule and operator passes its check in both precisions; debug.profile leaves the curve as it
# is. Skips without a usable GPU.
. "$(dirname "$0")/lib.sh"
run "$FWA" info
if ! awk '/^  cuda / { seen = 1 } seen && /not usable/ { exit 1 } seen && /device 0/ { exit 0 }' out; then
    echo "no usable GPU"
    exit 77
fi
limit=200
cuda_rules >rules.txt
check "no rules found" test -s rules.txt
for dtype in bf16 f32; do
    run "$FWA" bench op --backend cuda --dtype $dtype --B 3 --T 160 --H 2 --K 64 --V 64 --D 128 --F 136 --N 1000 --repeats 2
    expect 0
    check_not "$dtype: $(cat out)" grep -E "check failed|no operator" out
    while read -r rule; do
        check "$dtype: $rule has no two passes: $(cat out)" test "$(grep -c -E "^$rule +(forward|backward) " out)" = 2
    done <rules.txt
    check "$dtype: too few rows: $(cat out)" test "$(grep -c -E " (forward|backward) " out)" -ge 60
done
train 1 plain tiny.yaml run.backend=cuda train.steps=6
expect 0
train 1 timed tiny.yaml run.backend=cuda train.steps=6 debug.profile=3
expect 0
close_numbers plain timed loss 1e-5
check "no profile" grep -q '"backend": "cuda"' runs/timed/profile.json
finish
