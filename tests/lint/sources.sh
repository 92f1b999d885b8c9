#!/bin/sh
# sources.sh ROOT PATTERN...: the project's own files whose names match a pattern, relative to ROOT, one a line. Build
# folders, data and runs are not among them.
cd "$1" || exit 2
shift
{
    find . -maxdepth 1 -type f
    for folder in core kernels io dist layers train tests tools configs slurm docs cmake .ci; do
        [ ! -d "$folder" ] || find "./$folder" -type f
    done
} | sed 's|^\./||' | sort | while read -r file; do
    for pattern in "$@"; do
        # shellcheck disable=SC2254 # a pattern is meant
        case ${file##*/} in
        $pattern)
            echo "$file"
            break
            ;;
        esac
    done
done
