#!/bin/sh
# Evaluations behind the points of a sweep: each once a point and step, whatever the list of them was before.
. "$(dirname "$0")/lib.sh"
export CUDA_VISIBLE_DEVICES=
cat >two.yaml <<'YAML'
base: tiny.yaml
set: {train.steps: 4, schedule.kind: constant, schedule.min_lr: 0, guard.max_skips: 2}
axes:
  optimizer.lr: [3e-3, 1e-3, 1e30]
YAML
widths="--widths 1-2 --examples 20" wide="--widths 3-4 --examples 20" grid="--grid 1-3:2 --examples 20"

# results NAME...: the files of results in both finished run folders, and no others.
results() {
    for point in lr=3e-3 lr=1e-3; do
        (cd "runs/two/$point" && find . -maxdepth 1 -name '*.json' ! -name gemm_algos.json | sed 's/^..//' | sort) >got.txt
        printf '%s\n' "$@" | sort >wanted.txt
        check "$what: other results of $point than expected" diff wanted.txt got.txt
    done
}

# made: which files they are, by number and time
made() {
    stat -c '%n %i %Y' runs/two/*/eval*.json
}

mkdir data

# Words that fwa eval will refuse end the sweep before any point is trained.
# refused TEXT WORDS
refused() {
    run "$FWA" sweep two.yaml --eval "$widths" --eval "$2"
    expect 2 "--eval, point 1, lr=3e-3: " "$1"
    check_not "trained before --eval '$2' was refused" test -e runs
}
refused "unknown option '--wide'" "--wide 3-4"
refused "--widths '3-'" "--widths 3-"
reason=$("$FWA" info | awk '/^  cuda / { on = 1 } on' | sed -n 's/^ *not usable: //p' | head -n 1)
check "fwa info gives no reason against CUDA" test -n "$reason"
refused "$reason" "$widths run.backend=cuda"
refused "f64 runs on the cpu backend" "$widths run.backend=cuda train.precision=f64"
refused "bf16 needs the cuda backend" "$widths run.backend=cpu train.precision=bf16"
refused "no usable GPU was found" "$widths train.precision=bf16"
refused "--task 'mcq'" "--task mcq"
refused "--shots belongs to --task mc" "--shots 2"
refused "expected files with questions" "--task mc"
refused "gone.jsonl" "--task mc gone.jsonl"
refused "data/tokens/val*.bin" "--task ppl"
refused "got 'text.txt' behind the checkpoint" "text.txt"
refused "got 'optimizer.lr=1'" "optimizer.lr=1"
refused "run.threads" "run.threads=some"
refused "--json scores.json" "--json scores.json"
refused "--scores scores.jsonl" "--task mc --scores scores.jsonl two.yaml"
refused "--stride 9: expected at most the 8 tokens" "--task ppl --context 8 --stride 9 two.yaml"
refused "folder gone has no encoder.json" "--task mc --tokenizer gone two.yaml"
refused "data/gpt2" "--task mc two.yaml"
refused "data is a folder" "--task mc --tokenizer bytes data"
refused "--context 100: the model's attention was trained on sequences of" "--task ppl --context 100 two.yaml"
cp two.yaml two.bin
refused "two.yaml and two.bin: expected all token shards" "--task ppl two.yaml two.bin"
echo text >locked.txt
chmod 0 locked.txt
bare=$([ "$(id -u)" != 0 ] || echo "setpriv --bounding-set=-dac_override,-dac_read_search") # root may read all files
if $bare true && ! $bare cat locked.txt 2>cat.txt; then
    # shellcheck disable=SC2086 # a command and its options, or nothing
    run $bare "$FWA" sweep two.yaml --eval "--task ppl --tokenizer bytes locked.txt"
    expect 2 "--eval, point 1, lr=3e-3: cannot open locked.txt: Permission denied"
fi
# shellcheck disable=SC2016 # the inner shell's variables
run sh -c 'echo text | "$0" sweep two.yaml --eval "--task ppl --tokenizer bytes /dev/stdin"' "$FWA"
expect 2 "--eval, point 1, lr=3e-3: /dev/stdin is a pipe"
run "$FWA" sweep two.yaml task.name=lm model.vocab_size=100 --eval "--task mc --tokenizer bytes two.yaml"
expect 2 "tokenizer bytes has 257 ids, the model of lr=3e-3 knows 100"
sed 's/optimizer.lr:.*/model.vocab_size: [277, 100]/' two.yaml >sizes.yaml
run "$FWA" sweep sizes.yaml task.name=lm data.reset_documents=false --eval "--task mc --tokenizer bytes two.yaml"
expect 2 "--eval, point 2" "tokenizer bytes has 257 ids, the model of vocab_size=100 knows 100"
check_not "trained before files of evaluations were refused" test -e runs
# Behind another command, which may start points on another machine, what no machine can do is refused alone.
run "$FWA" sweep two.yaml --launch env --eval "$widths run.backend=cuda train.precision=f64"
expect 2 "--eval, point 1, lr=3e-3: " "f64 runs on the cpu backend"
run "$FWA" sweep two.yaml --jobs 2 --gpus-per-job 1 --launch env --eval "$widths train.precision=bf16"
expect 2 "2 points at once with 1 GPU each, and 0 are visible"
run "$FWA" sweep two.yaml --jobs 2 --launch env --eval "$widths train.precision=bf16"
expect 2 "say how many GPUs the processes of a point share"
check_not "trained before --eval behind --launch was refused" test -e runs
run "$FWA" sweep two.yaml run.dir=far --point 1 --launch env --eval "$widths train.precision=bf16"
expect 2 "no usable GPU was found" "point 1, lr=3e-3: exit code 2"
check "not trained: another machine may have a GPU" test -s far/two/lr=3e-3/metrics.jsonl
# What trains nothing asks for no files of evaluations.
for mode in --list --table "--words 1"; do
    # shellcheck disable=SC2086 # several words
    run "$FWA" sweep two.yaml $mode --eval "--task mc gone.jsonl"
    expect 0
done

run "$FWA" sweep two.yaml --eval "$widths"
expect 1 "1 of 3 points failed"
check "no exact match in the table: $(cat out)" grep -q '^lr .* upto % *exact %$' out
check "no exact match in the CSV" grep -q '^1,.*,[01]\(.[0-9]*\)*,[01]\(.[0-9]*\)*$' runs/two/results.csv
results eval-widths=1-2,examples=20.json
made >before.txt
run "$FWA" sweep two.yaml --eval "$widths"
check "evaluated again" test "$(made)" = "$(cat before.txt)"

# An evaluation that is made already needs no GPU any more.
sed 's/, 1e-3, 1e30//' two.yaml >one.yaml
mkdir -p runs/one
cp -r runs/two/lr=3e-3 runs/one
cp "runs/two/lr=3e-3/eval-widths=1-2,examples=20.json" runs/one/lr=3e-3/eval.json
run "$FWA" sweep one.yaml --eval "$widths run.backend=cuda"
expect 0
run "$FWA" sweep one.yaml train.steps=5 --eval "$widths run.backend=cuda"
expect 2 "$reason"

# A failure is told and keeps no other from being made; one that is there already stays as it is.
echo '{' >bad.jsonl
run "$FWA" sweep two.yaml --jobs 2 --eval "$grid" --eval '--task mc --tokenizer bytes bad.jsonl' --eval "$wide" --eval "$widths"
expect 1 "point 1, lr=3e-3: fwa eval failed with exit code 2" "3 of 3 points failed" "bad.jsonl"
results eval-widths=1-2,examples=20.json eval-widths=3-4,examples=20.json eval-grid=1-3_2,examples=20.json
check "made again" test "$(made | grep widths=1-2)" = "$(cat before.txt)"
check "an evaluation is not that of its words" grep -q '"grid"' runs/two/lr=3e-3/eval-grid=1-3_2,examples=20.json
run "$FWA" sweep two.yaml --point 1 --eval '--task mc --tokenizer bytes bad.jsonl'
expect 2 "bad.jsonl" "point 1, lr=3e-3: exit code 2"
run "$FWA" report runs/two -o two.md
expect 0
check "the report has not both kinds of results: $(cat two.md)" grep -q 'upto at 4.*pairs of 2 widths' two.md

# More steps: what was measured before them does not count any more.
run "$FWA" sweep two.yaml train.steps=6 --eval "$wide"
expect 1 "1 of 3 points failed"
check "not measured after more steps" grep -q '"step": 6' runs/two/lr=1e-3/eval-widths=3-4,examples=20.json

# An eval.json, of whatever words, stands for the only evaluation, and for none of several.
rm runs/two/*/eval*.json
for point in lr=3e-3 lr=1e-3; do
    run "$FWA" eval "runs/two/$point" --widths 1 --examples 20 --json "runs/two/$point/eval.json"
done
run "$FWA" sweep two.yaml train.steps=6 --eval "$widths"
results eval.json
run "$FWA" sweep two.yaml train.steps=6 --eval "$widths" --eval ''
expect 1 "1 of 3 points failed"
results eval.json eval-widths=1-2,examples=20.json

# A signal while a point is evaluated: the sweep leaves, and the same command makes up for it.
rm runs/two/*/eval*.json
start "$FWA" sweep two.yaml train.steps=6 --eval '--widths 1-4 --examples 1000000'
tries=0
until grep -q 'point 1 of 3' err || [ $tries = 400 ]; do
    tries=$((tries + 1))
    sleep 0.05
done
sleep 0.3
kill -TERM "$background"
ended
expect 75 "point 1: stopped after a signal while it was evaluated" "the same command continues"
check "half a result" test -z "$(find runs/two -name 'eval*')"

# A point that another process evaluates, or has begun to train in the meantime, is passed by, and no failure.
if command -v flock >flock.txt; then
    run flock runs/two/lr=3e-3/lock "$FWA" sweep two.yaml train.steps=6 --point 1 --eval "$widths"
    expect 0 "point 1: another process evaluates it"
    check_not "evaluated beside another process" test -e runs/two/lr=3e-3/eval-widths=1-2,examples=20.json
    cat >late.sh <<'SH'
mkdir -p "late/two/lr=3e-3"
flock "late/two/lr=3e-3/lock" sleep 5 &
while flock -n "late/two/lr=3e-3/lock" true; do sleep 0.02; done
exec "$@"
SH
    run "$FWA" sweep two.yaml run.dir=late --point 1 --launch 'sh late.sh'
    expect 0 "is in use by another fwa" "point 1: another process has taken it"
    check_not "taken by another process and told as a failure" test -e late/two/lr=3e-3.failed
fi
echo '"$@" && exit 2' >left.sh # as where the other process finishes right behind the refusal
run "$FWA" sweep two.yaml run.dir=left --point 1 --launch 'sh left.sh'
expect 0
check_not "finished by another process and told as a failure" test -e left/two/lr=3e-3.failed

run "$FWA" sweep two.yaml train.steps=6 --eval "$widths" --eval "--widths  1-2 --examples=20"
expect 2 "--eval '--widths  1-2 --examples=20' is given twice"
finish
