# shellcheck shell=sh
# What the tests of the command line share; sourced, not run. $FWA names the program; everything happens in $work, which
# is removed at the end. A test goes on after a check that failed and says so in its exit code (finish).
set -u
: "${FWA:?names the program to test}"
export OMP_NUM_THREADS=1
export LC_ALL=C # awk reads and writes decimal points, messages are in English
# Without MPI no leak needs slow unwinding to be told from ours; with it, leaks are not looked for.
export ASAN_OPTIONS="${ASAN_OPTIONS:-}:fast_unwind_on_malloc=1"
export OMPI_MCA_mpi_yield_when_idle="${OMPI_MCA_mpi_yield_when_idle:-1}"
export OMPI_MCA_btl_vader_single_copy_mechanism="${OMPI_MCA_btl_vader_single_copy_mechanism:-none}"
mpirun="env ASAN_OPTIONS=$ASAN_OPTIONS:detect_leaks=0 ${FWA_MPIRUN:-mpirun --allow-run-as-root --oversubscribe}"
limit=${FWA_TEST_LIMIT:-60} # seconds for one command
failures=0
background= # process to end with the test
disk=       # file system to unmount with the test
code=0 what=
counted='batches|bytes|cases|checkpoints|contexts|cores|digits|documents|examples|figures|files|heads|layers|pairs|points|questions|ranks|runs|sequences|shards|steps|tensors|threads|tokens|values|widths|windows|words'
work=$(mktemp -d) || exit 1

clean_up() {
    [ -z "$background" ] || kill -9 "$background" 2>/dev/null
    [ -z "$disk" ] || umount "$disk"
    rm -rf "$work"
}
trap clean_up EXIT
trap 'exit 130' HUP INT TERM
cd "$work" || exit 1

note_failure() {
    failures=$((failures + 1))
    echo "FAILED: $*"
}

finish() {
    [ "$failures" = 0 ] || echo "$failures checks failed"
    exit $((failures > 0))
}

# run COMMAND...: leaves its exit code in $code, its output in the files out and err, where a trace would tell of a
# fault of the program itself.
run() {
    what=$*
    code=0
    timeout -k 10 "$limit" "$@" >out 2>err </dev/null || code=$?
    if grep -q -e 'ERROR: [A-Za-z]*Sanitizer' -e 'runtime error:' err; then expect clean; fi
    check_not "$what: has a trace" grep '^[^ ]*\.c:[0-9]* [a-z_0-9]*$' err
    check_not "$what: 1 of something has a plural" grep -ahE "(^|[^-.,0-9])1 ($counted)\>" out err
}

# Names of the rules that have CUDA kernels.
cuda_rules() {
    "$FWA" info | sed -n '/^Rules/,/^$/s/^  \([a-z][^ ]*\) .* cuda$/\1/p'
}

# on RANKS ARGUMENTS...: the program, without mpirun for one rank.
on() {
    ranks=$1
    shift
    if [ "$ranks" = 1 ]; then
        run "$FWA" "$@"
    else
        # shellcheck disable=SC2086 # the launcher and its options
        run $mpirun -np "$ranks" "$FWA" "$@"
    fi
}

# expect CODE TEXT...: the last command ended with CODE, and each TEXT stands in what it wrote to standard error.
expect() {
    wanted=$1
    shift
    missing=
    for text in "$@"; do
        grep -qF -e "$text" err || missing="$missing
  does not say: $text"
    done
    [ "$code" = "$wanted" ] && [ -z "$missing" ] && return 0
    note_failure "$what
  exit code $code, expected $wanted$missing"
    tail -n 25 err | sed 's/^/  | /'
    return 1
}

# check MESSAGE COMMAND...: the command must succeed.
check() {
    message=$1
    shift
    "$@" >check.txt 2>&1 && return 0
    note_failure "$message"
    head -n 20 check.txt | sed 's/^/  | /'
    return 1
}

check_not() {
    message=$1
    shift
    "$@" >check.txt 2>&1 || return 0
    note_failure "$message"
    head -n 20 check.txt | sed 's/^/  | /'
    return 1
}

# needs_gpus COUNT: ends the test as skipped where fewer GPUs can be used.
needs_gpus() {
    run "$FWA" info
    usable=$(awk '/^  cuda / { on = 1; next } /^[A-Z]/ { on = 0 } on && /^ +device [0-9]/ { n++ } END { print n + 0 }' out)
    [ "$usable" -lt "$1" ] || return 0
    echo "$usable usable GPUs, needs $1"
    exit 77
}

# needs_python "A, B": ends the test as skipped where python3, or what FWA_PYTHON names, lacks one of these modules.
needs_python() {
    python=${FWA_PYTHON:-python3}
    $python -c "import $1" 2>/dev/null && return 0
    echo "$python lacks one of: $1"
    exit 77
}

# columns METRICS FIELD...: a line a row with the fields as they are written, "-" for one that is not there.
columns() {
    metrics=$1
    shift
    awk -v names="$*" 'BEGIN { n = split(names, name, " ") }
    {
        line = ""
        for (i = 1; i <= n; i++) {
            value = "-"
            if (match($0, "\"" name[i] "\":[^,}]*")) {
                value = substr($0, RSTART, RLENGTH)
                sub(/^[^:]*:/, "", value)
            }
            line = line (i > 1 ? " " : "") value
        }
        print line
    }' "$metrics"
}

# same_text RUN RUN FIELD...: both runs have rows, and these fields are the same characters in each.
same_text() {
    one=runs/$1/metrics.jsonl other=runs/$2/metrics.jsonl
    shift 2
    columns "$one" "$@" >one.txt
    columns "$other" "$@" >other.txt
    check "$one has no rows" test -s one.txt
    check "$one and $other differ in: $*" diff one.txt other.txt
}

# same_curve RUN RUN: the whole curve, character by character.
same_curve() {
    same_text "$1" "$2" step tokens loss val_loss grad_norm lr skipped epoch token_hash
}

# close_numbers RUN RUN FIELD LIMIT [ROWS]: |a - b| <= LIMIT |a| in every row (of the first ROWS).
close_numbers() {
    columns "runs/$1/metrics.jsonl" "$3" | head -n "${5:-1000000}" >one.txt
    columns "runs/$2/metrics.jsonl" "$3" | head -n "${5:-1000000}" >other.txt
    # shellcheck disable=SC2016 # awk's variables, not the shell's
    check "runs $1 and $2: $3 further apart than $4" awk -v limit="$4" -v rows="${5:-0}" '
    NR == FNR { one[NR] = $1; n = NR; next }
    {
        apart = one[FNR] - $1
        if (apart < 0) apart = -apart
        size = $1 < 0 ? -$1 : $1
        if (one[FNR] !~ /[0-9]/ || $1 !~ /[0-9]/ || apart > limit * size) {
            print "row " FNR ": " one[FNR] " and " $1
            bad = 1
        }
        m = FNR
    }
    END {
        if (n != m || n == 0 || n < rows) { print n + 0 " and " m + 0 " rows"; bad = 1 }
        exit bad
    }' one.txt other.txt
}

# same_parameters RUN RUN STEP: masters and moments of two checkpoints are the same bits.
same_parameters() {
    step=checkpoints/$(printf 'step_%08d' "$3")
    for shard in "runs/$1/$step"/shard.*.h5; do
        name=${shard##*/}
        check "$shard and that of run $2 differ" cmp "$shard" "runs/$2/$step/$name"
    done
}

# no_leftovers RUN: nothing half-written in the run folder, and every checkpoint has its manifest.
no_leftovers() {
    [ -d "runs/$1" ] || return 0
    check_not "left over in runs/$1" sh -c "find 'runs/$1' -name '*.tmp*' -o -name '.*' | grep ."
    for checkpoint in "runs/$1"/checkpoints/step_*; do
        [ ! -d "$checkpoint" ] || check "$checkpoint has no manifest" test -s "$checkpoint/manifest.json"
    done
}

# Under mpirun: leaves the process id of every rank in rank.NUMBER.
cat >rank.sh <<'SH'
#!/bin/sh
echo $$ >"rank.$OMPI_COMM_WORLD_RANK"
exec "$@"
SH

# start COMMAND...: the same as run, in the background; its process id into $background.
start() {
    what=$*
    rm -f pid code.txt
    (
        # shellcheck disable=SC2016 # the inner shell's variables
        sh -c 'echo $$ >pid; exec "$@"' sh "$@" >out 2>err </dev/null
        echo $? >code.txt
    ) &
    until [ -s pid ]; do sleep 0.02; done
    background=$(cat pid)
}

# ended: waits for what start has started, at most $limit seconds, and leaves its exit code in $code.
ended() {
    tries=0
    until [ -s code.txt ]; do
        tries=$((tries + 1))
        if [ $tries -gt $((limit * 20)) ]; then
            note_failure "$what
  still runs after $limit s"
            kill -9 "$background"
        fi
        sleep 0.05
    done
    code=$(cat code.txt)
    background=
    what="run in the background: $what"
}

# wait_for_rows RUN COUNT: until metrics.jsonl has that many rows, at most $limit seconds.
wait_for_rows() {
    tries=0
    until [ -f "runs/$1/metrics.jsonl" ] && [ "$(wc -l <"runs/$1/metrics.jsonl")" -ge "$2" ]; do
        tries=$((tries + 1))
        if [ $tries -gt $((limit * 20)) ]; then
            note_failure "run $1 wrote no $2 rows within $limit s"
            return 1
        fi
        sleep 0.05
    done
}

# start_pair RUN ARGUMENTS...: two ranks that train without end, in the background; they have started.
start_pair() {
    name=$1
    shift
    rm -f rank.0 rank.1
    # shellcheck disable=SC2086 # the launcher and its options
    start $mpirun -np 2 sh rank.sh "$FWA" train tiny.yaml train.micro_batch=4 parallel.zero=1 run.name="$name" \
        train.steps=1000000 "$@"
    tries=0
    until { [ -s rank.0 ] && [ -s rank.1 ]; } || [ $tries -gt $((limit * 20)) ]; do
        tries=$((tries + 1))
        sleep 0.05
    done
}

# gone_within SECONDS PROCESS: whether it ends in time.
gone_within() {
    tries=$(($1 * 10))
    while grep -qs ') [^Z] ' "/proc/$2/stat"; do
        tries=$((tries - 1))
        [ $tries -gt 0 ] || return 1
        sleep 0.1
    done
}

# shard FILE TOKENS SEED [IDS [MAGIC [VERSION [COUNT]]]]: a token shard with ids below IDS; COUNT is what its header says.
shard() {
    printf '%b' "$(awk -v tokens="$2" -v seed="$3" -v ids="${4:-64}" -v magic="${5:-20240520}" -v version="${6:-1}" \
        -v count="${7:-$2}" '
    function bytes(value, length_, i) {
        for (i = 0; i < length_; i++) {
            printf "\\0%03o", value % 256
            value = int(value / 256)
        }
    }
    BEGIN {
        bytes(magic, 4); bytes(version, 4); bytes(count, 4)
        for (i = 3; i < 256; i++) bytes(0, 4)
        x = 7919 * seed + 1
        for (i = 0; i < tokens; i++) {
            x = (x * 16807) % 2147483647
            bytes(int(x / 1000) % ids, 2)
        }
    }')" >"$1"
}

# The smallest model with one layer of every kind of core that the rules of the paper use.
cat >tiny.yaml <<'YAML'
run: {threads: 1, backend: cpu}
model:
  layers: 3
  d_model: 32
  heads: 2
  head_dim: 16
  ffn: 48
  vocab_size: 277
  logit_scale: 8
  mixers: [one, many, all]
  mixer:
    one: {rule: falcon1}
    many: {rule: falcon3a, window: 3, chunk: 8}
    all: {rule: softmax}
task: {name: addition, width_min: 1, width_max: 3}
train: {steps: 30, micro_batch: 8, global_batch: 8, precision: f32}
optimizer: {lr: 3e-3, width_scale: false}
schedule: {warmup: 1, min_lr: 1e-4}
checkpoint: {every: 0, keep_last: 0}
eval: {every: 0, batches: 2}
log: {every: 1}
YAML
# A model that learns to add numbers of one digit: a few hundred steps are enough for scores between none and all.
cat >learner.yaml <<'YAML'
run: {threads: 1, backend: cpu}
model:
  layers: 2
  d_model: 48
  heads: 3
  head_dim: 16
  ffn: 96
  vocab_size: 277
  logit_scale: 8
  mixer: {main: {rule: falcon1a, lambda_init: 0.1}}
task: {name: addition, width_min: 1, width_max: 1}
train: {steps: 300, micro_batch: 32, global_batch: 32}
optimizer: {lr: 1e-2, width_scale: false}
schedule: {warmup: 20, min_lr: 1e-4}
checkpoint: {every: 100, keep_last: 0}
eval: {every: 0}
YAML
cat >tiny-lm.yaml <<'YAML'
base: tiny.yaml
task: {name: lm}
data: {train: data/train_*.bin, val: data/val.bin}
train: {seq_len: 16}
YAML

# A training set of two shards with 25 sequences of 16 tokens, and a validation set with 6.
token_data() {
    mkdir -p data
    shard data/train_1.bin 200 1
    shard data/train_2.bin 217 2
    shard data/val.bin 100 3
}

# train RANKS RUN CONFIGURATION ARGUMENTS...
train() {
    ranks=$1 name=$2 configuration=$3
    shift 3
    on "$ranks" train "$configuration" run.name="$name" "$@"
}

# trained RANKS RUN CONFIGURATION ARGUMENTS...: the same; the test ends here if it does not finish.
trained() {
    train "$@"
    expect 0 || finish
}
