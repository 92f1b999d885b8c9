#!/bin/sh
# The five commands of docs/tutorial.md, as they stand there, with fewer steps: from raw text to a report.
. "$(dirname "$0")/lib.sh"
source_dir=$(cd "${FWA_SOURCE_DIR:-$(dirname "$0")/../..}" && pwd)
mkdir build
ln -s "$FWA" build/fwa
ln -s "$source_dir/README.md" "$source_dir/docs" "$source_dir/configs" .
awk '/^## / { part = /^## [1-5]\. / } /^```/ { inside = part && /sh$/; next } inside' docs/tutorial.md >commands.txt
check "not five commands" test "$(grep -c '^build/fwa ' commands.txt)" = 5
while read -r command; do
    case $command in
    *' train '*) command="$command train.steps=4 train.global_batch=2 train.micro_batch=2 schedule.warmup=1 eval.every=2
        eval.batches=1" ;;
    *' eval '*) command="$command --examples 2" ;;
    esac
    command=$(echo "$command" | tr '\n' ' ')
    run sh -c "$command"
    expect 0 || finish
done <commands.txt
check "no report at the end" grep -q "Validation perplexity" bytes.html
check "the report does not know what fwa eval measured" grep -q "val: bits a byte" bytes.html
finish
