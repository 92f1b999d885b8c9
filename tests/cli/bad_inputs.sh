#!/bin/sh
# Named pipes, folders and devices in place of files: exit code 2, and nobody waits for a writer that never comes. What is
# open already is read: standard input, a pipe of the shell; and named pipes where text is read as it comes.
. "$(dirname "$0")/lib.sh"
printf 'a cat saw a hat on a mat and sat on it\n' >short.txt
awk 'BEGIN { for (i = 0; i < 200; i++) print "a cat saw a hat on mat " i }' >text.txt
run "$FWA" data tokenize text.txt --tokenizer bytes --val 0 --out bytes
expect 0
cat >bytes.yaml <<'YAML'
base: tiny-lm.yaml
data: {train: bytes/train_*.bin, val: bytes/train_*.bin}
train: {steps: 2, seq_len: 48}
YAML
trained 1 lm bytes.yaml
run "$FWA" export runs/lm away
expect 0
mkfifo pipe pipe.bin
mkdir folder.bin
limit=20

# refused TEXT COMMAND...
refused() {
    text=$1
    shift
    run "$FWA" "$@"
    expect 2 "$text"
    check_not "$what: a mistake without words" grep -q "out of memory" err
}
for kind in pipe /dev/zero; do
    word="$kind is a "
    refused "$word" train $kind run.name=new
    refused "$word" bench step $kind
    refused "$word" sweep $kind --list
    refused "$word" train bytes.yaml run.name=new data.train=$kind
    refused "$word" data inspect $kind
    refused "$word" eval runs/lm --task ppl --tokenizer bytes $kind
    refused "$word" eval runs/lm --task mc --tokenizer bytes $kind
    refused "$word" op --check $kind
    refused "$word" generate runs/lm --tokenizer bytes --state-in $kind --tokens 1
    refused "$kind" eval $kind
    refused "$kind" train bytes.yaml run.name=new --init-from $kind
    refused "$kind" import $kind runs/new
done
refused "pipe.bin is a pipe" eval runs/lm --task mc pipe.bin
refused "folder.bin is a folder" eval runs/lm --task mc folder.bin
refused "folder.bin is a folder" train folder.bin
refused "/dev/zero is a device" data tokenize /dev/zero --tokenizer bytes --out new
refused "/dev/zero is a device" generate runs/lm --tokenizer bytes --prompt-file /dev/zero --tokens 1
check_not "a refused input left a run" test -e runs/new

# Files of a folder
for file in config.json model.safetensors; do
    cp -r away odd
    rm odd/$file
    mkfifo odd/$file
    refused "odd/$file is a pipe" import odd runs/new
    rm -r odd
done
mkdir vocabulary
mkfifo vocabulary/encoder.json vocabulary/vocab.bpe
refused "vocabulary/encoder.json is a pipe" data tokenize text.txt --tokenizer vocabulary --out new
cp -r runs/lm runs/odd
rm runs/odd/checkpoints/step_00000002/manifest.json
mkfifo runs/odd/checkpoints/step_00000002/manifest.json
run "$FWA" checkpoint verify runs/odd
expect 1
check "not said to be unfinished: $(cat out)" grep -qF "it has no manifest.json" out
rm -r runs/odd
mkdir -p runs/odd
mkfifo runs/odd/metrics.jsonl
refused "runs/odd/metrics.jsonl is a pipe" train bytes.yaml run.name=odd

# Open already
run sh -c "cat text.txt | \"$FWA\" data tokenize /dev/stdin --tokenizer bytes --val 0 --out standard"
expect 0
check "other tokens" cmp bytes/train_000000.bin standard/train_000000.bin
run sh -c "cat tiny.yaml | \"$FWA\" train /dev/stdin --dry-run"
expect 0
run sh -c "cat short.txt | \"$FWA\" eval runs/lm --task ppl --tokenizer bytes /dev/stdin"
expect 0
run sh -c "cat short.txt | \"$FWA\" generate runs/lm --tokenizer bytes --prompt-file /dev/stdin --tokens 2"
expect 0
run "$FWA" generate runs/lm --tokenizer bytes --prompt-file /dev/null --tokens 2
expect 0
if command -v bash >/dev/null; then
    # shellcheck disable=SC2016 # the inner shell's variable
    run bash -c '"$0" data tokenize <(cat text.txt) --tokenizer bytes --val 0 --out process' "$FWA"
    expect 0
    check "other tokens" cmp bytes/train_000000.bin process/train_000000.bin
fi

# A file does not take the place of a pipe or device. (Devices stay out of this test: a program that fails it harms them.)
refused "pipe is a pipe" generate runs/lm --tokenizer bytes --prompt a --tokens 1 --state-out pipe
refused "pipe is a pipe" op --rule falcon1 --in "${FWA_SOURCE_DIR:?}/tests/golden/falcon1_basic.h5" --out pipe
refused "folder.bin is a folder" op --rule falcon1 --in "$FWA_SOURCE_DIR/tests/golden/falcon1_basic.h5" --out folder.bin
check "the pipe is gone" test -p pipe
check_not "left over" test -e pipe.tmp

# A named pipe with text
start "$FWA" data tokenize pipe --tokenizer bytes --val 0 --out named
timeout "$limit" sh -c "cat text.txt >pipe"
ended
expect 0 "pipe is a pipe: waiting for what is written to it"
check "other tokens" cmp bytes/train_000000.bin named/train_000000.bin

# More options than are kept
many=
for number in $(seq 65); do many="$many --eval $number"; done
# shellcheck disable=SC2086 # many words
run "$FWA" sweep none.yaml $many
expect 2 "fwa sweep: at most 64 options are taken"

# A stack of 64 KiB is enough for every command to say what it lacks, where no sanitizer needs more (info asks the CUDA
# runtime, which does).
# on_small_stack KIB CODE WORDS
on_small_stack() {
    # shellcheck disable=SC2016,SC2086 # the inner shell's variables; several words
    run sh -c 'ulimit -s "$1" && shift && exec "$@"' sh "$1" "$FWA" $3
    expect "$2"
}
if ! ldd "$FWA" | grep -q libasan; then
    for words in --version help "help train" "data addition"; do on_small_stack 64 0 "$words"; done
    for words in "train none.yaml" "eval none --grid 1-4" "generate none" "sweep none.yaml" "export none new" \
        "import none new" "data inspect none" "data tokenize none --out new" "checkpoint verify none" \
        "checkpoint diff none none" "report none -o new.html" "bench io --repeats 0" "bench step none.yaml" \
        "op --in none.h5 --out new.h5"; do
        on_small_stack 64 2 "$words"
    done
    # Training takes somewhat more, for the BLAS; its threads do not have stacks of this size.
    for threads in 1 4; do
        for precision in f32 f64; do
            on_small_stack 96 0 "train tiny.yaml train.steps=3 run.name=small-$threads-$precision run.threads=$threads
                train.precision=$precision checkpoint.every=1"
            on_small_stack 96 0 "checkpoint verify runs/small-$threads-$precision"
        done
    done
fi
finish
