#!/bin/sh
# debug.profile: the table in the log and profile.json, on one and two ranks, with the curve of a run without it; a run
# that ends before; `fwa bench step --profile`, and its check on configurations of this project.
. "$(dirname "$0")/lib.sh"

trained 1 plain tiny.yaml train.steps=6
check_not "a profile that nobody asked for" test -e runs/plain/profile.json
for ranks in 1 2; do
    trained "$ranks" "timed$ranks" tiny.yaml train.steps=6 train.micro_batch=4 debug.profile=3
    close_numbers plain "timed$ranks" loss 1e-5
    check "no table in the log" grep -q "where the time goes: .* mean of 3 " "runs/timed$ranks/log.txt"
    check "the rule has no line" grep -q "rule backward " "runs/timed$ranks/log.txt"
    # shellcheck disable=SC2016 # awk's variables, not the shell's
    check "profile.json: $(cat "runs/timed$ranks/profile.json")" awk '
    /"steps": 3/ { head = 1 }
    /"part": / { parts++; match($0, /"percent": [0-9.e+-]*/); sum += substr($0, RSTART + 11, RLENGTH - 11) }
    /"operator": "gemm"/ { products = 1 }
    END { exit !(head && products && parts > 10 && sum > 99 && sum < 101) }' "runs/timed$ranks/profile.json"
done
# Speed is that of updates: a validation that takes far longer than an update is no part of it.
start=$(date +%s%N)
trained 1 looked tiny.yaml train.steps=4 eval.every=1 eval.batches=100
# shellcheck disable=SC2016 # awk's variables, not the shell's
check "validation counts as training" awk -v wall="$((($(date +%s%N) - start) / 1000000))" '
{ sum += $1 } END { exit !(NR == 4 && sum < wall / 2) }' <<ROWS
$(columns runs/looked/metrics.jsonl ms)
ROWS
trained 1 short tiny.yaml train.steps=4 debug.profile=100
check "a run that ends early has no profile" grep -q '"steps": 2,' runs/short/profile.json

run "$FWA" bench step tiny.yaml train.micro_batch=2 train.global_batch=2 \
    train.seq_len=16 task.name=lm --steps 40 --profile
expect 0
check "no table: $(cat out)" grep -q "where the time goes" out
check "no JSON line" grep -q '"bench": "step"' out

# A logit_scale of 8 starts far from a uniform guess.
for configuration in addition/demo lm/bytes; do
    run "$FWA" bench step "${FWA_SOURCE_DIR:?}/configs/$configuration.yaml" train.global_batch=4 train.micro_batch=2 \
        --steps 2
    expect 0
done
# Gradients cut to next to nothing move no weight.
run "$FWA" bench step tiny.yaml optimizer.clip=1e-15 task.name=lm --steps 2
expect 1 "check failed: after 5 steps"
finish
