#!/bin/sh
# format.sh ROOT: every C and CUDA file is laid out as .clang-format says (the .def tables are laid out by hand).
here=$(cd "$(dirname "$0")" && pwd)
tool=$("$here/clang_tool.sh" clang-format) || exit 77
cd "$1" || exit 2
found=$("$here/sources.sh" . '*.c' '*.h' '*.cu' '*.cuh' |
    xargs -r "$tool" --style=file --dry-run -Werror 2>&1) && exit 0
echo "$found" | awk -F: -v tool="$tool" '
    /code should be clang-formatted/ { places[$1]++; next }
    /^([Ee]rror|YAML)/
    END { for (file in places) print file ": " places[file] " places; " tool " -i sets them right" }'
exit 1
