#!/bin/sh
# Files that the program itself keeps in a run folder: no option that names an output replaces one, by whatever name it is
# called. Results may be written again.
. "$(dirname "$0")/lib.sh"
token_data
trained 1 own tiny-lm.yaml train.steps=2 checkpoint.every=2
echo "{}" >runs/own/gemm_algos.json
echo "{}" >runs/own/profile.json
echo elsewhere >runs/own/started_from
step=runs/own/checkpoints/step_00000002
case=${FWA_SOURCE_DIR:?}/tests/golden/falcon1_basic.h5
cat >sweep.yaml <<'YAML'
base: tiny.yaml
seeds: [0, 1]
YAML
printf '{"query": "1 2", "choices": ["3", "4"], "gold": 0}\n' >questions.jsonl

# outputs FILE: a command a line for each option that writes to FILE.
outputs() {
    cat <<LINES
--json eval runs/own --task ppl --json $1
--scores eval runs/own --task mc questions.jsonl --tokenizer bytes --scores $1
--json generate runs/own --tokenizer bytes --tokens 1 --json $1
--state-out generate runs/own --tokenizer bytes --tokens 1 --state-out $1
--out op --rule falcon1 --in $case --out $1
-o report runs/own -o $1
--csv sweep sweep.yaml --table --csv $1
--json data inspect data/val.bin --json $1
--out checkpoint pack runs/own --out $1
LINES
}

# refused FILE: by every option, in words that say what it is.
refused() {
    outputs "$1" >commands
    while read -r option words; do
        # shellcheck disable=SC2086 # several words
        run "$FWA" $words
        expect 2 "$option $1: this file belongs to the "
    done <commands
}

contents() {
    find runs -type f ! -name lock -exec cksum {} + | sort
}
contents >before
find runs/own -type f >files
check "the run folder lacks files: $(cat files)" [ "$(wc -l <files)" -ge 14 ]
while read -r file; do
    run "$FWA" eval runs/own --task ppl --json "$file"
    expect 2 "--json $file: this file belongs to the "
done <files
refused runs/own/metrics.jsonl
refused runs/own/gates.jsonl
refused $step/shard.rank00000.h5
ln -s runs/own/config.yaml link
ln -s runs/own short
run "$FWA" eval runs/own --task ppl --json link
expect 2 "--json link: this file belongs to the run $work/runs/own"
run "$FWA" eval runs/own --task ppl --json short/../own/log.txt
expect 2 "belongs to the run"
run sh -c "cd runs/own && \"$FWA\" eval . --task ppl --json config.yaml"
expect 2 "--json config.yaml: this file belongs to the run ."

# Folders: neither one of them, nor what would be emptied for a new one.
for folder in runs/own $step $step/model.h5 runs/own/metrics.jsonl; do
    run "$FWA" export runs/own "$folder"
    expect 2 "$folder"
    run "$FWA" data tokenize tiny.yaml --tokenizer bytes --val 0 --out "$folder"
    expect 2 "$folder"
done
cp -r runs/own new.tmp
run "$FWA" export runs/own new
expect 2 "new.tmp would be emptied to make new"
run "$FWA" data tokenize tiny.yaml --tokenizer bytes --val 0 --out new
expect 2 "new.tmp would be emptied to make new"
check "the run beside a new folder was changed" diff -r runs/own new.tmp
contents >after
check "files of the run were changed" diff before after

# Results, twice: into a run folder and under these names elsewhere.
echo "words" >config.yaml
for file in runs/own/result config.yaml; do
    for round in first second; do
        outputs $file | grep -v ' pack ' >commands
        while read -r option words; do
            [ "$option" != -o ] || words=$words.html
            # shellcheck disable=SC2086 # several words
            run "$FWA" $words
            expect 0 || echo "$round time"
        done <commands
    done
done
finish
