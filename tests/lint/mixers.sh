#!/bin/sh
# mixers.sh CMAKE: the build refuses a list of rules that does not agree with the files (cmake/FwaMixers.cmake).
cmake=$1
here=$(cd "$(dirname "$0")" && pwd)
tree=$(mktemp -d) || exit 2
trap 'rm -rf "$tree"' EXIT
mkdir -p "$tree/kernels/cpu" "$tree/kernels/cuda"
printf 'cmake_minimum_required(VERSION 3.25)\nproject(check NONE)\ninclude(%s)\n' \
    "$here/../../cmake/FwaMixers.cmake" >"$tree/CMakeLists.txt"
bad=0

# expect TEXT: configuring fails and says TEXT; "good": it succeeds.
expect() {
    code=0
    "$cmake" -S "$tree" -B "$tree/build" >"$tree/output" 2>&1 || code=$?
    if [ "$1" = good ]; then
        [ "$code" = 0 ] && return
    elif [ "$code" != 0 ] && grep -q "$1" "$tree/output"; then
        return
    fi
    echo "expected: $1; got exit code $code:"
    cat "$tree/output"
    bad=1
}

list() { printf '%b' "$1" >"$tree/kernels/mixers.def"; }
for file in cpu/mixer_a.c cpu/mixer_b.c cpu/mixer_common.c cuda/mixer_b.cu; do touch "$tree/kernels/$file"; done
list '// THE list\nFWA_MIXER(a, CPU)\nFWA_MIXER(b, CPU_CUDA)\n'
expect good
list 'FWA_MIXER(a, CPU)\nFWA_MIXER(b, CPU_CUDA)\nFWA_MIXER(c, CPU)\n'
expect 'rule c (CPU) needs kernels/cpu/mixer_c.c'
list 'FWA_MIXER(a, CPU_CUDA)\nFWA_MIXER(b, CPU_CUDA)\n'
expect 'rule a (CPU_CUDA) needs kernels/cuda/mixer_a.cu'
list 'FWA_MIXER(b, CPU_CUDA)\n'
expect 'kernels/cpu/mixer_a.c belongs to no rule'
list 'FWA_MIXER(a, CPU)\nFWA_MIXER(b, CPU)\n'
expect 'kernels/cuda/mixer_b.cu belongs to no rule'
list 'FWA_MIXER(a, CPU)\nFWA_MIXER(b, CPU_CUDA)\nFWA_MIXER(a, CPU)\n'
expect 'rule a is listed twice'
list 'FWA_MIXER(a, GPU)\nFWA_MIXER(b, CPU_CUDA)\n'
expect 'cannot read'
exit $bad
