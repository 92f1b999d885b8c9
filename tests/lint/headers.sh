#!/bin/sh
# headers.sh ROOT: every header compiles alone as C11 and as C++20. Those of the CPU kernels and of the tests are C only.
here=$(cd "$(dirname "$0")" && pwd)
cd "$1" || exit 2
libraries=$(mpicc --showme:compile 2>/dev/null)
for library in openblas hdf5-serial cmocka; do
    libraries="$libraries $(pkg-config --cflags $library 2>/dev/null)"
done
options="-D_GNU_SOURCE -DOMPI_SKIP_MPICXX -Wall -Wextra -Werror -I. -Itests $libraries"
bad=0
compile() {
    compiler=$1 language=$2 header=$3
    shift 3
    # shellcheck disable=SC2086 # words of compiler options
    echo "#include \"$header\"" |
        "$compiler" -x "$language" "$@" $options -fsyntax-only - || {
        echo "$header does not compile alone as $*"
        bad=1
    }
}
for header in $("$here/sources.sh" . '*.h'); do
    case $header in
    kernels/cpu/*)
        compile cc c "$header" -std=c11 -fopenmp -DFWA_REAL_BITS=32
        compile cc c "$header" -std=c11 -fopenmp -DFWA_REAL_BITS=64
        ;;
    tests/*) compile cc c "$header" -std=c11 -fopenmp ;;
    kernels/cuda/* | dist/nccl_*) ;; # needs CUDA, whose compiler reads it in every build that has one
    *)
        compile cc c "$header" -std=c11
        compile c++ c++ "$header" -std=c++20
        ;;
    esac
done
exit $bad
