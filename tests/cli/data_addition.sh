#!/bin/sh
# fwa data addition: the examples of docs/addition.md, right sums in both formats, and nothing but what was asked for.
. "$(dirname "$0")/lib.sh"

# show OPTIONS...: examples into the file out
show() {
    run "$FWA" data addition "$@"
}

# says TEXT: the output is this line alone
says() {
    check "$what: got $(head -c 300 out), expected $1" test "$(cat out)" = "$1"
}

# The example that the page explains, in both formats.
show --width-max 4 --first 1 --examples 1
expect 0
says '[4259] + [17] = [5959]'
show --width-max 4 --first 1 --examples 1 --format paper --json
expect 0
says '{"number": 1, "question": "9524+9461=", "answer": "58981", "tokens": [256, 57, 53, 50, 52, 43, 57, 52, 54, 49, 61, 53, 56, 57, 56, 49, 257], "answer_at": 11}'

# Widths, leading zeros and sums of many: numbers are written lowest digit first in brackets, the sum alone in paper.
show --width-min 2 --width-max 5 --examples 2000
expect 0
# shellcheck disable=SC2016 # fields of awk
check "an example in brackets is wrong" awk '
function value(text,  n, i) { for (i = length(text); i > 0; i--) n = 10 * n + substr(text, i, 1); return n }
{
    if (split($0, part, /[][]/) != 7) exit 1
    for (i = 2; i <= 4; i += 2) {
        if (part[i] !~ /^[0-9]+[1-9]$/ || length(part[i]) > 5) exit 1
        widths[i, length(part[i])]++
    }
    if (part[6] !~ /[1-9]$/ || value(part[2]) + value(part[4]) != value(part[6])) exit 1
}
END {
    for (i = 2; i <= 4; i += 2) for (w = 2; w <= 5; w++) if (widths[i, w] < 400 || widths[i, w] > 600) exit 1
    exit NR != 2000
}' out
show --width-max 6 --examples 2000 --format paper
expect 0
# shellcheck disable=SC2016 # fields of awk
check "an example of the paper is wrong" awk -F '[+=]' '
{
    if (length($1) != length($2) || length($3) != length($1) + 1) exit 1
    sum = 0
    for (i = length($3); i > 0; i--) sum = 10 * sum + substr($3, i, 1)
    if ($1 + $2 != sum) exit 1
    zeros += $1 ~ /^0/
}
END { exit NR != 2000 || zeros < 120 || zeros > 280 }' out

# A function of seed, split and number alone.
show --examples 10
mv out ten
show --first 6 --examples 4
check "examples 6 to 9 depend on where one starts" test "$(cat out)" = "$(tail -n 4 ten)"
show --examples 10 --split val
check_not "the splits have the same examples" cmp -s out ten
show --examples 10 --seed 1
check_not "seeds have the same examples" cmp -s out ten

# Mistakes.
show --width-min 9 --width-max 3
expect 2 "--width-min 9" "--width-max 3"
show --split test
expect 2 "--split 'test'" "train or val"
show --format roman
expect 2 "--format 'roman'" "bracket or paper"
show --examples 0
expect 2 "--examples '0'"
show 5
expect 2 "got '5'"
finish
