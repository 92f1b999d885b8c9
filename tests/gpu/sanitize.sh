#!/bin/sh
# sanitize.sh FOLDER [TOOL...]: every GPU test program in FOLDER, at its smallest size, under tools of compute-sanitizer:
# memcheck, racecheck, synccheck and initcheck unless some are named; tests of all rules a rule at a time. Skips where
# there is no compute-sanitizer or GPU.
# JOBS=N programs run at a time, on all GPUs in turn; FWA_SANITIZE_LOGS names a folder that keeps what they print.
set -u
folder=${1:?names the folder of the test programs}
shift
[ $# -gt 0 ] || set -- memcheck racecheck synccheck initcheck
sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2>/dev/null)
if [ -z "$sanitizer" ]; then
    echo "compute-sanitizer was not found"
    exit 77
fi
gpus=$(nvidia-smi -L 2>/dev/null | grep -c '^GPU') || gpus=1
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
trap 'exit 130' HUP INT TERM
logs=${FWA_SANITIZE_LOGS:-$work}
rules=$(sed -n 's/^FWA_MIXER(\(.*\), *CPU_CUDA).*/\1/p' "$(dirname "$0")/../../kernels/mixers.def")
if [ -z "$rules" ]; then
    echo "found no rules with CUDA kernels in kernels/mixers.def"
    exit 1
fi
rm -f "$logs/codes"
export FWA_TEST_SIZE=smallest OMP_NUM_THREADS=2 sanitizer logs

# Calls that fail on purpose are no error. memcheck alone looks at library kernels, which get our sizes and addresses, and
# at whole steps: what they run, the tests of operators and rules run too. cuDNN's kernels are not judged by the others:
# of attention's those are that have fwa in their names or arguments.
# shellcheck disable=SC2016 # the inner shell's variables
one='
tool=$1 log=$logs/${0##*/}.$3.$1.log
case $tool/$0 in
memcheck/*) more="--report-api-errors no" ;;
*_attention) more="--kernel-name kns=fwa" ;;
*_mixers) more= FWA_ATTENTION=flash && export FWA_ATTENTION ;;
*) more= ;;
esac
[ "$3" = all ] || export FWA_TEST_RULE="$3"
began=$(date +%s)
CUDA_VISIBLE_DEVICES=${CUDA_VISIBLE_DEVICES:-$2} "$sanitizer" --tool "$tool" $more --error-exitcode 99 --print-limit 20 "$0" >"$log" 2>&1
code=$?
echo "$tool $0 ($3): exit code $code, $(($(date +%s) - began)) s"
if [ $code != 0 ] && [ $code != 77 ]; then
    grep "^=========" "$log" | head -n 40
    grep -e FAILED -e ERROR "$log" | head -n 5
fi
echo "$code" >>"$logs/codes"
'
count=0
for tool in "$@"; do
    for program in "$folder"/test_gpu_cuda_*; do
        [ -f "$program" ] || continue
        case $tool/$program in [!m]*_training | [!m]*cuda_step | [!m]*_products) continue ;; esac
        case $program in
        *_mixers | *_chunk | *_pieces | *_handover) parts=$rules ;; # one process would take very long
        *) parts=all ;;
        esac
        for part in $parts; do
            echo "$program $tool $((count % gpus)) $part"
            count=$((count + 1))
        done
    done
done >"$work/list"
if [ ! -s "$work/list" ]; then
    echo "no test programs in $folder"
    exit 1
fi
xargs -P "${JOBS:-8}" -L 1 sh -c "$one" <"$work/list"
sort "$logs/codes" | uniq -c | awk '{ print $1 " runs with exit code " $2 }'
if ! grep -qv 77 "$logs/codes"; then exit 77; fi
! grep -qv -e '^0$' -e '^77$' "$logs/codes"
