#!/bin/sh
# shell.sh ROOT: shellcheck has nothing to say about any shell script.
here=$(cd "$(dirname "$0")" && pwd)
command -v shellcheck >/dev/null || {
    echo "shellcheck was not found"
    exit 77
}
cd "$1" || exit 2
"$here/sources.sh" . '*.sh' dev run | xargs -r shellcheck
