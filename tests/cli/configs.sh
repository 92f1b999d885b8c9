#!/bin/sh
# Every configuration there is can be planned, every rule with CUDA kernels has its own, and the number of parameters in a file's first
# comment is that of its model. The points of a sweep over rows are the rows' own files; a short language model is that of
# the long run.
. "$(dirname "$0")/lib.sh"
configs=${FWA_SOURCE_DIR:-$(dirname "$0")/../..}/configs

# planned FILE: what the comment says of it is true.
planned() {
    run "$FWA" train "$1" --dry-run
    expect 0 "parameters" || return
    said=$(sed -n '/^#/p' "$1" | grep -o '[0-9]\{1,3\}\(,[0-9]\{3\}\)\{1,\} parameters' | head -n 1)
    [ -z "$said" ] || check "$1 says $said" grep -qF "parameters  ${said% parameters} " err
}

for folder in lm lm/medium lm/short addition; do
    for file in "$configs/$folder"/*.yaml; do
        case $file in */base.yaml | */small.yaml | */medium.yaml | */short.yaml) continue ;; esac
        planned "$file"
    done
done
for file in "$configs"/sweeps/*.yaml; do
    run "$FWA" sweep "$file" --list
    expect 0
done
check_not "planning made a run folder" test -e runs

# settings ARGUMENTS...: of a run, without its name, folder and seed.
settings() {
    run "$FWA" train --print-config "$@"
    expect 0
    grep -v -e '^  name: ' -e '^  dir: ' -e '^  seed: ' out
}

# rows SWEEP FOLDER: every row of it is FOLDER/ROW.yaml.
rows() {
    run "$FWA" sweep "$1" --list
    expect 0
    awk '!/paper/ && match($3, /row=[^,]*/) { row = substr($3, RSTART + 4, RLENGTH - 4); if (!n[row]++) print $1, row }' \
        out >rows.txt
    check "$1 has no rows" test -s rows.txt
    while read -r number row; do
        run "$FWA" sweep "$1" --words "$number"
        sed -e 1d -e '/^--resume$/,$d' out >words.txt
        settings "$2/$row.yaml" >file.txt
        # shellcheck disable=SC2046 # words without blanks
        settings $(cat words.txt) >point.txt
        check "$1, row $row, is not $2/$row.yaml" diff file.txt point.txt
    done <rows.txt
}
rows "$configs/sweeps/addition.yaml" "$configs/addition"
rows "$configs/sweeps/lm_short.yaml" "$configs/lm/short"

# model FILE: its part of the settings.
model() {
    settings "$1" | sed -n '/^model:/,/^task:/p'
}
for file in "$configs"/lm/short/*.yaml; do
    model "$file" >short.txt
    model "$configs/lm/$(basename "$file")" >long.txt
    check "$file has another model than its long run" cmp short.txt long.txt
done

rules=$(cuda_rules)
check "fwa info lists no rules with CUDA kernels" test -n "$rules"
for rule in $rules; do
    for folder in lm lm/medium lm/short addition; do
        check "no configuration in configs/$folder has rule $rule" grep -qxF "      rule: $rule" "$configs/$folder"/*.yaml
    done
done
finish
