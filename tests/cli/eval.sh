#!/bin/sh
# Scores of the addition task depend on the checkpoint alone: not on batch size, ranks, or the file they are written to.
. "$(dirname "$0")/lib.sh"

trained 1 learner learner.yaml

# scores RANKS NAME ARGUMENTS...: the table in NAME.txt, the file in NAME.json
scores() {
    ranks=$1 name=$2
    shift 2
    on "$ranks" eval runs/learner --widths 1-3 --examples 130 --json "$name.json" "$@"
    expect 0 || finish
    grep '%' out >"$name.txt"
}
scores 1 plain --task addition
check "the table has no 4 rows" test "$(wc -l <plain.txt)" = 4
share=$(awk '$1 == 1 { print $3 + 0 }' plain.txt)
check "width 1 is all wrong: the comparisons below would say little" awk -v share="$share" 'BEGIN { exit !(share > 5) }'
for batch in 7 100 1000; do
    scores 1 batch-$batch --batch $batch
    check "batch $batch: other scores" diff plain.txt batch-$batch.txt
    check "batch $batch: another file" diff plain.json batch-$batch.json
done
for ranks in 2 3; do
    scores $ranks ranks-$ranks --batch 7
    check "$ranks ranks: other scores" diff plain.txt "ranks-$ranks.txt"
    check "$ranks ranks: another file" diff plain.json "ranks-$ranks.json"
done

# Answers decoded token by token are as right as those that were read; one measure alone is the same.
scores 2 greedy --batch 20 --greedy
# shellcheck disable=SC2016 # awk's variables
check "greedy decoding and reading the right answer differ" awk '
    { n++; if ($2 != $3 || $4 != $5) exit 1 } END { exit n != 4 }' greedy.txt
on 1 eval runs/learner --widths 2-3,exact --examples 130 --json exact.json
expect 0
check "exact alone" test "$(grep -o '"exact": [0-9.]*' exact.json | tr '\n' ' ')" = \
    "$(grep -o '"exact": [0-9.]*' plain.json | tail -n 2 | tr '\n' ' ')"
check_not "upto was not asked for" grep upto exact.json

# The file is the table.
awk '/"width"/ {
    gsub(/[{}",:]/, " ")
    for (i = 1; i < NF; i++) if ($i ~ /^[a-z]/) value[$i] = $(i + 1)
    printf "%d %.1f%% %.1f%% %d\n", value["width"], 100 * value["upto"], 100 * value["exact"], value["examples"]
}' plain.json >from_json.txt
awk '$1 != "mean" { print $1, $2, $3, 130 }' plain.txt >from_table.txt
check "file and table differ" diff from_json.txt from_table.txt
check "the file does not name its step" grep -q '"step": 300' plain.json
awk '{
    gsub(/[^][{}]/, "")
    text = text $0
} END { exit text !~ /^{\[({})+\]}$/ }' plain.json || note_failure "the brackets of the file do not match"

# A checkpoint by its path; an earlier one knows less.
on 1 eval runs/learner/checkpoints/step_00000100 --widths 1-3 --examples 130 --json early.json
expect 0
check_not "step 100 has the scores of step 300" cmp -s early.json plain.json
check "the file does not name its step" grep -q '"step": 100' early.json

# Threads and backend are not the checkpoint's.
on 1 eval runs/learner --widths 1-1 --examples 10 run.threads=3
expect 0 "3 threads a rank"
on 1 eval runs/learner --widths 1-1 --examples 10 run.threads=none
expect 2 run.threads
on 1 eval runs/learner --widths 1-1 --examples 10 model.layers=1
expect 2 model.layers=1 run.threads

# Mistakes
on 1 eval runs/nothing
expect 2 runs/nothing
on 1 eval runs/learner --widths 3-1
expect 2 "--widths '3-1'" "A-B"
on 1 eval runs/learner text.txt
expect 2 text.txt
on 1 eval runs/learner --task mcq
expect 2 "--task 'mcq'" addition
on 1 eval runs/learner --examples 0
expect 2 "--examples" 0
on 1 eval runs/learner --batch many
expect 2 "--batch" many
on 1 eval runs/learner --examples 2 --json nowhere/scores.json
expect 2 nowhere/scores.json
on 2 eval runs/nothing
expect 2 runs/nothing
finish
