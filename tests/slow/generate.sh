#!/bin/sh
# A text of 100,000 tokens takes the memory of a short one.
. "$(dirname "$0")/../cli/lib.sh"
limit=1800
cat >recurrent.yaml <<'YAML'
base: tiny.yaml
model: {layers: 2, mixers: [one, many]}
train: {steps: 1}
YAML
trained 1 recurrent recurrent.yaml
run "$FWA" generate runs/recurrent --prompt 1 --tokens 100000 --ignore-end --json long.json
expect 0
number() {
    sed 's/.*"'"$1"'": \([0-9.]*\).*/\1/' long.json
}
check "not 100000 tokens" test "$(number made)" = 100000
check "memory grows" test $(($(number used_bytes_last) - $(number used_bytes_first))) -lt 2000000
finish
