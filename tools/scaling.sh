#!/bin/sh
# How training scales over the ranks of this host: measures, one part after the other, and prints tables.
#
#   scaling.sh --out FOLDER [--fwa PROGRAM] [--backend cuda|cpu] [--ranks 2|4|8] [--seconds N] [--parts LIST]
#              [--rules LIST] [--names LIST] [--limit N] [--plan] [key.path=value ...]
#   scaling.sh --tables FOLDER
#
# Parts, in the order in which they run unless --parts dp,sp,... names others:
#   dp       steps of 491,520 tokens on 1, 2, ... ranks, with and without overlap, with parallel.zero
#   sp       one sequence cut over the ranks: 65,536 tokens on each, 131,072 on all, and beside data ranks
#   resume   a checkpoint of all ranks gone on with on half of them and on one: the same losses
#   project  100 steps on all ranks, and the hours that 49.152 G tokens take at their rate
#   comm     what the communicator moves in a second
#   bytes    what goes between the pieces of a sequence: counted, predicted, and by NCCL's own log
#   table    one sequence over all ranks for every rule
# On a CPU all sizes are tiny. Words key.path=value go to every command. --names: only measurements whose names, as --plan
# prints them, match one of these patterns: 'dp-*-4,dp-*-at?'. --seconds: for all; --limit: the most for one measurement,
# else three times what it takes on an H200 and 20. --plan: what would be measured, and how long it takes.
#
# FOLDER/scaling.jsonl gets a line for each measurement, FOLDER/logs what it said. What stands there of the same build
# and device is not measured again, so that a second start goes on. Ranks fewer than there are leave devices to the next
# measurement, which runs beside it; a single rank that others are compared with runs on every device at once. What
# fails or takes too long, and what --seconds leaves no time for, is said, and the rest goes on. Exit code 1: something
# failed, bytes were not the predicted ones, or a resumed run had other losses.
set -u
export LC_ALL=C # awk reads and writes decimal points
here=$(cd "$(dirname "$0")" && pwd)
all_parts=dp,sp,resume,project,comm,bytes,table
all_rules="falcon1a falcon1 gated_deltanet falcon3a retnet linear_attention deltanet mamba2 falcon2a falcon3 falcon2"
all_rules="$all_rules transformer"

usage() {
    awk 'NR > 1 && /^#/ { sub(/^# ?/, ""); print; next } NR > 1 { exit }' "$0"
}
refuse() {
    echo "scaling.sh: $*" >&2
    exit 2
}

fwa='' out='' backend=cuda n='' budget=3600 parts=$all_parts only='' names='*' most='' plan='' tables='' settings=''
while [ $# -gt 0 ]; do
    case $1 in
    --fwa | --out | --backend | --ranks | --seconds | --parts | --rules | --names | --limit | --tables)
        [ $# -gt 1 ] || refuse "$1: expected a value behind it"
        ;;
    esac
    case $1 in
    --fwa) fwa=$2 && shift ;;
    --out) out=$2 && shift ;;
    --backend) backend=$2 && shift ;;
    --ranks) n=$2 && shift ;;
    --seconds) budget=$2 && shift ;;
    --limit) most=$2 && shift ;;
    --parts) parts=$2 && shift ;;
    --rules) only=$(echo "$2" | tr , ' ') && shift ;;
    --names) names=$2 && shift ;;
    --tables) tables=1 out=$2 && shift ;;
    --plan) plan=1 ;;
    --help | -h) usage && exit 0 ;;
    *=*) settings="$settings $1" ;;
    *) refuse "$1: expected an option or key.path=value (--help)" ;;
    esac
    shift
done
[ -n "$out" ] || refuse "expected --out FOLDER"
rows=$out/scaling.jsonl

print_tables() {
    [ -s "$rows" ] || return 0
    awk -f "$here/scaling.awk" "$rows"
}
if [ -n "$tables" ]; then
    [ -s "$rows" ] || refuse "$rows: no measurements"
    print_tables
    exit
fi

for number in "$budget" "${most:-0}" "${n:-0}"; do
    case $number in
    '' | *[!0-9]* | 0?* | ??????????*) # which sh and timeout read as another, or not at all
        refuse "got '$number', expected a whole number of at most nine digits, no zeros in front (--seconds, --limit, --ranks)"
        ;;
    esac
done

# The program, the devices, and what a row says about them.
if [ -z "$fwa" ]; then
    fwa=$here/../build/fwa
    [ -x "$fwa" ] || fwa=$(command -v fwa) || refuse "expected --fwa PROGRAM"
fi
fwa=$(cd "$(dirname "$fwa")" && pwd)/${fwa##*/}
[ -x "$fwa" ] || refuse "$fwa: not a program"
configs=$here/../configs/lm
case $backend in
cuda | cpu) ;;
*) refuse "--backend $backend: expected cuda or cpu" ;;
esac
# The first line of a device of the backend in `fwa info`, and how many there are.
about() {
    "$fwa" info | awk -v backend="$backend" '
    /^  [a-z]/ { on = $1 == backend }
    /^[A-Z]/ { on = 0 }
    on && /^ +device [0-9]+:/ { count++; if (count == 1) { sub(/^ +device [0-9]+: */, ""); sub(/,.*/, ""); name = $0 } }
    END { print count + 0, name }'
}
found=$(about)
machine=${found#* }
[ -n "$n" ] || [ "$backend" = cuda ] || n=2
[ -n "$n" ] || [ "${found%% *}" != 0 ] || refuse "no GPU that fwa can use (fwa info): name --ranks with --plan, or --backend cpu"
[ -n "$n" ] || n=${found%% *}
if [ "$backend" = cuda ] && [ -z "$plan" ] && [ "$n" -gt "${found%% *}" ]; then
    refuse "$n ranks and ${found%% *} GPUs that fwa can use (fwa info)"
fi
case $n in
2 | 4 | 8) ;;
*) refuse "$n ranks: expected 2, 4 or 8 (--ranks)" ;;
esac
commit=$("$fwa" --version | sed 's/.*commit \([0-9a-z+-]*\).*/\1/')
mpirun=${FWA_MPIRUN:-mpirun --allow-run-as-root --oversubscribe --bind-to none}
# Device i of this process, where the caller has some of them only.
device() {
    if [ -n "${CUDA_VISIBLE_DEVICES:-}" ]; then
        echo "$CUDA_VISIBLE_DEVICES" | cut -d , -f $(($1 + 1))
    else
        echo "$1"
    fi
}

mkdir -p "$out/logs" || refuse "$out: cannot make the folder"
out=$(cd "$out" && pwd) rows=$(cd "$out" && pwd)/scaling.jsonl
touch "$rows" || refuse "$rows: cannot write"
started=$(date +%s)
failed=0 skipped=0 seconds_planned=0
free=0       # the first device that no measurement of the round under way has
round=''     # names of what is under way
tried=''     # and of all since the start
named=''     # patterns of --names that had any
round_cost=0 # the longest of it

remaining() {
    echo $((budget - $(date +%s) + started))
}
quoted() { # as a string of JSON
    printf '"%s"' "$(printf %s "$1" | tr '\t\n' '  ' | sed 's/[\\"]/\\&/g')"
}

# Waits for what is under way and keeps its rows, in the order of their start.
flush() {
    wait
    for done in $round; do
        [ -z "$plan" ] || continue
        cat "$out/logs/$done.row" >>"$rows"
        ended=$(sed 's/.*"code": \([0-9]*\).*/\1/;q' "$out/logs/$done.row")
        [ "$ended" = 0 ] && continue
        failed=$((failed + 1))
        echo "FAILED ($ended): $done: $(grep -i -m 1 error "$out/logs/$done.err")" >&2
    done
    seconds_planned=$((seconds_planned + round_cost))
    free=0 round='' round_cost=0
}

# Interrupted: so is what runs in the background.
stop() {
    for done in $round; do
        [ ! -s "$out/logs/$done.pid" ] || kill "$(cat "$out/logs/$done.pid")" 2>/dev/null
    done
    wait
    exit 130
}
trap stop HUP INT TERM

# In the background: one measurement, and its row.
#   work NAME HEAD LIMIT RANKS DEVICES KIND ARGUMENTS...
work() {
    name=$1 head=$2 limit=$3 ranks=$4 devices=$5 kind=$6
    shift 6
    launcher=''
    [ "$ranks" = 1 ] || launcher="$mpirun -np $ranks"
    began=$(date +%s) code=0
    # shellcheck disable=SC2086 # the launcher's words
    (
        [ "$backend" = cpu ] || export CUDA_VISIBLE_DEVICES="$devices"
        [ "$kind" != bytes ] ||
            export NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=COLL NCCL_DEBUG_FILE="$out/logs/$name.nccl.%p"
        # shellcheck disable=SC2016 # the inner shell's variables
        exec sh -c 'echo $$ >"$0"; exec "$@"' "$out/logs/$name.pid" timeout -k 5 "$limit" $launcher "$fwa" "$@"
    ) >"$out/logs/$name.out" 2>"$out/logs/$name.err" </dev/null || code=$?
    rm -f "$out/logs/$name.pid"
    result=$(result_of "$kind" "$name")
    [ "$code" = 0 ] && [ -z "$result" ] && code=99 # it ended well and printed no result
    [ "$code" = 0 ] || result=null
    echo "{$head, \"devices\": $(quoted "$devices"), \"code\": $code, \"seconds\": $(($(date +%s) - began))," \
        "\"commit\": $(quoted "$commit"), \"machine\": $(quoted "$machine")," \
        "\"command\": $(quoted "${launcher:+$launcher }fwa $*" | sed "s|$here/../||g"), \"result\": $result}" \
        >"$out/logs/$name.row"
}

# What a measurement printed, as JSON.
result_of() {
    case $1 in
    step) grep '^{"bench": "step"' "$out/logs/$2.out" ;;
    comm)
        awk '$1 ~ /^(all-reduce|all-gather|reduce-scatter|exchange)$/ && NF == 5 {
            printf "%s{\"operation\": \"%s\", \"bytes\": %s, ", (n++ ? ", " : "["), $1, $2
            printf "\"us\": %s, \"busbw\": %s}", $3, $5
        } END { if (n) print "]" }' "$out/logs/$2.out"
        ;;
    train) # rows of the last two steps
        tail -n 2 "$out/resume/$2/metrics.jsonl" 2>/dev/null |
            awk '{ printf "%s%s", (NR > 1 ? ", " : "["), $0 } END { if (NR == 2) print "]" }'
        ;;
    bytes) # beside fwa's count: bytes that NCCL says it was given to send, of the first three steps and one more
        cat "$out/logs/$2.nccl."* 2>/dev/null | awk '/ Send: / && / datatype 1 / {
            for (i = 1; i < NF; i++) if ($i == "count") sum += $(i + 1)
            sends++
        } END { printf "{\"nccl_bytes\": %s, \"step\": ", (sends ? sprintf("%.0f", sum / 4) : "null") }'
        grep '^{"bench": "step"' "$out/logs/$2.out" | sed 's/$/}/'
        ;;
    esac
}

# Whether --names has the measurement.
chosen() {
    set -f # patterns, not files
    hit=1
    for pattern in $(echo "$names" | tr , ' '); do
        # shellcheck disable=SC2254 # a pattern
        case $1 in $pattern) named="$named $pattern " hit=0 ;; esac
    done
    set +f
    return $hit
}

# Whether the rows have it, of this program on this machine.
measured() {
    here_now="\"commit\": $(quoted "$commit"), \"machine\": $(quoted "$machine")"
    grep -q "\"name\": \"$1\", .*\"code\": 0, .*$here_now" "$rows"
}

skip() { # WHAT AND WHY
    echo "skipped: $*" >&2
    echo "$*" >>"$out/logs/skipped"
    skipped=$((skipped + 1))
}

# measure PART NAME RANKS SECONDS KIND FIELDS ARGUMENTS...: SECONDS as it should take, FIELDS of its row.
measure() {
    part=$1 name=$2 ranks=$3 cost=$4 kind=$5 fields=$6
    shift 6
    case " $tried " in *" $name "*) return ;; esac
    chosen "$name" || return
    measured "$name" && return
    [ $((free + ranks)) -le "$n" ] || flush
    if [ "$(remaining)" -lt "$cost" ]; then
        skip "$name: about $cost s, and $(remaining) s are left"
        return
    fi
    devices=$(device "$free")
    i=1
    while [ $i -lt "$ranks" ]; do
        devices=$devices,$(device $((free + i)))
        i=$((i + 1))
    done
    free=$((free + ranks))
    round="$round $name" tried="$tried $name"
    [ "$cost" -le "$round_cost" ] || round_cost=$cost
    echo "[$(($(date +%s) - started)) s] $part $name on $devices, about $cost s" >&2
    [ -n "$plan" ] && return
    limit=${most:-$((3 * cost + 20))}
    [ "$limit" -le "$(remaining)" ] || limit=$(remaining)
    # shellcheck disable=SC2086 # several words
    work "$name" "\"part\": \"$part\", \"name\": \"$name\", \"ranks\": $ranks, $fields" "$limit" "$ranks" "$devices" \
        "$kind" "$@" $settings &
}

# Sizes. A rule's milliseconds a step for 65,536 tokens on an H200, of attention without its pairs.
if [ "$backend" = cuda ]; then
    batch=480 micro=60 length=1024 piece=65536 strong=131072 short=8192 precisions="f32 bf16" comm="--from 16777216"
else
    batch=8 micro=1 length=32 piece=32 strong=64 short=32 precisions="f32 f64" comm="--from 4096 --to 65536"
fi
config_of() {
    if [ "$backend" = cuda ]; then
        echo "$configs/$1.yaml run.backend=cuda"
    else
        rule=$1
        [ "$rule" != transformer ] || rule=softmax
        echo "$configs/tiny.yaml run.name=$1 model.mixer.main.rule=$rule run.backend=cpu run.threads=1"
    fi
}
rate() {
    case $1 in
    falcon2) echo 350 ;;
    falcon3) echo 200 ;;
    mamba2 | falcon2a) echo 180 ;;
    *) echo 125 ;;
    esac
}
# step_ms RULE TOKENS RANKS: of a sequence of RANKS pieces of TOKENS.
step_ms() {
    ms=$(($(rate "$1") * $2 / 65536 + 20))
    [ "$1" != transformer ] || ms=$((ms + 10 * ($2 / 8192) * ($2 / 8192) * (2 * $3 - 1)))
    echo $ms
}
# cost_ms MILLISECONDS STEPS: seconds of a measurement with its start and three steps of warm-up.
cost_ms() {
    if [ "$backend" = cuda ]; then echo $((6 + $1 * ($2 + 3) / 1000)); else echo 2; fi
}
wanted() { # the rules of a part among those of --rules
    for rule in "$@"; do
        case " ${only:-$*} " in *" $rule "*) echo "$rule" ;; esac
    done
}

# data PART RULE RANKS STEPS SUFFIX ZERO OVERLAP [ARGUMENTS...]: steps of `batch` sequences. SUFFIX: of the name.
data() {
    part=$1 rule=$2 ranks=$3 steps=$4 suffix=$5 zero=$6 overlap=$7
    shift 7
    ms=$(($(rate "$rule") * batch * length / 65536 / ranks))
    # shellcheck disable=SC2046,SC2086 # several words
    measure "$part" "$part-$rule-$ranks$suffix" "$ranks" "$(cost_ms $ms "$steps")" step \
        "\"rule\": \"$rule\", \"sp\": 1, \"length\": $length, \"zero\": $zero, \"overlap\": $overlap" \
        bench step $(config_of "$rule") train.seq_len=$length train.global_batch=$batch train.micro_batch=$micro \
        "$@" --steps "$steps"
}
powers() { # 2, 4, ... up to the number of ranks
    i=2
    while [ $i -le "$n" ]; do
        echo $i
        i=$((i * 2))
    done
}

part_dp() {
    for rule in $(wanted transformer falcon1); do
        flush
        d=0
        while [ $d -lt "$n" ]; do
            data dp "$rule" 1 6 "-at$d" 0 true
            d=$((d + 1))
        done
    done
    for ranks in $(powers | sort -rn); do
        for rule in $(wanted transformer falcon1); do data dp "$rule" "$ranks" $((6 * ranks)) "" 0 true; done
        for rule in $(wanted transformer falcon1); do
            data dp "$rule" "$ranks" $((6 * ranks)) -no-overlap 0 false --no-overlap
        done
        for rule in $(wanted transformer falcon1); do
            data dp "$rule" "$ranks" $((6 * ranks)) -zero1 1 true parallel.zero=1
        done
    done
    flush
}

# cut RULE RANKS SP TOKENS SUFFIX: RANKS/SP sequences of TOKENS, each in SP pieces.
cut() {
    rule=$1 ranks=$2 sp=$3 tokens=$4 suffix=$5
    ms=$(step_ms "$rule" $((tokens / sp)) "$sp")
    steps=$((4000 / ms))
    [ $steps -le 24 ] || steps=24
    [ $steps -ge 2 ] || steps=2
    # shellcheck disable=SC2046 # several words
    measure "$part" "sp-$rule-$ranks-$sp-$tokens$suffix" "$ranks" "$(cost_ms "$ms" $steps)" step \
        "\"rule\": \"$rule\", \"sp\": $sp, \"length\": $tokens, \"zero\": 0, \"overlap\": true" \
        bench step $(config_of "$rule") train.seq_len="$tokens" train.global_batch=$((ranks / sp)) train.micro_batch=1 \
        parallel.sp="$sp" data.reset_documents=false --steps $steps
}
weak() { # RULE: a piece on every rank alone, and on all of them together
    flush
    d=0
    while [ $d -lt "$n" ]; do
        cut "$1" 1 1 $piece "-at$d"
        d=$((d + 1))
    done
    cut "$1" "$n" "$n" $((n * piece)) ""
}
part_sp() {
    part=sp
    main=$(wanted falcon1a falcon1)
    others=$(wanted falcon3a gated_deltanet)
    attention=$(wanted transformer)
    for rule in $main; do weak "$rule"; done
    for rule in $main; do cut "$rule" 1 1 $strong ""; done
    [ "$n" = 2 ] || for rule in $main; do cut "$rule" 2 2 $((2 * piece)) ""; done
    for rule in $main; do cut "$rule" "$n" "$n" $strong ""; done
    [ "$n" = 2 ] || for rule in $main; do cut "$rule" "$n" 2 $((2 * piece)) ""; done
    for rule in $others; do weak "$rule"; done
    for rule in $attention; do weak "$rule"; done
    for rule in $others $attention; do cut "$rule" 1 1 $strong ""; done
    [ "$n" = 2 ] || for rule in $others $attention; do cut "$rule" 2 2 $((2 * piece)) ""; done
    for rule in $others $attention; do cut "$rule" "$n" "$n" $strong ""; done
    flush
}
part_table() {
    part=table
    # shellcheck disable=SC2086 # several words
    for rule in $(wanted $all_rules); do weak "$rule"; done
    flush
}

part_bytes() {
    part=bytes
    for rule in $(wanted falcon1a falcon1 falcon3a mamba2 transformer); do
        # shellcheck disable=SC2046 # several words
        measure bytes "bytes-$rule-$n" "$n" "$(cost_ms 100 1)" bytes \
            "\"rule\": \"$rule\", \"sp\": $n, \"length\": $((n * short)), \"zero\": 0, \"overlap\": true" \
            bench step $(config_of "$rule") train.seq_len=$((n * short)) train.global_batch=1 train.micro_batch=1 \
            parallel.sp="$n" data.reset_documents=false --steps 1 --eager
    done
    flush
}

part_comm() {
    for ctas in 8 0; do
        [ "$backend" = cuda ] || [ $ctas = 0 ] || continue
        keep=$settings settings='' # its command has no keys
        # shellcheck disable=SC2086 # several words
        measure comm "comm-$n-$ctas" "$n" "$(cost_ms 900 7)" comm "\"ctas\": $ctas" \
            bench comm --backend $backend $comm --ctas $ctas
        settings=$keep
        flush
    done
}

part_project() {
    for rule in $(wanted transformer falcon1); do data project "$rule" "$n" 100 "" 0 true; done
    flush
}

# Random words, so that training needs no file; the same in every run.
write_tokens() {
    [ -d "$out/resume/tokens" ] && return
    mkdir -p "$out/resume"
    awk 'BEGIN {
        x = 1
        for (i = 0; i < 60000; i++) {
            x = (x * 16807) % 2147483647
            printf "%d%s", x % 2000, (i % 12 ? " " : "\n")
        }
    }' >"$out/resume/words.txt"
    "$fwa" data tokenize "$out/resume/words.txt" --tokenizer bytes --val 0 --out "$out/resume/tokens" \
        >"$out/logs/tokens.out" 2>"$out/logs/tokens.err" ||
        echo "FAILED: fwa data tokenize: see $out/logs/tokens.err" >&2
}
# resumed PRECISION RANKS save|on ARGUMENTS...: of `on` they are --resume CHECKPOINT, which all ranks have saved; how many
# these were stands in the name, before the ranks that go on.
resumed() {
    precision=$1 ranks=$2 name=resume-save-$1-$2 from=''
    [ "$3" = save ] || name=resume-on-$1-$n-$2 from=", \"saved_ranks\": $n"
    shift 3
    if [ $# -gt 0 ] && [ -z "$plan" ] && [ ! -d "$2" ]; then
        measured "$name" || ! chosen "$name" || skip "$name: there is no $2"
        return
    fi
    [ -n "$plan" ] || ! chosen "$name" || measured "$name" || rm -rf "$out/resume/$name"
    # shellcheck disable=SC2046 # several words
    measure resume "$name" "$ranks" "$(cost_ms 500 5)" train \
        "\"rule\": \"falcon1\", \"precision\": \"$precision\", \"sp\": 1$from" \
        train $(config_of falcon1) data.train="$out/resume/tokens/*.bin" data.val="$out/resume/tokens/*.bin" \
        data.reset_documents=false eval.every=0 \
        train.steps=100 train.stop_after=6 train.seq_len=$length train.global_batch=16 train.micro_batch=$((16 / n)) \
        train.precision="$precision" optimizer.lr=1e-4 schedule.min_lr=1e-5 schedule.warmup=2 log.every=1 \
        checkpoint.every=4 checkpoint.keep_last=3 run.dir="$out/resume" run.name="$name" "$@"
}
part_resume() {
    [ -n "$plan" ] || write_tokens
    for precision in $precisions; do resumed "$precision" "$n" save; done
    flush
    for precision in $precisions; do
        saved=$out/resume/resume-save-$precision-$n/checkpoints/step_00000004
        for ranks in $(powers | sort -rn) 1; do resumed "$precision" "$ranks" on --resume "$saved"; done
    done
    flush
    [ -z "$plan" ] || return 0
    for precision in $precisions; do # gigabytes, which what is not measured yet has to read
        for ranks in $(powers) 1; do measured "resume-on-$precision-$n-$ranks" || continue 2; done
        find "$out/resume" \( -path "*/resume-save-$precision-$n/*" -o -path "*/resume-on-$precision-$n-*" \) \
            -name 'shard.*.h5' -exec rm -f {} +
    done
}

rm -f "$out/logs/skipped"
[ -z "$only" ] || for rule in $only; do
    case " $all_rules " in *" $rule "*) ;; *) refuse "--rules $rule: expected some of $all_rules, with commas" ;; esac
done
case $parts in *[!\ ,]*) ;; *) refuse "--parts $parts: expected some of $all_parts" ;; esac
for part in $(echo "$parts" | tr , ' '); do
    case ",$all_parts," in *",$part,"*) ;; *) refuse "--parts $part: expected some of $all_parts" ;; esac
done
for each in $(echo "$parts" | tr , ' '); do
    before=$seconds_planned
    "part_$each"
    [ -z "$plan" ] || echo "part $each: about $((seconds_planned - before)) s"
done
if [ "$names" != "*" ]; then
    [ -n "$named" ] || refuse "--names $names: no measurement of these parts has such a name (--plan)"
    set -f
    for pattern in $(echo "$names" | tr , ' '); do
        case $named in *" $pattern "*) ;; *) skip "--names $pattern: no measurement of these parts has such a name" ;; esac
    done
    set +f
fi
if [ -n "$plan" ]; then
    echo "all: about $seconds_planned s"
    exit
fi
wrong=0
print_tables || wrong=1
echo
[ $skipped = 0 ] || sed 's/^/Not measured: /' "$out/logs/skipped"
echo "$failed failed, $skipped skipped; $(($(date +%s) - started)) s"
[ $failed = 0 ] && [ $wrong = 0 ]
