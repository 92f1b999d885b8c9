#!/bin/sh
# Reports: what stands in run folders, drawn into one page that needs nothing else; and nothing from them as markup.
. "$(dirname "$0")/lib.sh"

# page FILE: every element that is opened is closed, in order; nothing is fetched, run, or no number.
# shellcheck disable=SC2016 # awk's variables, not the shell's
page() {
    check "$1: not well-formed" awk '
    {
        text = $0
        while (match(text, /<[^>]*>/)) {
            tag = substr(text, RSTART + 1, RLENGTH - 2)
            text = substr(text, RSTART + RLENGTH)
            if (tag ~ /^(!|meta)/ || tag ~ /\/$/) continue
            name = tag
            sub(/[ \t].*/, "", name)
            if (name !~ /^\//) { open[++depth] = name; continue }
            if (depth == 0 || "/" open[depth] != name) { print FILENAME ":" FNR ": " tag " closes " open[depth]; bad = 1 }
            depth--
        }
        if (text ~ /[<>]/) { print FILENAME ":" FNR ": " text; bad = 1 }
    }
    END { exit bad || depth != 0 }' "$1"
    check_not "$1: a number that is none" grep -E '[" L](nan|-nan|inf|-inf)[" L]' "$1"
    check_not "$1: needs another file, or JavaScript" grep -iE '<script|<link|<img|<iframe|https?:|@import|url\([^#]' "$1"
}

trained 1 plain tiny.yaml eval.every=5
run "$FWA" report runs/plain -o plain.html
expect 0 "plain.html: 1 run"
page plain.html
for text in "<h1>plain</h1>" "Training loss" "Validation perplexity" "Learning rate" "Gradient norm" \
    "Tokens a second" ">30</dd>" finished model.mixer.many.window; do
    check "the page does not say $text" grep -qF -e "$text" plain.html
done
check "the last validation loss is not that of the metrics" grep -qF ">$(grep val_loss runs/plain/metrics.jsonl | tail -n 1 |
    sed 's/.*"val_loss":\([0-9.]*\).*/\1/' | awk '{ printf "%.4f", $1 }')<" plain.html
run "$FWA" report runs/plain -o again.html
check "a second page of the same run is another" cmp plain.html again.html

mkdir runs/worse # the last one, not the best
cp runs/plain/config.yaml runs/worse
sed '$s/"val_loss":[^,]*/"val_loss":9.25/' runs/plain/metrics.jsonl >runs/worse/metrics.jsonl
run "$FWA" report runs/worse -o worse.html
check "the validation loss is not that of the last row" grep -qF '>9.2500<' worse.html
check_not "the lowest loss of additions, which are measured in exact match" grep -qF 'lowest validation loss' worse.html
rm runs/worse/config.yaml # of no known task
run "$FWA" report runs/worse -o worse.html
check "it rose, and the lowest is not shown" grep -qF "<dt>lowest validation loss</dt><dd>$(grep -o '"val_loss":[0-9.]*' runs/worse/metrics.jsonl |
    sort -t: -k2 -n | awk -F: 'NR == 1 { printf "%.4f", $2 }')<" worse.html

# Accuracy by width, where fwa eval has left it in the run folder.
check_not "accuracy that nobody measured" grep -q "Exact match" plain.html
on 1 eval runs/plain --widths 1-4 --examples 20 --json runs/plain/addition.json
expect 0
run "$FWA" report runs/plain -o plain.html
page plain.html
check "no accuracy by width" test "$(grep -c "<figcaption>Exact match" plain.html)" = 2

# Other results of fwa eval, as a table; of two measurements the later step's.
for step in 30 10; do
    cat >runs/plain/mc$step.json <<JSON
{"task": "mc", "step": $step, "shots": 2, "results": [{"task": "piqa<", "accuracy": 0.$step, "accuracy_error": 0.125,
 "accuracy_by_characters": 0.5}, {"task": "lambada", "accuracy": 0, "perplexity": 1e300}],
 "published_tasks": 1, "published_tasks_of": 8, "published_mean": 0.25}
JSON
done
echo '{"task": "ppl", "step": 30, "perplexity": 17.125, "bits_per_byte": 1.5}' >runs/plain/news.json
echo '{"task": "addition", "step": 31, "widths": [{"width": 1, "upto": 0.5}]}' >runs/plain/half.json
run "$FWA" report runs/plain -o plain.html
expect 0
page plain.html
for text in "<td>piqa&#60;, 2-shot: accuracy, %</td><td>30.00 ± 12.50</td>" "piqa&#60;, 2-shot: by characters" \
    "<td>news: perplexity</td><td>17.12</td>" "mean of 1 of the paper&#39;s 8 tasks" "lambada, 2-shot: perplexity"; do
    check "the page does not say $text" grep -qF -e "$text" plain.html
done
check "a measure that was not taken is drawn" test "$(grep -c "<figcaption>Exact match" plain.html)" = 1

# Accuracy of several files of one step is one table: in distribution, and beyond it with its standard error.
mkdir -p runs/half
cp runs/plain/metrics.jsonl runs/plain/config.yaml runs/half
trained=$(sed -n 's/.*width_max: *\([0-9]*\).*/\1/p' runs/half/config.yaml)
cat >runs/half/a.json <<JSON
{"task": "addition", "step": 30, "widths": [{"width": $((trained + 1)), "examples": 101, "upto": 0.5, "exact": 0.0},
 {"width": $((trained + 2)), "examples": 101, "upto": 0.25, "exact": 0.1}]}
JSON
cat >runs/half/b.json <<JSON
{"task": "addition", "step": 30, "widths": [{"width": $trained, "examples": 101, "upto": 1.0, "exact": 1.0}]}
JSON
cat >runs/half/c.json <<JSON
{"task": "addition", "step": 20, "widths": [{"width": $((trained + 3)), "examples": 101, "upto": 0.5}]}
JSON
cat >runs/half/d.json <<JSON
{"task": "addition", "step": 30, "widths": [{"width": $((trained + 1)), "examples": 11, "exact": 0.0}]}
JSON
run "$FWA" report runs/half runs/plain -o both.md --figures pictures
expect 0 "both.md: 2 runs" "figures in pictures"
for text in "| upto at $trained, % |" "| upto, mean of $((trained + 1)) to $((trained + 2)), % |"; do
    check "the table has no column $text" grep -qF -e "$text" both.md
done
# sqrt(0.5 0.5 / 100) and sqrt(0.25 0.75 / 100), together half the root of the sum of their squares: 3.31 points.
check "not the shares and errors of these files" grep -qF "| 100.0 | 100.0 | 37.5 ± 3.3 | 50.0 ± 5.0 | 25.0 ± 4.3 | 5.0 ± 1.5 | 0.0 | 10.0 ± 3.0 |" both.md
check "no dash for what one run lacks" grep -qE '^\| plain .* – \|' both.md
check "the results of another task are not a table" grep -qF "| news: perplexity |" both.md
run "$FWA" report runs/half runs/plain -o both.csv
expect 0
check "rows of a table have not the same number of fields" awk -F, 'NR == 1 { gsub(/"[^"]*"/, "x"); n = NF } NR > 1 { gsub(/"[^"]*"/, "x"); if (NF != n) exit 1 }' both.csv
check "pictures of nothing, or too few" test "$(find pictures -name '*.svg' | wc -l)" = 9
for picture in pictures/*.svg; do
    check "$picture needs a page" grep -q '^<svg xmlns=' "$picture"
    sed '1s/ xmlns="[^"]*"//' "$picture" >plain.svg # which names a space and fetches nothing
    page plain.svg
done
check "no floor under the widths" grep -q reference pictures/upto.svg
check_not "a floor under exact widths" grep -q 'class="curve cg reference"' pictures/exact.svg
run "$FWA" report runs/half -o both.md --figures pictures
expect 0
echo mine >pictures/loss.svg
run "$FWA" report runs/half -o both.md --figures pictures
expect 2 "pictures/loss.svg is there and is not an SVG"
echo '# Notes' >notes.md
run "$FWA" report runs/half -o notes.md
expect 2 "notes.md is there and is not a table"

# Exact match over pairs of widths, of the newest step: a map, and means by how many of both widths are trained ones.
check_not "a map that nobody measured" test -e pictures/grid.svg
# grid FOLDER STEP FIRST_ROW: widths 1, 2 and 4 into its grid.json, of which 1 and 2 are trained
grid() {
    mkdir -p "$1"
    cat >"$1/grid.json" <<JSON
{"task": "addition", "step": $2, "grid": {"examples": 101, "trained": [1, 2], "first": [1, 2, 4], "second": [1, 2, 4],
 "right": [$3, [101, 101, 0], [25, 0, 0]], "beyond": [[0, 0, 9], [0, 0, 0], [0, 0, 0]],
 "length": [[0, 0, 0], [0, 0, 0], [0, 0, 101]]}}
JSON
}
grid runs/pairs 20 '[0, 0, 0]'
mv runs/pairs/grid.json runs/pairs/z.json
grid runs/pairs 30 '[101, 101, 50]'
cp runs/half/*.json runs/plain/metrics.jsonl runs/plain/config.yaml runs/pairs
echo '{"task": "addition", "step": 31, "grid": {"examples": 101, "first": [1]}}' >runs/pairs/bad.json
run "$FWA" report runs/pairs runs/half -o pairs.md --figures maps
expect 0 "bad.json: not the counts of every pair of widths"
check "no mean over pairs" grep -qF "| pairs of 3 widths, 1 to 4: one trained, % |" pairs.md
# The shares 50/101 and 25/101 and two of 0: 18.6, with a quarter of the root of the sum of squared errors.
check "not the means over pairs" grep -qE '^\| pairs .*\| 100\.0 \| 18\.6 ± 1\.7 \| 0\.0 \|$' pairs.md
check "not 9 cells, and 5 that say what colours mean" test "$(grep -c 'class="heat"' maps/grid.svg)" = 14
for text in 'class="marked"' 'fill-opacity="0.495"><title>1 and 4 digits: 49.5 %' '>50</text>'; do
    check "the map has no $text" grep -qF "$text" maps/grid.svg
done
sed '1s/ xmlns="[^"]*"//' maps/grid.svg >plain.svg
page plain.svg
run "$FWA" report runs/pairs -o pairs.html
page pairs.html
check "no map in the page" test "$(grep -c '<title>4 and 1 digits: 24.8 %' pairs.html)" = 1
check "no means in the page" grep -qF "<th>pairs of 3 widths, 1 to 4: none trained, %</th>" pairs.html

# Other widths between the same ends are other columns; a half is rounded as in the table of fwa eval.
cp -r runs/pairs runs/others
sed -e 's/1, 2, 4\]/1, 3, 4]/g' -e 's/"examples": 101/"examples": 200/' -e 's/101, 101, 50/29, 200, 1/' \
    runs/pairs/grid.json >runs/others/grid.json
run "$FWA" report runs/pairs runs/others -o pairs.md
expect 0
for text in '1 to 4: one trained, % |' '1 to 4 by 2: one trained, % |'; do
    check "no column $text" grep -qF "| pairs of 3 widths, $text" pairs.md
done
check "means over other pairs in a column" grep -qE '^\| pairs .*( –( ± –)? \|){3}$' pairs.md
run "$FWA" report runs/others -o others.md --figures maps
check "the map rounds 14.5 otherwise" grep -qF '>15</text>' maps/grid.svg

# A sweep: seeds become one line with their spread, and what differs is told.
cat >two.yaml <<'YAML'
base: tiny.yaml
set: {train.steps: 4, eval.every: 2}
axes: {optimizer.lr: [1e-3, 3e-3]}
seeds: [0, 1]
YAML
run "$FWA" sweep two.yaml
expect 0
run "$FWA" report runs/two --title 'Rates & <seeds>' --tensorboard events
expect 0 "report.html: 4 runs" "4 event files in events"
page report.html
check "the title is not as given" grep -qF "<h1>Rates &#38; &#60;seeds&#62;</h1>" report.html
check "not two configurations of two seeds" test "$(grep -c '(2 seeds)' report.html)" = 4
check "no spread over seeds" grep -qE '>[0-9.]+ ± [0-9.]+<' report.html
check "the key that differs is not told" grep -qF "<th>optimizer.lr</th>" report.html
check_not "a key that does not differ is told as one that does" grep -qF "<th>train.steps</th>" report.html
check "not an event file a run" test "$(find events -name '*tfevents*' -size +200c | wc -l)" = 4

# Folders of several seeds that are numbered are called by all their numbers.
mkdir numbered
set -- runs/two/*seed=*
for i in 1 2; do cp -r "$1" numbered/low-seed$i && shift; done
run "$FWA" report numbered -o numbered.md
expect 0
check "two seeds under the name of one" grep -qF '| low-seed1,2 | 0, 1 |' numbered.md

# So are they where their updates came in other portions, but not with updates of other sizes.
# with KEY VALUE: another seed of them, with this one
with() {
    rm -rf numbered/low-seed3
    cp -r numbered/low-seed1 numbered/low-seed3
    sed -i -e 's/^\( *seed:\) .*/\1 3/' -e "s/^\( *$1:\) .*/\1 $2/" numbered/low-seed3/config.yaml
    check "$1 is not $2" grep -q "^ *$1: $2\$" numbered/low-seed3/config.yaml
    run "$FWA" report numbered -o numbered.md
    expect 0
}
with micro_batch 4
check "another micro_batch is another configuration" grep -qF '| low-seed1,2,3 | 0, 1, 3 |' numbered.md
with global_batch 16
check "another global_batch is the same configuration" grep -qF '| low-seed1,2 | 0, 1 |' numbered.md

# Of seeds the mean, over those with the same widths.
seeds=$(find runs/two -name metrics.jsonl | sort | head -n 2)
for metrics in $seeds; do grid "${metrics%/*}" 4 '[101, 101, 0]'; done
sed -i 's/101, 101, 0\], \[101/51, 0, 0], [101/' "${metrics%/*}/grid.json"
run "$FWA" report runs/two -o two.md --figures maps
expect 0
check "not the mean of 1 and 51/101" grep -qF '<title>1 and 1 digits: 75.2 %' maps/grid.svg
check "not one map for both seeds" test "$(grep -c '<title>1 and 1 digits' maps/grid.svg)" = 1
sed -i 's/1, 2, 4\]/1, 2, 5]/g' "${metrics%/*}/grid.json"
run "$FWA" report runs/two -o two.md --figures maps
check "other widths are in a mean" grep -qF '<title>1 and 1 digits: 100.0 %' maps/grid.svg

# Folders as people leave them: names that would be markup, damaged lines, a configuration of another version, no steps.
bad='runs/<b onload="x">&amp;'
mkdir -p "$bad" runs/empty
{
    sed -n 1,10p runs/plain/metrics.jsonl
    echo '{"step": 11, "loss": NaN}'
    sed -n 12,20p runs/plain/metrics.jsonl
    printf '{"step": 21, "lo'
} >"$bad/metrics.jsonl"
echo 'model: {<script>: 1}' >"$bad/config.yaml"
printf '{"task": "addition", "widths": [{"width": "<i>"}]}' >"$bad/scores.json"
printf 'no json' >"$bad/other.json"
: >runs/empty/metrics.jsonl
run "$FWA" report "$bad" runs/plain runs/empty -o bad.html
expect 0 "metrics.jsonl:11: not a metrics row" "without its configuration" "scores.json: not the scores" "other.json:1:" \
    "runs/empty: has no steps yet" "bad.html: 2 runs"
page bad.html
check_not "markup from a file's name" grep -qE '<b |<script|<i>' bad.html

# Nothing is waited for: what is no regular file is left out, wherever a file is looked for.
mkdir -p runs/pipes runs/piped
cp runs/plain/config.yaml runs/plain/metrics.jsonl runs/pipes
mkfifo runs/pipes/scores.json runs/pipes/FINISHED runs/piped/metrics.jsonl
mkdir runs/pipes/folder.json
ln -s ../plain/mc30.json runs/pipes/link.json
limit=20
run "$FWA" report runs/pipes -o pipes.html
expect 0 "pipes.html: 1 run"
check "a link to results was left out" grep -qF "piqa&#60;, 2-shot: accuracy" pipes.html
run "$FWA" report runs/piped -o none.html
expect 2 "runs/piped: expected a run folder"
rm runs/pipes/config.yaml
mkfifo runs/pipes/config.yaml
run "$FWA" report runs/pipes -o pipes.html
expect 0 "without its configuration"

# Mistakes
run "$FWA" report
expect 2 "expected run folders"
run "$FWA" report runs/nothing
expect 2 "runs/nothing"
run "$FWA" report runs/plain/checkpoints
expect 2 "runs/plain/checkpoints: expected a run folder"
run "$FWA" report runs/empty -o none.html
expect 2 "no run has made a step"
check_not "a page about nothing" test -e none.html
for target in nowhere/page.html plain.html/page.html runs runs/plain/metrics.jsonl; do
    run "$FWA" report runs/plain -o $target
    expect 2 "-o $target"
    check_not "a mistake with a trace" grep -q "cmd_report.c:" err
done
check "metrics were written over" grep -q '"step"' runs/plain/metrics.jsonl
run "$FWA" report runs/plain -o ''
expect 2 "empty path"
run "$FWA" report runs/plain -o
expect 2 "-o needs a value"
run "$FWA" report runs/plain --tensorboard plain.html/events
expect 1 plain.html
mkdir -p other/runs
cp -r runs/plain other/runs
run "$FWA" report runs/plain other/runs/plain --tensorboard both
expect 2 "both stand under runs/plain"
check_not "an event file of a report that was refused" test -e both
finish
