#!/bin/sh
# Files whose names look like patterns are taken by their names, wherever patterns are; patterns still match.
. "$(dirname "$0")/lib.sh"
token_data
mkdir 'a[1]' a1
cp data/train_1.bin 'a[1]/x.bin'
cp data/val.bin 'a[1]/v{1,2}.bin'
cp data/train_2.bin a1/x.bin
printf 'a cat sat on a mat and saw a hat\n' >'a[1]/text?.txt'
printf '{"query": "a cat", "choices": ["sat", "mat"], "gold": 0}\n' >'a[1]/q*.jsonl'

run "$FWA" data inspect 'a[1]/x.bin'
expect 0
check "another file was read" grep -qF 'a[1]/x.bin' out
run "$FWA" data inspect 'a[1]/v{1,2}.bin' 'a[1]/x.bin' 'data/train_?.bin' --json both.json
expect 0
check "not all files are there: $(cat both.json)" grep -qF '"files": 4' both.json
trained 1 named tiny-lm.yaml 'data.train=a[1]/x.bin' 'data.val=a[1]/v{1,2}.bin' train.steps=2 eval.every=2
trained 1 plain tiny-lm.yaml data.train=data/train_1.bin data.val=data/val.bin train.steps=2 eval.every=2
same_curve plain named
for file in 'a[1]/v{1,2}.bin' 'a[1]/text?.txt'; do
    run "$FWA" eval runs/named --task ppl --tokenizer bytes "$file"
    expect 0
done
run "$FWA" eval runs/named --task mc --tokenizer bytes 'a[1]/q*.jsonl'
expect 0
run "$FWA" data tokenize 'a[1]/text?.txt' --tokenizer bytes --val 0 --out made
expect 0

rm 'a[1]/x.bin' # now a pattern
run "$FWA" data inspect 'a[1]/x.bin'
expect 0
check "the pattern matches nothing" grep -qF 'a1/x.bin' out
run "$FWA" data inspect data/val.bin 'a[2]/x.bin'
expect 2 'no file matches "a[2]/x.bin"'
finish
