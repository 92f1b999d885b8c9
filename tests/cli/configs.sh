#!/bin/sh
# Every configuration there is can be planned, every rule has its own, and the number of parameters in a file's first
# comment is that of its model.
. "$(dirname "$0")/lib.sh"
configs=${FWA_SOURCE_DIR:-$(dirname "$0")/../..}/configs

# planned FILE: what the comment says of it is true.
planned() {
    run "$FWA" train "$1" --dry-run
    expect 0 "parameters" || return
    said=$(sed -n '/^#/p' "$1" | grep -o '[0-9]\{1,3\}\(,[0-9]\{3\}\)\{1,\} parameters' | head -n 1)
    [ -z "$said" ] || check "$1 says $said" grep -qF "parameters  ${said% parameters} " err
}

for folder in lm lm/medium addition; do
    for file in "$configs/$folder"/*.yaml; do
        case $file in */base.yaml | */small.yaml | */medium.yaml) continue ;; esac
        planned "$file"
    done
done
for file in "$configs"/sweeps/*.yaml; do
    run "$FWA" sweep "$file" --list
    expect 0
done
check_not "planning made a run folder" test -e runs

run "$FWA" info
rules=$(sed -n '/^Rules/,/^$/p' out | sed -n 's/^  \([a-z][^ ]*\) .*/\1/p')
check "fwa info lists no rules" test -n "$rules"
for rule in $rules; do
    for folder in lm lm/medium addition; do
        check "no configuration in $folder has rule $rule" grep -qxF "      rule: $rule" "$configs/$folder"/*.yaml
    done
done
finish
