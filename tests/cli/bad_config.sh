#!/bin/sh
# Configurations that cannot be: exit code 2, a message with place, value, expectation and help, and nothing written.
. "$(dirname "$0")/lib.sh"

# refused CONFIGURATION ARGUMENTS TEXT...
refused() {
    configuration=$1 arguments=$2
    shift 2
    # shellcheck disable=SC2086 # several words
    train 1 refused "$configuration" $arguments
    expect 2 "$@"
    check_not "$what: left a run folder" test -e runs
    rm -rf runs
}

# file NAME LINES...: tiny.yaml with more
file() {
    name=$1
    shift
    {
        echo "base: tiny.yaml"
        for line in "$@"; do printf '%s\n' "$line"; done
    } >"$name"
}

# Files
refused nothing.yaml "" "nothing.yaml" "No such file"
mkdir folder.yaml
refused folder.yaml "" "folder.yaml" "is a folder"
if [ "$(id -u)" != 0 ]; then
    cp tiny.yaml locked.yaml
    chmod 0 locked.yaml
    refused locked.yaml "" "locked.yaml" "Permission denied"
fi
printf 'train:\n  steps: {3\noptimizer: }\n' >syntax.yaml
refused syntax.yaml "" "syntax.yaml:"
printf 'just words\n' >words.yaml
refused words.yaml "" "words.yaml:1"
refused tiny.yaml "train.micro_batch=0" "train.micro_batch" "got 0" "[1, 1048576]"
: >empty.yaml
refused empty.yaml "" "model.layers"
printf 'base: missing-base.yaml\n' >orphan.yaml
refused orphan.yaml "" "missing-base.yaml" "orphan.yaml:1"
printf 'base: ring-2.yaml\n' >ring-1.yaml
printf 'base: ring-1.yaml\n' >ring-2.yaml
refused ring-1.yaml "" "ring-"
printf 'base: .\n' >inner.yaml
refused inner.yaml "" "inner.yaml:1: base: . is a folder"
mkdir chain
i=0
while [ $i -lt 40 ]; do
    echo "base: $((i + 1)).yaml" >chain/$i.yaml
    i=$((i + 1))
done
echo "base: ../tiny.yaml" >chain/40.yaml
refused chain/0.yaml "" "chain/33.yaml: more than 32 bases"
run "$FWA" train chain/10.yaml --print-config
expect 0
printf 'base: tiny.yaml\ntrain:\n  steps: 3\0\noptimizer: {lr: fast}\n' >zero.yaml
refused zero.yaml "" "zero.yaml" "control characters are not allowed"
awk 'BEGIN { for (i = 0; i < 500000; i++) print "k" i ": 1" }' >many.yaml
refused many.yaml "" "many.yaml:16385" "more than 16384 keys"

# As an editor of Windows saves it
if command -v iconv >/dev/null; then
    printf '\377\376' >utf16.yaml
    printf 'base: tiny.yaml\r\nrun: {seed: 5}\r\noptimizer: {lr: fast}\r\n' | iconv -f UTF-8 -t UTF-16LE >>utf16.yaml
    refused utf16.yaml "" "utf16.yaml:3: optimizer.lr: got fast"
fi

# Keys and types, in files and on the command line
file key.yaml "optimizer:" "  lrr: 1e-3"
refused key.yaml "" "key.yaml:3" "optimizer.lrr" "unknown key" "nearest is optimizer.lr"
refused tiny.yaml "trian.steps=3" "trian: unknown key" "nearest is train"
refused tiny.yaml "model.mixer.many.windw=3" "model.mixer.many.windw" "nearest is model.mixer.many.window"
file twice.yaml "train:" "  steps: 3" "  steps: 4"
refused twice.yaml "" "twice.yaml:4" "train.steps"
file type.yaml "train:" "  steps: many" "optimizer: {lr: [1, 2]}" "data: 3"
refused type.yaml "" "type.yaml:3" "train.steps" "many" "an integer in [1, inf)" "type.yaml:4" "optimizer.lr" \
    "type.yaml:5" "data"
refused tiny.yaml "train.steps=1.5" "train.steps" "1.5" "an integer"
refused tiny.yaml "train.steps=0" "train.steps" "got 0" "[1, inf)"
refused tiny.yaml "optimizer.lr=nan" "optimizer.lr" "nan" "a number"
refused tiny.yaml "optimizer.width_scale=maybe" "optimizer.width_scale" "maybe" "true"
refused tiny.yaml "schedule.kind=cosinus" "schedule.kind" "cosinus" "cosine, wsd, linear, constant"
refused tiny.yaml "train.precision=f16" "train.precision" "f16" "f32, bf16, f64"
refused tiny.yaml "optimizer.betas=[0.9]" "optimizer.betas" "two numbers"
refused tiny.yaml "train.steps" "train.steps" "key.path=value"
refused tiny.yaml "train.micro_batch=5 modle.layers=2 optimizer.lr=fast" "train.micro_batch 5" "modle" "fast"
run "$FWA" train tiny.yaml optimizer.lr=-0 schedule.min_lr=0.0 --print-config
check "-0 is not 0" grep -q '^  lr: 0$' out

# Numbers that do not go together
refused tiny.yaml "train.global_batch=7 train.micro_batch=2" "train.global_batch" "got 7" "train.micro_batch 2"
refused tiny.yaml "model.layers=257" "model.layers" "got 257" "[1, 256]"
refused tiny.yaml "model.mixer.one.conv=17" "model.mixer.one.conv" "got 17" "[0, 16]"
refused tiny.yaml "task.width_max=1025" "task.width_max" "got 1025" "[1, 1024]"
refused tiny.yaml "schedule.warmup=31" "schedule.warmup" "31" "train.steps 30"
refused tiny.yaml "train.seq_len=5" "train.seq_len" "5"
refused tiny.yaml "model.vocab_size=100" "model.vocab_size" "100" "259"
refused tiny.yaml "task.width_min=4" "task.width_min" "4" "3"

# Rules
run "$FWA" info
rules=$(sed -n '/^Rules/,/^$/p' out | sed -n 's/^  \([a-z][^ ]*\) .*/\1/p')
check "fwa info lists no rules" test "$(printf '%s\n' "$rules" | grep -c -x -e falcon1 -e falcon1a -e falcon3a -e softmax)" = 4
for rule in $rules; do
    refused tiny.yaml "model.mixer.one.rule=falcon9" "model.mixer.one.rule" "falcon9" "known rules:" "$rule"
done
refused tiny.yaml "model.mixer.all.window=4" "model.mixer.all.window" "rule softmax"
refused tiny.yaml "model.mixer.one.window=4" "model.mixer.one.window" "rule falcon1" "shift"
refused tiny.yaml "model.mixer.one.decay=lightning" "model.mixer.one.decay" "rule falcon1"
refused tiny.yaml "model.mixer.one.state=16" "model.mixer.one.state" "rule falcon1"
refused tiny.yaml "model.mixer.all.beta_range=1" "model.mixer.all.beta_range" "rule softmax"
refused tiny.yaml "model.mixer.one.beta_range=3" "model.mixer.one.beta_range" "auto, 1, 2"
for value in true false; do
    refused tiny.yaml "model.mixer.one.rotary=$value" "model.mixer.one.rotary: rule falcon1 has no such option"
done
refused tiny.yaml "model.mixer.all.rotary=2" "model.mixer.all.rotary" "auto, false, true"
refused tiny.yaml "model.head_dim=15" "model.head_dim" "15 is odd" "even" "set rotary to false"
run "$FWA" train tiny.yaml --dry-run model.head_dim=15 model.mixer.all.rotary=false
expect 0 "parameters"
refused tiny.yaml "model.mixers=[one,none]" "model.mixers" "none" "one, many, all"
refused tiny.yaml "model.mixer.one.normalized_read=true" "model.mixer.one.normalized_read" "phi"

# Names that lead out of run.dir, or to it
for name in "$work/away" ../away .. . a/../b ./a a/.. a//b a/ /; do
    refused tiny.yaml "run.name=$name" "run.name" "got \"$name\"" "a folder inside run.dir"
done
check_not "a run outside of run.dir" test -e away
cp tiny.yaml ...yaml
run "$FWA" train ...yaml train.steps=1
expect 2 "run.name" 'got ".."' "a folder inside run.dir"
trained 1 sweep/point-3..4 tiny.yaml train.steps=1
check "a name with folders is no run" test -s runs/sweep/point-3..4/metrics.jsonl
trained 1 sweep/point-3..4 tiny.yaml train.steps=2 --resume auto
rm -r runs

# What this build or machine lacks
refused tiny.yaml "train.precision=bf16" "train.precision" "bf16 needs the cuda backend" "train.precision=f32"
refused tiny.yaml "parallel.sp=2" "parallel.sp" "got 2 with 1 rank,"
refused tiny.yaml "parallel.zero=2" "parallel.zero" "[0, 1]"
refused tiny.yaml "parallel.sp_strategy=gather" "parallel.sp_strategy" "set it to auto or ring"
refused tiny-lm.yaml "data.reset_documents=true" "data.reset_documents" "50256" "277"
refused tiny.yaml "task.examples=8" "task.examples" "set data.reset_documents to true"
refused tiny-lm.yaml "task.examples=8" "task.examples" "only examples of addition"
refused tiny.yaml "task.examples=-1" "task.examples" "[0, 16777216]"
refused tiny.yaml "task.examples=64 data.reset_documents=true train.seq_len=50" "train.global_batch is 8" \
    "training update 1 need" "sequences of train.seq_len 50" "smallest train.global_batch"
refused tiny.yaml "task.examples=8 data.reset_documents=true train.seq_len=5" "train.seq_len" "5" "need 23"
run "$FWA" info
if ! sed -n '/^  cuda/,/^$/p' out | grep -q 'device [0-9]'; then
    refused tiny.yaml "run.backend=cuda" "run.backend: cpu"
fi

# Words that are not overrides
refused tiny.yaml "--resum auto" "--resum" "--resume"
refused tiny.yaml "--resume" "--resume needs a value"

# Under mpirun: said once, and its code is the program's.
for arguments in "model.vocab_size=100" "model.mixer.one.rule=falcon9" "train.steps=many"; do
    # shellcheck disable=SC2086 # several words
    train 2 refused tiny.yaml train.micro_batch=4 $arguments
    expect 2 "${arguments%%=*}"
    check "the message comes more than once" test "$(grep -c "${arguments%%=*}" err)" = 1
    check_not "$what: left a run folder" test -e runs
    rm -rf runs
done
train 2 refused tiny.yaml train.micro_batch=8
expect 2 "tiny.yaml:" "train.global_batch" "8 sequences" "2 ranks" "16"
train 2 refused tiny.yaml train.micro_batch=4 parallel.sp=2 train.seq_len=31
expect 2 "parallel.sp" "31 tokens" "2 pieces"
finish
