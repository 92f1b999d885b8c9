#!/bin/sh
# tidy.sh ROOT BUILD [--all]: clang-tidy on the C files that differ from the last commit, or on all.
here=$(cd "$(dirname "$0")" && pwd)
tool=$("$here/clang_tool.sh" clang-tidy) || exit 77
cd "$1" || exit 2
if [ "${3:-}" = --all ]; then
    files=$("$here/sources.sh" . '*.c')
else
    files=$({
        git diff --name-only --diff-filter=d HEAD
        git ls-files --others --exclude-standard
    } | grep '\.c$' | sort -u)
fi
[ -n "$files" ] || {
    echo "tidy: no changed C file"
    exit 0
}
echo "$files" | xargs -n 4 -P "${JOBS:-$(nproc)}" "$tool" --quiet -p "$2" --warnings-as-errors='*'
