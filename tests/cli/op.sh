#!/bin/sh
# fwa op on every golden case: two forms in two precisions, answers that can be checked again, and its exit codes. Bad
# inputs one by one: tests/unit/test_op.c.
. "$(dirname "$0")/lib.sh"
golden=${FWA_SOURCE_DIR:?names the sources}/tests/golden

# every ARGUMENTS...: checks all cases, 40 in one call.
every() {
    # shellcheck disable=SC2016 # the inner shell's variables
    run sh -c 'find "$1" -name "*.h5" | sort | xargs -n 40 "$FWA" op $2 --check' sh "$golden" "$*"
    expect 0
    check "with $*: not every case was checked" test "$(grep -c ': agrees, ' out)" = "$(find "$golden" -name '*.h5' | wc -l)"
}
every --form chunk --chunk 16
every --form recurrent --dtype f32
run "$FWA" op --rule linear_attention --check "$golden"/linear_attention_*.h5 --form parallel
expect 0

# The answer is a case without in/; its tensors are those that the case holds.
run "$FWA" op --rule falcon3a --in "$golden/falcon3a_carry.h5" --out answer.h5 --form parallel
expect 0
check "no answer was written" test -s answer.h5
check_not "a temporary file is left" test -e answer.h5.tmp
run "$FWA" op --rule falcon3a --in answer.h5 --out again.h5
expect 2 "answer.h5" "in/q is missing"
check_not "an answer without a question" test -e again.h5

# With operands rounded as on a GPU: near the answer, not at it.
run "$FWA" op --check "$golden/falcon1_basic.h5" "$golden/falcon3a_carry.h5" --dtype bf16
expect 0
run "$FWA" op --check "$golden/falcon1_basic.h5" --dtype bf16 --tolerance 1e-4
expect 1 "1 of 1 case off"

# What does not agree.
run "$FWA" op --check "$golden/falcon1_basic.h5" --dtype f32 --tolerance 1e-12
expect 1 "1 of 1 case off"
check "the error of grad/dk is not printed" grep -q 'grad/dk .*error' out

# Usage.
run "$FWA" op --rule deltanet --in "$golden/falcon1_basic.h5" --out bad.h5
expect 2 "falcon1_basic.h5" "attribute rule is 'falcon1', expected 'deltanet'"
run "$FWA" op --rule falcon9 --in "$golden/falcon1_basic.h5" --out bad.h5
expect 2 "falcon9" "no such rule"
run "$FWA" op --in "$golden/falcon1_basic.h5" --out bad.h5 --chunk 0
expect 2 "--chunk '0'" "from 1"
run "$FWA" op --in "$golden/falcon1_basic.h5" --out bad.h5 --form fast
expect 2 "--form 'fast'" "recurrent, parallel, chunk"
run "$FWA" op --in "$golden/falcon1_basic.h5" --out bad.h5 --dtype f16
expect 2 "--dtype 'f16'"
run "$FWA" op --in "$golden/falcon2_basic.h5" --out bad.h5 --dtype bf16
expect 2 "falcon2: bf16"
run "$FWA" op --in "$golden/falcon1_basic.h5"
expect 2 "needs --out"
run "$FWA" op --out bad.h5
expect 2 "--in or --check"
run "$FWA" op --in missing.h5 --out bad.h5
expect 2 "missing.h5"
echo text >text.h5
run "$FWA" op --in text.h5 --out bad.h5
expect 2 "text.h5"

# Rank 0 alone reads the case; what it says ends the others too.
on 2 op --check text.h5
expect 2 "text.h5"
on 2 op --check "$golden/falcon1_basic.h5" --tolerance 0
expect 1 "1 of 1 case off"
on 2 op --check "$golden/falcon1_basic.h5"
expect 0
check_not "an answer was written without a sound case" test -e bad.h5
run "$FWA" op --in "$golden/falcon1_basic.h5" --out "$golden/falcon1_basic.h5"
expect 2 "is the case itself"
run "$FWA" op --in "$golden/falcon1_basic.h5" --out nowhere/answer.h5
expect 2 "nowhere/answer.h5"
finish
