#!/bin/sh
# Generation: a text read in parts, with its memory kept in a file, goes on as the same text read at once, bit by bit;
# memory does not grow; what cannot be is named, and leaves nothing half-written.
. "$(dirname "$0")/lib.sh"

# Recurrent layers, one of them with a window; and the same with softmax attention among them.
awk 'BEGIN {
    split("the cat a dog one bird sat ran saw on by near red old big mat hat hill", w, " ")
    for (i = 0; i < 600; i++) { x = (x * 1103 + 12345) % 65536; printf "%s%s", i ? " " : "", w[int(x / 16) % 18 + 1] }
}' >text.txt
cat >recurrent.yaml <<'YAML'
base: tiny-lm.yaml
model: {layers: 2, mixers: [one, many]}
data: {train: bytes/train_*.bin, val: ""}
train: {steps: 12, seq_len: 48}
YAML
cat >mixed.yaml <<'YAML'
base: recurrent.yaml
model: {layers: 3, mixers: [one, many, all]}
train: {steps: 2, seq_len: 220}
YAML
run "$FWA" data tokenize text.txt --tokenizer bytes --val 0 --out bytes
expect 0
trained 1 recurrent recurrent.yaml
trained 1 mixed mixed.yaml
trained 1 other recurrent.yaml run.seed=1

generate() { # generate RUN NAME ARGUMENTS...: NAME.txt, NAME.json
    model=$1 name=$2
    shift 2
    run "$FWA" generate "runs/$model" --tokenizer bytes --json "$name.json" "$@"
    cp out "$name.txt"
}
tokens() { # tokens NAME...: of several files one behind the other
    for name in "$@"; do sed 's/.*"tokens": \[\([^]]*\).*/\1/; s/, /\n/g; /^$/d' "$name.json"; done
}
number() { # number NAME KEY
    sed 's/.*"'"$2"'": \([0-9.]*\).*/\1/' "$1.json"
}

# A prompt cut anywhere: before, at and behind a block of 64 tokens, and in pieces.
head -c 150 text.txt >prompt.txt
for model in recurrent mixed; do
    generate "$model" whole --prompt-file prompt.txt --tokens 30 --seed 3 --state-out whole.h5
    expect 0
    check "not 30 tokens" test "$(tokens whole | wc -l)" = 30
    check "text and tokens differ" test "$(printf '%b' "$(tokens whole | awk '{ printf "\\0%03o", $1 }')")" = "$(cat whole.txt)"
    for cut in 1 63 64 65 149; do
        head -c $cut prompt.txt >part-1.txt
        tail -c +$((cut + 1)) prompt.txt >part-2.txt
        generate "$model" first --prompt-file part-1.txt --tokens 0 --state-out first.h5
        expect 0
        generate "$model" second --state-in first.h5 --prompt-file part-2.txt --tokens 30 --seed 3 --state-out second.h5
        expect 0
        check "$model cut at $cut: other text" cmp whole.txt second.txt
        check "$model cut at $cut: another memory" cmp whole.h5 second.h5
    done
    # Text made in parts.
    generate "$model" begin --prompt-file prompt.txt --tokens 11 --seed 3 --state-out begin.h5
    expect 0
    generate "$model" rest --state-in begin.h5 --tokens 19 --seed 3 --state-out rest.h5
    expect 0
    tokens begin rest >parts.ids
    tokens whole >whole.ids
    check "$model: text made in parts differs" cmp whole.ids parts.ids
    check "$model: the memory of text made in parts differs" cmp whole.h5 rest.h5
done
generate recurrent seed --prompt-file prompt.txt --tokens 30 --seed 4
check_not "another seed makes the same text" cmp -s seed.txt whole.txt

# A memory is the same model's in another precision.
generate mixed wide --state-in begin.h5 --tokens 19 --temperature 0 train.precision=f64
expect 0
generate mixed narrow --state-in begin.h5 --tokens 19 --temperature 0
expect 0
check "f64 goes on in another way than f32" cmp wide.txt narrow.txt

# The most probable token: whatever the seed, and by another way.
generate recurrent greedy --prompt 'the cat sat' --tokens 40 --temperature 0
expect 0
generate recurrent one --prompt 'the cat sat' --tokens 40 --top-k 1 --seed 9
expect 0
check "temperature 0 and top-k 1 differ" cmp greedy.txt one.txt
printf 'the cat sat' >short.txt
run sh -c "\"$FWA\" generate runs/recurrent --tokenizer bytes --prompt-file - --tokens 40 --temperature 0 <short.txt"
expect 0
check "standard input is another prompt" cmp greedy.txt out

# Memory does not grow with the text.
generate recurrent long --prompt a --tokens 3000 --temperature 1.5 --ignore-end
expect 0
check "not 3000 tokens" test "$(number long made)" = 3000
most=500000
! ldd "$FWA" | grep -q libasan || most=400000000 # which keeps 256 MB of freed memory
check "memory grows" test $(($(number long used_bytes_last) - $(number long used_bytes_first))) -lt $most

# Mistakes
refused() { # refused TEXT -- ARGUMENTS...
    text=$1
    shift 2
    run "$FWA" generate "$@" --state-out refused.h5 --json refused.json
    expect 2 "$text"
    check "written in spite of a mistake: $what" sh -c '! ls refused.* 2>/dev/null'
}
refused 'attention remembers 220' -- runs/mixed --tokenizer bytes --prompt-file prompt.txt --tokens 100
refused 'room for 16' -- runs/mixed --tokenizer bytes --state-in whole.h5 --tokens 1 --context 16
refused 'another model' -- runs/other --tokenizer bytes --state-in first.h5 --tokens 1
refused 'another model' -- runs/recurrent --tokenizer bytes --state-in whole.h5 --tokens 1
trained 1 again recurrent.yaml --init-from runs/other # the same configuration and step, other weights
generate recurrent begun --prompt 'the cat' --tokens 1 --state-out begun.h5
expect 0
refused 'another model' -- runs/again --tokenizer bytes --state-in begun.h5 --tokens 1
refused 'nothing.h5' -- runs/recurrent --tokenizer bytes --state-in nothing.h5
refused 'text.txt' -- runs/recurrent --tokenizer bytes --state-in text.txt
refused 'its digest is not at the end' -- runs/recurrent --tokenizer bytes \
    --state-in runs/recurrent/checkpoints/step_00000012/shard.rank00000.h5
head -c 3000 first.h5 >short.h5
refused 'cut short' -- runs/recurrent --tokenizer bytes --state-in short.h5
size=$(wc -c <first.h5)
for at in 90 900 3000 $((size / 2)) $((size - 60)) $((size - 5)); do # anywhere, also where HDF5 would read wild
    cp first.h5 damaged.h5
    printf '\377\001\377' | dd of=damaged.h5 bs=1 seek="$at" conv=notrunc 2>/dev/null
    refused 'damaged.h5 is damaged' -- runs/recurrent --tokenizer bytes --state-in damaged.h5 --tokens 1
done
refused 'runs is a folder: expected a file' -- runs/recurrent --tokenizer bytes --prompt-file runs
refused '--seed' -- runs/recurrent --prompt a --seed 99999999999999999999
refused 'text.txt is a file' -- text.txt --prompt a
for target in nowhere/x runs; do # said before the text is made
    for option in --state-out --json; do
        run "$FWA" generate runs/recurrent --tokenizer bytes --prompt a $option $target
        expect 2 "$option $target"
        check "text was made for nothing" test ! -s out
    done
done
refused 'UTF-8' -- runs/recurrent --tokenizer bytes --prompt "$(printf 'a\377')"
refused 'data/gpt2' -- runs/recurrent --prompt a
refused "'12'" -- runs/recurrent 12
refused '--top-p' -- runs/recurrent --prompt a --top-p 0
refused '--temperature' -- runs/recurrent --prompt a --temperature -1
refused 'nothing to go on from' -- runs/recurrent --tokenizer bytes --no-mark
mkdir wide
printf '#version: 0.2\na a\n' >wide/vocab.bpe
awk 'BEGIN {
    printf "{"
    for (b = 0; b < 256; b++) {
        spelled = (b >= 33 && b <= 126) || (b >= 161 && b != 173) ? b : 256 + others++
        printf "\"\\u%04x\": %d, ", spelled, b
    }
    printf "\"aa\": 256"
    for (i = 257; i < 300; i++) printf ", \"b%d\": %d", i, i
    printf ", \"<|endoftext|>\": 300}\n"
}' >wide/encoder.json
refused '301 ids' -- runs/recurrent --tokenizer wide --prompt a
on 2 generate runs/recurrent --tokenizer bytes --prompt a
expect 2 '2 processes'
# shellcheck disable=SC2016 # the inner shell's
run sh -c '"$FWA" generate runs/recurrent --tokenizer bytes --prompt a --tokens 3 >/dev/full'
expect 1 'standard output'
finish
