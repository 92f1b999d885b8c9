#!/bin/sh
# Perplexity and multiple choice: scores are those of the text alone, whatever batch, ranks and layout; bad input is named.
. "$(dirname "$0")/lib.sh"

# A language model of bytes that has learned a little of a text.
awk 'BEGIN {
    split("the cat a dog one bird sat ran saw on by near red old big mat hat hill", w, " ")
    for (i = 0; i < 900; i++) { x = (x * 1103 + 12345) % 65536; printf "%s%s", i ? " " : "", w[int(x / 16) % 18 + 1] }
}' >text.txt
cat >bytes.yaml <<'YAML'
base: tiny-lm.yaml
data: {train: bytes/train_*.bin, val: bytes/train_*.bin}
train: {steps: 25, seq_len: 48}
YAML
run "$FWA" data tokenize text.txt --tokenizer bytes --val 0 --out bytes
expect 0
trained 1 lm bytes.yaml eval.every=25 eval.batches=2

value() { # value FILE KEY: a number of a JSON file of one object
    sed -n "s/.*\"$2\": \([-0-9.e+]*\).*/\1/p" "$1" | head -n 1
}
# near A B TIMES LIMIT: |A * TIMES - B| <= LIMIT max(1, |B|)
# shellcheck disable=SC2317 # called through check
near() {
    awk -v a="$1" -v b="$2" -v times="$3" -v limit="$4" 'BEGIN {
        d = a * times - b; s = b < 0 ? -b : b
        exit !(a != "" && b != "" && (d < 0 ? -d : d) <= limit * (s > 1 ? s : 1)) }'
}
evaluate() { # evaluate RANKS TASK ARGUMENTS...
    ranks=$1 task=$2
    shift 2
    on "$ranks" eval runs/lm --task "$task" --tokenizer bytes "$@"
}

# The validation of training is ppl on the same windows.
evaluate 1 ppl --examples 16 --json ppl.json
expect 0
check "ppl is not the validation loss" near "$(value ppl.json loss)" \
    "$(columns runs/lm/metrics.jsonl val_loss | tail -n 1)" 1 1e-5
for ranks in 2 3; do
    evaluate "$ranks" ppl --examples 16 --batch 3 --json "ppl-$ranks.json"
    expect 0
    check "$ranks ranks: another loss" near "$(value "ppl-$ranks.json" loss)" "$(value ppl.json loss)" 1 1e-6
done
check "16 windows of 48 bytes" test "$(value ppl.json bytes) $(value ppl.json tokens)" = "768 768"

# Text behind a document mark; all of its bytes and words count.
printf ' a cat saw  the\nhat' >short.txt
printf '{"context": "", "target": "a cat saw  the\\nhat"}\n' >short.jsonl
evaluate 1 ppl short.txt --json short.json
expect 0
evaluate 1 mc short.jsonl --scores short.scores
expect 0
tokens=$(value short.json tokens)
check "tokens and words of a text" test "$tokens $(value short.json words)" = "19 5"
printf '{"text": "a cat"}\n{"text": "saw him"}\n' >two.jsonl
evaluate 1 ppl two.jsonl --json two.json
expect 0
check "a word ends with its text" test "$(value two.json bytes) $(value two.json words)" = "12 4"
check "mc and ppl differ on a text" near "$(value short.json loss)" "$(value short.scores logprob)" "-$tokens" 1e-5

# One word of 2000 letters: its perplexity is beyond any number.
awk 'BEGIN { for (i = 0; i < 2000; i++) printf "x" }' >word.txt
evaluate 1 ppl word.txt --json word.json
expect 0
check "a number that JSON does not have is not null" grep -q '"word_perplexity": null}' word.json

# A window that slides: the last two of ten targets see seven bytes in front of them, not all.
printf 'catdogsa b' >ten.txt
printf '{"context": "atdogsa", "target": "b"}\n' >ten.jsonl
evaluate 1 ppl ten.txt --context 8 --stride 2 --json ten.json
expect 0
evaluate 1 ppl ten.txt --context 8 --stride 2 --examples 1 --json eight.json
expect 0
evaluate 1 mc ten.jsonl --scores ten.scores
expect 0
rest=$(awk -v a="$(value ten.json loss)" -v b="$(value eight.json loss)" 'BEGIN { printf "%.7f", 10 * a - 8 * b }')
check "a sliding window scores others" near "$rest" "$(value ten.scores logprob)" -1 1e-4

# 101 questions with choices, with contexts to choose, and words; the same for every batch and number of ranks.
awk 'BEGIN {
    split("mat hat hill bird cat dog", w, " ")
    for (i = 0; i < 101; i++) {
        x = (x * 1103 + 12345) % 65536
        a = w[i % 6 + 1]; b = w[int(x / 64) % 6 + 1] substr("s and more of it", 1, i % 17)
        if (a == b) b = w[(i + 1) % 6 + 1] # of equal choices rounding would choose
        q = substr("the cat sat on the old red mat near one big hill", 1, 8 + i % 14)
        printf "{\"task\": \"piqa\", \"query\": \"%s\", \"choices\": [\"%s\", \"%s\", \"\303\251t\303\251\"], \"gold\": %d}\n", q, a, b, i % 3 >"piqa.jsonl"
        if (i < 20) printf "{\"task\": \"winogrande\", \"context_options\": [\"%s %s\", \"%s\"], \"continuation\": \"%s\", \"gold\": %d}\n", q, a, q, b, i % 2 >"wino.jsonl"
        if (i < 20) printf "{\"task\": \"words\", \"context\": \"%s \", \"target\": \"%s\"}\n", q, a >"words.jsonl"
    }
}'
mc() { # mc RANKS NAME ARGUMENTS...
    ranks=$1 name=$2
    shift 2
    evaluate "$ranks" mc "{piqa,wino,words}.jsonl" --scores "$name.scores" --json "$name.json" "$@"
    expect 0 || finish
}
numbers() { # a line a question: numbers only, choices kept apart
    sed 's/"task": "\([a-z]*\)"/\1/; s/[]["{}:,]/ /g; s/  */ /g; s/false/0/; s/true/1/' "$1"
}
mc 1 plain --batch 16
check "not 141 questions" test "$(wc -l <plain.scores)" = 141
check "the mean is not of the two published tasks" grep -q '"published_tasks": 2, "published_tasks_of": 8' plain.json
check "the table does not say which" grep -q 'mean of 2 of the paper.s 8 tasks' out
mc 1 single --batch 1
mc 2 two --batch 7
mc 3 three --batch 100
# close ONE OTHER LINES: the same numbers in as many lines, to rounding, which the place in a batch changes
# shellcheck disable=SC2317 # called through check
close() {
    awk -v lines="$3" '
    NR == FNR { row[FNR] = $0; next }
    {
        n = split(row[FNR], a, " ")
        if (n != NF || n < 6) bad = 1
        for (i = 1; i <= n; i++) {
            d = a[i] - $i; s = $i < 0 ? -$i : $i
            if ((d < 0 ? -d : d) > 1e-5 * (s > 1 ? s : 1)) { bad = 1; print row[FNR] " | " $0 }
        }
        seen++
    }
    END { exit bad || seen != lines }' "$1" "$2"
}
numbers plain.scores >one.txt
for name in single two three; do
    numbers $name.scores >other.txt
    check "$name: other scores or choices" close one.txt other.txt 141
done
# The choices are those of the scores: by sum, by characters (3 of "ete" with accents), by tokens (5 and the space).
# shellcheck disable=SC2016 # awk's variables
check "a choice is not the best one" sh -c '
    paste -d "|" plain.scores piqa.jsonl | head -n 101 | awk -F "|" "{
    split(\$1, s, /[][]/); split(s[2], l, \", \"); match(\$2, /choices.: \\[[^]]*/)
    split(substr(\$2, RSTART + 11, RLENGTH - 11), c, \", \")
    n[1] = length(c[1]) - 2; n[2] = length(c[2]) - 2; n[3] = 3
    best = 1; for (i = 2; i <= 3; i++) if (l[i] / n[i] > l[best] / n[best]) best = i
    if (\$1 !~ \"choice_by_characters.: \" best - 1) { print; bad = 1 }
    } END { exit bad || NR != 101 }"'

# The published mean takes every task in the paper's way, and its error is that of independent tasks.
for task in arc_challenge hellaswag; do sed "s/piqa/$task/" piqa.jsonl >$task.jsonl; done
evaluate 1 mc "{piqa,arc_challenge,hellaswag}.jsonl" --scores mean.scores --json mean.json
expect 0
# shellcheck disable=SC2016 # awk's variables
check "accuracy, published mean or error" awk '
function value(name) {
    if (!match($0, "\"" name "\": [0-9.e-]+")) return -1
    return substr($0, RSTART + length(name) + 4, RLENGTH - length(name) - 4)
}
function near(a, b) { return a - b < 1e-7 && b - a < 1e-7 }
FILENAME == "mean.scores" { right[value("choice") == value("gold")]++; next }
/"examples": 101/ {
    by_sum = value("accuracy"); p = /"piqa"/ ? by_sum : value("accuracy_by_characters")
    if (!near(by_sum, right[1] / (right[0] + right[1])) || near(by_sum, value("accuracy_by_characters"))) bad = 1
    sum += p; squares += p * (1 - p) / 100; n++
}
/published_mean/ { mean = value("published_mean"); error = value("published_mean_error") }
END { exit bad || n != 3 || !near(mean, sum / n) || !near(error, sqrt(squares) / n) }' mean.scores mean.json

# Solved questions in front: others for another seed, the same for the same.
evaluate 1 mc piqa.jsonl --examples 5 --shots 1 --seed 1 --scores shots-1.scores --cut
expect 0
evaluate 2 mc piqa.jsonl --examples 5 --shots 1 --seed 1 --scores shots-2.scores --cut --batch 2
expect 0
evaluate 1 mc piqa.jsonl --examples 5 --shots 1 --seed 2 --scores shots-3.scores --cut
expect 0
cut -c 1-60 shots-1.scores >one.txt
cut -c 1-60 shots-2.scores >other.txt
check "shots depend on ranks" cmp -s one.txt other.txt
check_not "shots do not depend on the seed" cmp -s shots-1.scores shots-3.scores

# What --cut leaves of a context is its end.
printf '{"query": "%s", "choices": ["b", "c"], "gold": 0}\n' "$(cut -c 1-80 text.txt)" >long.jsonl
printf '{"query": "%s", "choices": ["b", "c"], "gold": 0}\n' "$(cut -c 34-80 text.txt)" >end.jsonl
evaluate 1 mc long.jsonl --cut --scores long.scores
expect 0
evaluate 1 mc end.jsonl --scores end.scores
expect 0
check "another part of the context is left" test "$(cut -d '[' -f 2 long.scores)" = "$(cut -d '[' -f 2 end.scores)"

# All tokens of a target must be the most probable ones: of 26 targets that differ in the second, one may.
for letter in a b c d e f g h i j k l m n o p q r s t u v w x y z; do
    printf '{"context": "saw the cat", "target": "%s"}\n' $letter
done >letters.jsonl
evaluate 1 mc letters.jsonl --scores letters.scores
expect 0
check "not one of the letters is the most probable one" test "$(grep -c '"greedy": true' letters.scores)" = 1

# The llm.c layout with the same bytes gives the same scores.
layout() { # layout FILE MAGIC GOLD LABELS...: three examples of "the cat" with " sat" and " ran on"
    awk -v magic="$2" -v gold="$3" -v id="$4" '
    function put(v, n, i) { for (i = 0; i < n; i++) { printf "\\0%03o", v % 256; v = int(v / 256) } }
    function text(s, i) {
        put(length(s), 2)
        for (i = 1; i <= length(s); i++) put(index(all, substr(s, i, 1)) + 31, 2)
    }
    BEGIN {
        for (i = 32; i < 127; i++) all = all sprintf("%c", i)
        put(magic, 4); put(1, 4); put(3, 4)
        for (i = 3; i < 256; i++) put(0, 4)
        for (e = 0; e < 3; e++) {
            put(65535, 2); put(2 * (5 + 8 + 5 + 8), 2); put(e, 2); put(gold, 2); put(2, 2)
            text("the cat"); text(" sat"); put(7, 2); put(id, 2)
            for (i = 0; i < 6; i++) put(index(all, substr("ran on", i + 1, 1)) + 31, 2)
        }
    }' >layout.txt
    printf '%b' "$(cat layout.txt)" >"$1"
}
layout same.bin 20240522 1 32
printf '{"query": "the cat", "choices": ["sat", "ran on"], "gold": 1}\n' >same.jsonl
evaluate 1 mc same.jsonl same.bin --scores same.scores
expect 0
sed 's/"place": [0-9]*, //' same.scores >same.txt
sed -n "1{p;p;p;p;q;}" same.txt >first.txt
for name in first same; do numbers $name.txt | sed 's/ same / /' >$name.numbers; done
check "layouts differ" close first.numbers same.numbers 4
evaluate 1 mc same.bin --shots 1 --scores same-shots.scores
expect 0
check_not "shots change nothing" grep -qF "$(cut -d: -f 5 same.scores | head -n 1)" same-shots.scores

# Mistakes: a message with the place, exit code 2, no file.
refused() { # refused TEXT... -- ARGUMENTS...
    texts=
    while [ "$1" != -- ]; do texts="$texts$1
" && shift; done
    shift
    on 1 eval runs/lm --json refused.json "$@"
    expect 2 && printf '%s' "$texts" | while read -r text; do
        grep -qF -e "$text" err || echo "$what does not say: $text"
    done >missing.txt
    check "$(cat missing.txt)" test ! -s missing.txt
    check "written in spite of a mistake: $what" test ! -e refused.json -a ! -e refused.json.tmp
}
bad() { # bad LINE TEXT...
    printf '{"query": "a", "choices": ["b", "c"], "gold": 0}\n%b\n' "$1" >bad.jsonl
    shift
    refused bad.jsonl:2 "$@" -- --task mc --tokenizer bytes piqa.jsonl bad.jsonl
}
bad '{"query": "a", "choices": ["b", "c"' JSON
bad '{"query": "a", "choices": [], "gold": 0}' '"choices" has 0, expected 2 to'
bad '{"query": "a", "choices": ["b", ""], "gold": 0}' '"choices" is empty'
bad '{"query": "a", "choices": ["b", "c"], "gold": 2}' 'gold is 2, expected 0 to 1'
bad '{"query": "a", "choices": ["b", "\\0377"], "gold": 0}' UTF-8
bad '{"context": "a", "target": "b"}' 'one kind a file'
refused long.jsonl '82 tokens' 48 --cut -- --task mc --tokenizer bytes long.jsonl
refused '3 questions' --shots -- --task mc --tokenizer bytes same.bin --shots 3
layout gold.bin 20240522 2 32
refused gold.bin 'example 1' 'label 2 of 2' -- --task mc --tokenizer bytes gold.bin
layout id.bin 20240522 0 300
refused id.bin 'example 1' 'token 300' -- --task mc id.bin
layout magic.bin 20240520 0 32
refused magic.bin 20240520 ppl -- --task mc magic.bin
head -c 1100 same.bin >damaged.bin
refused damaged.bin damaged -- --task mc damaged.bin
printf 'a\n\377\n' >no-utf8.txt
refused no-utf8.txt:2 0xFF -- --task ppl --tokenizer bytes no-utf8.txt
refused '--stride 9' 'at most the 8 tokens of a window' -- --task ppl --tokenizer bytes short.txt --context 8 --stride 9
refused '--context 100' 48 -- --task ppl --tokenizer bytes short.txt --context 100
refused nothing.txt -- --task ppl --tokenizer bytes nothing.txt
refused '--shots belongs to --task mc' -- --task ppl --shots 1
refused data/gpt2 -- --task mc short.jsonl
refused 'runs is a folder' -- --task mc --tokenizer bytes runs
for ranks in 1 2; do # said before anything is measured
    on $ranks eval runs/lm --json nowhere/x.json
    expect 2 "--json nowhere/x.json"
    check "measured for nothing" test ! -s out
done
finish
