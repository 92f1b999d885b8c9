#!/bin/sh
# clang_tool.sh clang-format|clang-tidy: prints the command of version 14, the version whose output the project follows
# (others lay out code differently). Fails if there is none.
for tool in "$1-14" "$1"; do
    if command -v "$tool" >/dev/null && "$tool" --version | grep -q 'version 14\.'; then
        echo "$tool"
        exit 0
    fi
done
echo "$1 14 was not found" >&2
exit 1
