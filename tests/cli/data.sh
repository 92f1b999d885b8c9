#!/bin/sh
# Text to token shards and a look into them: right ids, the same files for every number of threads, nothing half-written.
. "$(dirname "$0")/lib.sh"

# A tokenizer in GPT-2's files: byte b has id b; then t h, th e, " the", a a, aa aa; the document mark is 261.
mkdir tiny
printf '#version: 0.2\nt h\nth e\n\304\240 the\na a\naa aa\n' >tiny/vocab.bpe
awk 'BEGIN {
    printf "{"
    for (b = 0; b < 256; b++) {
        spelled = (b >= 33 && b <= 126) || (b >= 161 && b != 173) ? b : 256 + others++
        printf "\"\\u%04x\": %d, ", spelled, b
    }
    printf "\"th\": 256, \"the\": 257, \"\\u0120the\": 258, \"aa\": 259, \"aaaa\": 260, \"<|endoftext|>\": 261}\n"
}' >tiny/encoder.json

# tokens FILE: the ids of a shard on one line
tokens() {
    tail -c +1025 "$1" | od -An -v -tu2 | tr -s ' \n' ' '
}

# is FILE IDS
is() {
    check "$1: expected$2, got$(tokens "$1" | head -c 300)" test "$(tokens "$1")" = "$2 "
}

tokenize() {
    run "$FWA" data tokenize --tokenizer tiny "$@"
}

# Ids, document marks, and the header.
printf 'the the\naaaaa' >one.txt
printf 'in\0\377' >two.txt
: >empty.txt
tokenize one.txt empty.txt two.txt --val 0 --out shards
expect 0
check "the summary does not count" grep -q 'train *2 documents *11 tokens *1 file' out
is shards/train_000000.bin " 261 257 258 10 260 97 261 105 110 0 255"
check "the header" test "$(head -c 12 shards/train_000000.bin | od -An -tu4 | tr -s ' ')" = " 20240520 1 11"
check "more than one file" test "$(ls shards)" = train_000000.bin

# Lines as documents, from standard input; JSONL with escapes, NUL and a member of another name; plain bytes.
printf 'the\n\nthe the\r\naa' >lines.txt
# shellcheck disable=SC2016 # the inner shell's variable
run sh -c '"$FWA" data tokenize --tokenizer tiny - --documents line --val 0 --out from-pipe <lines.txt'
expect 0
is from-pipe/train_000000.bin " 261 257 261 257 258 261 259"
printf '{"body": "the\\u0000\\u00e9", "n": [1]}\n \n{"body": ""}\n{"n": 2.5, "body": " the"}' >docs.jsonl
tokenize docs.jsonl --field body --val 0 --out json
expect 0
is json/train_000000.bin " 261 257 0 195 169 261 258"
check "empty documents are not counted" grep -q '^left out: 1 document without text$' out
run "$FWA" data tokenize two.txt --tokenizer bytes --val 0 --out bytes
expect 0
is bytes/train_000000.bin " 256 105 110 0 255"

# A few megabytes: the files depend neither on the number of threads nor on where the text was cut to read it, and shards
# of any size are one stream.
awk 'BEGIN {
    for (i = 0; i < 60000; i++) {
        x = (x * 16807 + 11) % 2147483647
        printf "%s the aaaaaaa%s\303\251 then,%s", x, i % 7 ? " " : "\n\n", i % 5 ? "" : "  \302\240\n"
    }
    print ""
}' >long.txt
awk '{ printf "%s%s", (NR > 1 ? "\\n" : "{\"text\": \""), $0 } END { printf "\\n\"}\n" }' long.txt >long.jsonl
tokenize long.txt --val 0 --threads 3 --out whole
expect 0
tokenize long.jsonl --val 0 --out at-once
expect 0
tokens whole/train_000000.bin >whole.ids
tokens at-once/train_000000.bin >at-once.ids
check "a text that is read in stretches has other ids" cmp whole.ids at-once.ids
tokenize long.txt long.txt --documents line --val 0.3 --threads 1 --out one-thread
expect 0
tokenize long.txt long.txt --documents line --val 0.3 --threads 4 --shard-tokens 100001 --out many
expect 0
for split in train val; do
    for shard in "many/$split"_*.bin; do tail -c +1025 "$shard"; done >many.ids
    tail -c +1025 one-thread/${split}_000000.bin >one.ids
    check "$split: other tokens with more threads and smaller shards" cmp one.ids many.ids
    check "$split: only one shard" test -e many/${split}_000001.bin
    check "shards of 100001 tokens" test "$(wc -c <many/${split}_000000.bin)" = 201026
done

# The split is the text's: the same document falls to the same side wherever it stands, and the seed moves it.
awk 'BEGIN { for (i = 0; i < 400; i++) print "document " i }' >numbers.txt
tac numbers.txt >backwards.txt
for name in numbers backwards; do
    tokenize $name.txt --documents line --val 0.25 --out $name
    expect 0
    tokens $name/val_000000.bin | sed -e 's/ *$//' -e 's/ 261/\n/g' | sort >$name.val
done
check "the split depends on the order" cmp numbers.val backwards.val
share=$(grep -c . numbers.val)
check "$share of 400 documents are for validation, a quarter was asked for" test "$share" -gt 70 -a "$share" -lt 130
tokenize numbers.txt --documents line --val 0.25 --seed 1 --out seeded
expect 0
check_not "another seed, the same split" cmp -s numbers/val_000000.bin seeded/val_000000.bin

# A line of megabytes without a space is no reason to stop.
head -c 4000000 /dev/zero | tr '\0' a >line.txt
tokenize line.txt --val 0 --out huge
expect 0
check "the summary does not count a million tokens" grep -q ' 1,000,001 tokens' out

# Killed at any time: no folder, or the whole of it; the next run starts over.
for signal in KILL TERM; do
    mkfifo pipe
    start "$FWA" data tokenize pipe --tokenizer tiny --val 0 --shard-tokens 50000 --threads 2 --out killed
    exec 3<>pipe
    for copy in 1 2 3 4 5 6 7 8; do timeout "$limit" cat long.txt || note_failure "copy $copy is not read"; done >&3
    tries=0
    until [ -s killed.tmp/train_000002.bin ] || [ $((tries += 1)) -gt $((limit * 20)) ]; do sleep 0.05; done
    check "nothing was written before the signal" test -s killed.tmp/train_000001.bin
    kill -$signal "$background"
    ended
    check_not "a killed run made its folder" test -e killed
    exec 3>&-
    rm -f pipe
done
tokenize long.txt --val 0 --shard-tokens 100000000 --out killed
expect 0
check "what the killed run left is in the way" test "$(ls killed)" = train_000000.bin
check_not "left over: killed.tmp" test -e killed.tmp
check "after a kill the tokens are others" cmp killed/train_000000.bin whole/train_000000.bin

# What is in the shards.
run "$FWA" data inspect 'many/*.bin' --tokenizer tiny --json facts.json
expect 0
check "inspect: no file names" grep -q 'many/val_000001.bin' out
check "inspect: no documents" grep -q 'documents, each behind token 261' out
check "inspect: no token text" grep -q '" the"' out
check "inspect: no histogram" grep -q '#' out
check "inspect: the file has no counts" grep -q '"mark": 261' facts.json
run "$FWA" data inspect 'many/*.bin' --samples 1
expect 0
check "inspect: documents of another tokenizer" grep -q '^no token 50256, which marks documents' out
run "$FWA" data inspect shards/train_000000.bin --tokenizer tiny --samples 2 --length 4
expect 0
check "inspect: no sample" grep -qF '0: the the\naaaa ...' out
check "inspect: bytes are not escaped" grep -qF '1: in\x00\xFF' out
check "inspect: lengths" grep -q 'shortest 4, median 5, mean 4.5, longest 5' out
run "$FWA" data inspect shards/train_000000.bin --tokenizer bytes
expect 0
check "inspect: ids of another tokenizer are not noticed" grep -q 'WARNING: 5 tokens' out
run "$FWA" data inspect shards/train_000000.bin
expect 0
check "inspect: no ids without a tokenizer" grep -q '261 257 258 10' out

# A model trains on them.
trained 1 on-text tiny-lm.yaml data.train='one-thread/train_*.bin' data.val='one-thread/val_*.bin' train.steps=2

# Mistakes: exit code 2, what is wrong, and nothing in the folder.
# refuses TEXT... after tokenize
refuses() {
    expect 2 "$@"
    check_not "$what: left bad or bad.tmp" sh -c 'test -e bad || test -e bad.tmp'
}
printf '{"text": "a"}\n{"text": "b"\n{"text": "c"}\n' >broken.jsonl
tokenize broken.jsonl --out bad
refuses broken.jsonl:2
printf '{"text": "a"}\n{"txt": "b"}\n' >broken.jsonl
tokenize broken.jsonl --out bad
refuses broken.jsonl:2 '"text"' --field
printf '{"text": "a"}\n\n{"text": 7}\n' >broken.jsonl
tokenize broken.jsonl --out bad
refuses broken.jsonl:3 "another type"
printf '{"text": "a"}\n[]\n' >broken.jsonl
tokenize broken.jsonl --out bad
refuses broken.jsonl:2 "no object"
printf '{"text": "\377"}\n' >broken.jsonl
tokenize broken.jsonl --out bad
refuses broken.jsonl:1 UTF-8
tokenize empty.txt --out bad
refuses "no text"
tokenize one.txt --out bad
refuses "fell to val" "--val 0" "--documents line"
tokenize nothing.txt --out bad
refuses nothing.txt
tokenize tiny --out bad
refuses "is a folder"
tokenize one.txt long.jsonl --out bad
refuses --format
run "$FWA" data tokenize one.txt --out bad
refuses data/gpt2 encoder.json
run "$FWA" data tokenize one.txt --out bad --tokenizer shards
refuses encoder.json
tokenize one.txt
refuses --out
tokenize --out bad
refuses "no input"
tokenize one.txt --out bad --val 1
refuses "--val '1'"
tokenize one.txt --out bad --format xml
refuses "--format 'xml'" jsonl
tokenize one.txt --val 0 --out shards
expect 2 shards "new or empty"
is shards/train_000000.bin " 261 257 258 10 260 97 261 105 110 0 255"
run "$FWA" data inspect one.txt
expect 2 one.txt
run "$FWA" data inspect shards/train_000000.bin --json nowhere/facts.json
expect 2 "--json nowhere/facts.json"
run "$FWA" data inspect 'none*.bin'
expect 2 'none*.bin'
run "$FWA" data
expect 2 tokenize inspect addition
run "$FWA" data fly
expect 2 "'fly'"
on 2 data inspect shards/train_000000.bin
expect 2 "without mpirun"
finish
