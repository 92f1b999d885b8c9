#!/bin/sh
# selftest.sh: every check accepts a good tree and refuses a bad one, so that a check that finds nothing has looked.
# shellcheck disable=SC2016 # text for other files
here=$(cd "$(dirname "$0")" && pwd)
tree=$(mktemp -d) || exit 2
trap 'rm -rf "$tree"' EXIT
bad=0

# expect CHECK CODE WHY: runs a check on the tree.
expect() {
    code=0
    sh "$here/$1.sh" "$tree" >"$tree/output" 2>&1 || code=$?
    [ "$code" = 77 ] && echo "$1: skipped" && return
    if { [ "$2" = good ] && [ "$code" != 0 ]; } || { [ "$2" = bad ] && [ "$code" = 0 ]; }; then
        echo "$1: expected $2, got exit code $code: $3"
        cat "$tree/output"
        bad=1
    fi
}

# try CHECK CODE FILE TEXT: the same with one more file in the tree, for as long as the check runs.
try() {
    mkdir -p "$(dirname "$tree/$3")"
    printf '%b' "$4" >"$tree/$3"
    expect "$1" "$2" "$3: $4"
    rm "$tree/$3"
}

cp "$here/../../.clang-format" "$tree/"
mkdir -p "$tree/core" "$tree/kernels/cpu"
printf '#include "core/good.h"\n\nint fwa_good(void) {\n    return 1;\n}\n' >"$tree/core/good.c"
printf 'int fwa_good(void);\n' >"$tree/core/good.h"
mkdir -p "$tree/docs/math"
printf 'FWA_MIXER(good, CPU)\n' >"$tree/kernels/mixers.def"
printf '| [good](good.md) |\n' >"$tree/docs/math/README.md"
touch "$tree/docs/math/good.md"
for check in format layering headers rules shell text; do expect $check good "the good tree"; done

try format bad core/ugly.c 'int  ugly( void ){return 1;}\n'
try format bad kernels/cuda/ugly.cu 'int  ugly( void ){return 1;}\n'

try layering good layers/a.c '#include "kernels/ops.h"\n#include "layers/b.h"\n'
try layering good train/a.c '#include "dist/world.h"\n#include "io/config.h"\n'
try layering good dist/a.c '#include <mpi.h>\n#include "core/comm.h"\n'
try layering good io/a.c '#include <hdf5.h>\n'
try layering good kernels/cuda/a.cu '#include <cuda_runtime.h>\n#include "kernels/ops.h"\n'
try layering good kernels/registry.c '#ifdef FWA_WITH_CUDA\n#endif\n'
try layering good tests/unit/test_a.c '#include "check.h"\n#include <hdf5.h>\n#include <mpi.h>\n'
try layering bad core/a.c '#include "kernels/ops.h"\n'
try layering bad kernels/a.c '#include "io/config.h"\n'
try layering bad kernels/cpu/a.c '#  include "dist/world.h"\n'
try layering bad io/a.c '#include "kernels/ops.h"\n'
try layering bad dist/a.h '#include "io/config.h"\n'
try layering bad layers/a.c '#include "dist/world.h"\n'
try layering bad layers/a.c '#include "train/step.h"\n'
try layering bad layers/a.c '#include "io/config.h"\n'
try layering bad core/a.c '#include "good.h"\n'
try layering bad train/a.c '#include <mpi.h>\n'
try layering bad layers/a.c '#include <hdf5.h>\n'
try layering bad train/a.c '#include <H5Ipublic.h>\n'
try layering bad kernels/a.c '#include <cuda_runtime.h>\n'
try layering bad layers/a.c '#include <cublasLt.h>\n'
try layering bad train/a.c '#include <nccl.h>\n'
try layering bad layers/a.c '#ifdef FWA_WITH_CUDA\n#endif\n'

try headers good kernels/cpu/r.h '#if FWA_REAL_BITS != 32 && FWA_REAL_BITS != 64\n#error "no precision"\n#endif\n'
try headers bad core/alone.h 'size_t fwa_size(void);\n'
try headers bad core/c_only.h 'int fwa_new(int new);\n'
try headers bad core/cxx_only.h 'namespace fwa {}\n'
try headers bad kernels/cpu/alone.h 'size_t fwa_size(void);\n'

try rules bad kernels/mixers.def '// no rule\n'
printf 'FWA_MIXER(good, CPU)\nFWA_MIXER(new, CPU_CUDA)\n' >"$tree/kernels/mixers.def"
try rules bad docs/math/new.md '# new\n'
printf '| [new](new.md) |\n' >>"$tree/docs/math/README.md"
expect rules bad "a row without a page"
try rules good docs/math/new.md '# new\n'
rm -r "$tree/docs" "$tree/kernels/mixers.def"

try shell bad tests/a.sh '#!/bin/sh\nrm $1\n'
try shell bad .ci/run '#!/bin/sh\ncd somewhere\n'

try text good core/name.c '// mkdtemp("/tmp/a_XX''XXXX"), HA''CKED, to''do\n'
try text bad core/a.c '// TO''DO: later\n'
try text bad docs/a.md 'FIX''ME\n'
try text bad core/a.h '/* HA''CK */\n'
try text bad tests/a.sh '# XX''X\n'
try text bad core/long.c "$(awk 'BEGIN { for (i = 0; i < 701; i++) printf "\\n" }')"
try text good core/long.c "$(awk 'BEGIN { for (i = 0; i < 700; i++) printf "\\n" }')"

mkdir -p "$tree/train" "$tree/io"
printf '    {"train",\n     "CONFIG.yaml [--resume auto]"},\n    {"info", ""},\n' >"$tree/train/help.c"
printf 'FWA_SECTION(run)\nFWA_SECTION(model)\nFWA_CONFIG_KEY(run, seed)\nFWA_MIXER_KEY(rule)\n' >"$tree/io/config_schema.def"
printf '# Another page\n\n## A heading: two\n' >"$tree/other.md"
try docs good docs/a.md '[a](../other.md#a-heading-two), [b](#one), [c](https://a.b/c)\n\n## One\n\n`core/good.c`, `good.h`\n'
try docs good docs/a.md '`fwa train --resume`, `fwa\ninfo`: `run.seed=1`, `model.mixer.main.rule`, `fwa_good`, `core/<x>.c`\n'
try docs good docs/a.md '`cmake --install`\n\n```c\nfwa_any x; // core/any.c\n```\n'
try docs bad docs/a.md '[a](other.md)\n'
try docs bad docs/a.md '[a\nb](../other.md#two)\n'
try docs bad docs/a.md '`core/bad.c`\n'
try docs bad docs/a.md 'in two lines `bad.c\ngood.c`\n'
try docs bad docs/a.md '| `fwa_bad` |\n'
try docs bad docs/a.md '`fwa fly`\n'
try docs bad docs/a.md '`fwa info --resume`\n'
try docs bad docs/a.md '    mpirun -np 2 fwa train a.yaml --resum auto\n'
try docs bad docs/a.md '```sh\nbuild/fwa train a.yaml run.sead=1 # good\n```\n'
try docs bad docs/a.md '`model.mixer.main.rol`\n'
try docs bad core/a.c '// docs/none.md\n'
try docs bad docs/results/raw.txt '1 ms\n'

[ $bad = 0 ] && echo "every check accepts what it should and refuses what it should"
exit $bad
