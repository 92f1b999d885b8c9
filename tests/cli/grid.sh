#!/bin/sh
# Exact match over pairs of operand widths: the same for all batch sizes and ranks, and in line with both measures by
# width.
. "$(dirname "$0")/lib.sh"

# counts FILE MEMBER: its matrix, a row a line.
counts() {
    awk -v member="\"$2\":" '$1 == member { on = 1; next } on { last = /\]\]/; gsub(/[][,}]/, " "); $1 = $1; print } last { exit }' "$1"
}

# A checkpoint whose scores lie between none and all: at which step that is depends on the rounding of the processor.
trained 1 learner learner.yaml task.width_max=2 train.steps=540 checkpoint.every=60 checkpoint.keep_last=0
learner=
for step in 540 480 420 360 300 240 180; do
    saved=runs/learner/checkpoints/step_$(printf %08d $step)
    on 1 eval "$saved" --grid 1-2 --examples 130 --json look.json
    expect 0 || finish
    right=$(counts look.json right | awk '{ n += $1 + $2 } END { print n + 0 }')
    [ "$right" -gt 26 ] && [ "$right" -lt 500 ] && learner=$saved && break
done
check "no checkpoint has learned a part" test -n "$learner"
[ -n "$learner" ] || finish

# grid RANKS NAME ARGUMENTS...: the tables in NAME.txt, the file in NAME.json
grid() {
    ranks=$1 name=$2
    shift 2
    on "$ranks" eval "$learner" --json "$name.json" "$@"
    expect 0 || finish
    grep -v '^backend' out >"$name.txt"
}
grid 1 plain --grid 1-4 --examples 130
for batch in 1 7 1000; do
    grid 1 batch-$batch --grid 1-4 --examples 130 --batch $batch
    check "batch $batch: other tables" diff plain.txt batch-$batch.txt
    check "batch $batch: another file" diff plain.json batch-$batch.json
done
for ranks in 2 3; do
    grid $ranks ranks-$ranks --grid 1-4 --examples 130 --batch 50
    check "$ranks ranks: other tables" diff plain.txt "ranks-$ranks.txt"
    check "$ranks ranks: another file" diff plain.json "ranks-$ranks.json"
done

for member in right beyond length; do counts plain.json $member >$member.txt; done
# shellcheck disable=SC2016 # awk's variables
check "$(cat right.txt) right: the comparisons would say little" awk '
    NR < 3 { right += $1 + $2 } END { exit !(NR == 4 && right > 26 && right < 520) }' right.txt
for member in beyond length; do
    # shellcheck disable=SC2016
    check "no wrong answers are told apart by $member" awk '{ for (j = 1; j <= NF; j++) n += $j } END { exit n < 20 }' $member.txt
done

# Pairs of equal widths are the examples of `exact`; together those of trained widths are distributed as `upto`.
on 1 eval "$learner" --widths 1-4,exact --examples 130 --json exact.json
expect 0
sed -n 's/.*"exact": \([0-9.]*\).*/\1/p' exact.json >exact.txt
awk '{ printf "%.6f\n", $NR / 130 }' right.txt >diagonal.txt
check "pairs of equal widths have not the scores of exact" diff exact.txt diagonal.txt
on 1 eval "$learner" --widths 2,upto --examples 2000 --json upto.json
expect 0
upto=$(sed -n 's/.*"upto": \([0-9.]*\).*/\1/p' upto.json)
# shellcheck disable=SC2016
check "the mean over pairs is far from $upto" awk -v upto="$upto" '
    NR < 3 { sum += ($1 + $2) / 520 } END { apart = sum - upto; exit !(apart < 0.08 && apart > -0.08) }' right.txt

# A pair has the same examples in every grid; the last width is always there; tables hold what the file does.
grid 1 steps --grid 1-4:2 --examples 130
check "not the widths 1, 3 and 4" grep -qF '"first": [1, 3, 4]' steps.json
grid 1 ends --grid 1-4:3 --examples 130 # pairs of 4 and 1 digits are as long as those of 3 and 3, which are not here
for member in right beyond length; do
    awk 'NR != 2 { print $1, $3, $4 } NR == 1 || NR == 4 { print $1, $4 }' $member.txt | sort >few.txt
    { counts steps.json $member; counts ends.json $member; } | sort >other.txt
    check "$member: pairs depend on the others" diff few.txt other.txt
done
awk '$1 == "operands" { exit } $1 ~ /^[1-4]$/ && NF == 6 { print $2, $3, $5, $6 }' plain.txt >table.txt
awk '{ for (j = 1; j <= 4; j++) {
    share = int(100 * $j / 130 + 0.5)
    if ($j > 0 && share == 0) share = 1
    if ($j < 130 && share == 100) share = 99
    printf "%d%s", share, j < 4 ? " " : "\n" } }' right.txt >from_file.txt
check "table and file differ" diff from_file.txt table.txt
check "the trained widths are not marked" test "$(grep -c '^ *-*+-*$' plain.txt)" = 1
for line in 'both of trained widths *4 ' 'one of another width *8 ' 'both of other widths *4 '; do
    check "no line $line" grep -q "$line" plain.txt
done
grid 1 standard --grid 2-2
check "not 200 examples a pair" grep -q '"examples": 200,' standard.json

# Mistakes
for words in 3 a-b 1-3:x 1-3:2: 1-3,exact ''; do
    on 1 eval runs/learner --grid "$words"
    expect 2 "--grid '$words': expected A-B or A-B:STEP"
done
for words in 3-1 3- 0-3 1-3:0 1-3:-1 1-1025:512 1-99999999999999999999; do
    on 1 eval runs/learner --grid "$words"
    expect 2 "--grid: widths from" "1 <= from <= to <= 1024"
done
on 1 eval runs/learner --grid 1-1024
expect 2 "1024 widths" "larger step"
on 1 eval runs/learner --grid 1-3 --examples 1000001
expect 2 "--examples 1000001" "at most 1000000"
on 1 eval runs/learner --grid 1-3 --widths 1-3
expect 2 "--grid and --widths"
on 1 eval runs/learner --grid 1-3 --greedy
expect 2 "--greedy belongs to --widths"
on 1 eval runs/learner --grid 1-3 --examples 2 --json nowhere/grid.json
expect 2 nowhere/grid.json
trained 1 paper learner.yaml task.format=paper train.steps=1 schedule.warmup=0
on 2 eval runs/paper --grid 1-3 --examples 2
expect 2 "task.format paper both operands have the same number of digits"
finish
