#!/bin/sh
# layering.sh ROOT: who may include whom (layering.awk has the rules).
here=$(cd "$(dirname "$0")" && pwd)
cd "$1" || exit 2
"$here/sources.sh" . '*.c' '*.h' '*.cu' '*.cuh' '*.def' | xargs -r awk -f "$here/layering.awk"
