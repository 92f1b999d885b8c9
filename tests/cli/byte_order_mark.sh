#!/bin/sh
# JSONL that begins with a byte order mark is read as without it; anywhere else the mark is a mistake.
. "$(dirname "$0")/lib.sh"
token_data
trained 1 lm tiny-lm.yaml train.steps=1
printf '{"text": "a cat sat"}\n{"text": "on a mat"}\n' >plain.jsonl
printf '{"query": "a cat", "choices": ["sat", "mat"], "gold": 0}\n' >questions.jsonl
for name in plain questions; do
    { printf '\357\273\277' && cat $name.jsonl; } >marked-$name.jsonl
    { printf '\357\273\277\r\n' && cat $name.jsonl; } >alone-$name.jsonl
    { cat $name.jsonl && printf '\357\273\277' && cat $name.jsonl; } >late-$name.jsonl
    { printf '\357\273\277\357\273\277' && cat $name.jsonl; } >twice-$name.jsonl
done

# scores FILE TASK: the numbers of an evaluation without the file's name
scores() {
    run "$FWA" eval runs/lm --task "$2" --tokenizer bytes "$1" --json scores.json
    expect 0
    sed "s/${1%.jsonl}/NAME/g" scores.json
}
for kind in marked alone; do
    for name in plain questions; do
        task=ppl
        [ $name = plain ] || task=mc
        scores $name.jsonl $task >without.txt
        scores $kind-$name.jsonl $task >with.txt
        check "$kind-$name.jsonl has other scores" diff without.txt with.txt
    done
    for file in plain $kind-plain; do
        run "$FWA" data tokenize "$file.jsonl" --tokenizer bytes --val 0 --out "$file"
        expect 0
    done
    check "$kind-plain.jsonl has other tokens" cmp plain/train_000000.bin "$kind-plain"/train_000000.bin
    rm -r plain
done

for line in late-plain:3 twice-plain:1; do
    file=${line%:*}.jsonl
    run "$FWA" data tokenize "$file" --tokenizer bytes --val 0 --out bad
    expect 2 "$file:${line#*:}"
    run "$FWA" eval runs/lm --task ppl --tokenizer bytes "$file"
    expect 2 "$file:${line#*:}"
done
for line in late-questions:2 twice-questions:1; do
    file=${line%:*}.jsonl
    run "$FWA" eval runs/lm --task mc --tokenizer bytes "$file"
    expect 2 "$file:${line#*:}"
done
finish
