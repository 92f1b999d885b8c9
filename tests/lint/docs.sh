#!/bin/sh
# docs.sh ROOT: what README.md and docs/ name is there: files, headings, configuration keys, commands and options of fwa,
# names of the sources; and the pages that sources and configurations name. Every raw result belongs to a page.
here=$(cd "$(dirname "$0")" && pwd)
cd "$1" || exit 2
lists=$(mktemp -d) || exit 2
trap 'rm -rf "$lists"' EXIT
"$here/sources.sh" . '*' >"$lists/files"
"$here/sources.sh" . '*.c' '*.h' '*.cu' '*.cuh' '*.def' '*.sh' '*.py' '*.awk' '*.cmake' '*.in' CMakeLists.txt dev |
    xargs -r grep -ohE -e '(fwa|FWA)_[A-Za-z0-9_]+|--[a-z][a-zA-Z-]*' | sort -u >"$lists/words"
bad=0
"$here/sources.sh" . '*.c' '*.h' '*.cu' '*.cuh' '*.def' '*.sh' '*.py' '*.yaml' dev |
    grep -v '^tests/lint/' | xargs -r grep -oHE 'docs/[a-z_/]+\.md' | while IFS=: read -r file page; do
    [ -f "$page" ] || echo "$file: no such file: $page"
done >"$lists/pages"
for file in docs/results/*; do
    [ ! -e "$file" ] || grep -qF "${file#docs/}" docs/*.md || echo "$file: no page names it"
done >>"$lists/pages"
if [ -s "$lists/pages" ]; then cat "$lists/pages" && bad=1; fi
# shellcheck disable=SC2046 # one word a page
awk -f "$here/docs.awk" KIND=files "$lists/files" KIND=words "$lists/words" KIND=help train/help.c \
    KIND=schema io/config_schema.def KIND=pages $("$here/sources.sh" . '*.md') || bad=1
exit $bad
