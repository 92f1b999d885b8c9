#!/bin/sh
# fwa bench op: a row for each pass of each rule and operator, checked first; numbers that fit together; refusals.
. "$(dirname "$0")/lib.sh"
small="--B 2 --T 48 --H 2 --K 16 --V 24 --D 40 --F 56 --N 77 --repeats 1 --threads 1 --backend cpu"

# shellcheck disable=SC2086 # options
run "$FWA" bench op $small
expect 0 || finish
"$FWA" info | awk '/^Rules/ { on = 1; next } /^Operators/ { exit } on && /^  [a-z]/ { print $1 }' >rules.txt
check "no rules found" test -s rules.txt
while read -r rule; do
    check "$rule has no two passes" test "$(grep -c -E "^$rule +(forward|backward) " out)" = 2
done <rules.txt
for operator in rmsnorm features embedding adamw gemm_logits cross_entropy; do
    check "$operator is missing" grep -q -E "^$operator +forward " out
done

# shellcheck disable=SC2086
run "$FWA" bench op falcon1 gemm swiglu $small --json
expect 0 || finish
# shellcheck disable=SC2016 # awk's variables, not the shell's
check "rows or numbers are wrong" awk '
function field(name) {
    if (!match($0, "\"" name "\": [^,}]*")) { print "no " name ": " $0; bad = 1; return "" }
    value = substr($0, RSTART, RLENGTH)
    sub(/^[^:]*: /, "", value)
    gsub(/"/, "", value)
    return value
}
{
    name = field("name")
    seen[name] = 1
    rows++
    floor = field("bytes") / (field("copy_gb_per_s") * 1e9)
    other = field("flops") / (field("product_tflop_per_s") * 1e12)
    if (other > floor) floor = other
    apart = 1e3 * floor / field("floor_ms")
    if (apart < 0.9 || apart > 1.1) { print "floor: " $0; bad = 1 }
    if (!(field("error") + 0 <= field("limit") + 0) || field("B") != 2 || field("ms_median") + 0 < field("ms_min") + 0) { print; bad = 1 }
    # y and x of [96, 56] and [96, 112] in f32
    if (name == "swiglu" && field("pass") == "forward" && field("bytes") != 4 * 96 * 3 * 56) { print; bad = 1 }
}
END { exit bad || rows < 6 || !seen["falcon1"] || !seen["swiglu"] || !seen["gemm_qkvg"] || seen["rmsnorm"] }' out

# shellcheck disable=SC2086
run "$FWA" bench op rules $small --form recurrent --dtype f64
expect 0
# shellcheck disable=SC2086 # options
run "$FWA" bench op softmax $small --earlier 40 --json
expect 0
check "no earlier keys" test "$(grep -c '"earlier": 40' out)" = 2
# shellcheck disable=SC2086 # options
run "$FWA" bench op falcon3a falcon1a $small --window 7 --json
expect 0
check "falcon3a has another window" test "$(grep falcon3a out | grep -c '"window": 7')" = 2
check "falcon1a has a window" test "$(grep falcon1a out | grep -c '"window": 1,')" = 2
# shellcheck disable=SC2086 # options
run "$FWA" bench op head_norm_gate_backward $small
expect 0
check "an operator's own name gave no row" grep -q '^head_norm_gate  *backward ' out
run "$FWA" bench op --fast
expect 2 "fwa bench op" "(fwa help bench op)"
run "$FWA" bench op falcon9
expect 2 "falcon9" "fwa info"
run "$FWA" bench op --dtype f16
expect 2 "--dtype 'f16'"
run "$FWA" bench op --backend cpu --dtype bf16
expect 2 "bf16"
run "$FWA" bench op --backend tpu
expect 2 "tpu"
run "$FWA" bench op --form fast
expect 2 "--form 'fast'"
run "$FWA" bench op --B 0
expect 2 "--B"
finish
