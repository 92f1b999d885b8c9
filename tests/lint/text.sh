#!/bin/sh
# text.sh ROOT: no file is longer than 700 lines, and none puts work off with a note.
here=$(cd "$(dirname "$0")" && pwd)
cd "$1" || exit 2
# shellcheck disable=SC2016 # awk's variables, not the shell's
"$here/sources.sh" . '*.c' '*.h' '*.cu' '*.cuh' '*.def' '*.sh' '*.awk' '*.cmake' '*.md' '*.yaml' '*.json' '*.in' \
    CMakeLists.txt dev run | xargs -r awk '
    BEGIN { # written apart, so that this file does not find itself
        words["TO" "DO"]; words["FIX" "ME"]; words["XX" "X"]; words["HA" "CK"]
    }
    FNR == 1 { long = 0 }
    FNR > 700 && !long { print FILENAME ": longer than 700 lines"; long = bad = 1 }
    {
        n = split($0, word, /[^A-Za-z0-9_]+/)
        for (i = 1; i <= n; i++) if (word[i] in words) { print FILENAME ":" FNR ": " word[i]; bad = 1 }
    }
    END { exit bad }'
