#!/bin/sh
# What the program says about itself, about its configurations and about models before they are trained.
. "$(dirname "$0")/lib.sh"
configs=${FWA_SOURCE_DIR:-$(dirname "$0")/../..}/configs

# says TEXT...: each stands in standard output, which has no error beside it.
says() {
    expect 0
    for text in "$@"; do check "$what: does not say $text" grep -qF -e "$text" out; done
    check "$what: writes to standard error: $(cat err)" test ! -s err
}

run "$FWA" help
says train eval bench info --version
for command in train eval export import report bench data info; do
    run "$FWA" help $command
    says "usage: fwa $command"
done
run "$FWA" help train
says --resume --init-from --dry-run --print-config 75 key.path=value
run "$FWA" --help
says train
for command in train 'checkpoint list' 'eval runs/a'; do
    # shellcheck disable=SC2086 # several words
    run "$FWA" $command --help
    says "usage: fwa ${command%% *}"
done
run "$FWA" sweep -h
says "usage: fwa sweep"
run "$FWA" --version
says "fwa "
run "$FWA" info
says falcon1 falcon1a falcon3a softmax cpu cuda Operators rmsnorm OpenBLAS HDF5
run "$FWA" help configuration
says train.global_batch model.mixers
check "docs/configuration.md is not what the program prints" diff out "$configs/../docs/configuration.md"

run "$FWA"
expect 2 "usage"
run "$FWA" fly
expect 2 "no command 'fly'" train
run "$FWA" help fly
expect 2 "no command 'fly'" train
run "$FWA" train
expect 2 "no configuration" "usage: fwa train"
run "$FWA" eval
expect 2 "run folder or checkpoint"
run "$FWA" info more
expect 2 "more"
run "$FWA" train --nope
expect 2 "--nope" "--resume"
on 2 train
expect 2 "no configuration"

# What --print-config prints is the whole configuration: read again it prints the same, for every file there is.
find "$configs" -name '*.yaml' ! -path '*/sweeps/*' >files.txt
check "no configurations in $configs" test -s files.txt
# again FILE ARGUMENTS...
again() {
    run "$FWA" train "$@" --print-config
    expect 0 || return
    cp out first.yaml
    run "$FWA" train first.yaml --print-config
    expect 0
    check "$1: printed and read again it is another" diff first.yaml out
}
while read -r file; do again "$file"; done <files.txt
again tiny.yaml "run.name=a: b #c" optimizer.lr=0.1234567890123456789 model.mixers='[one, all]' 'data.train=d/[0-9]*.bin' \
    optimizer.betas='[0.5, 0.25]' run.seed=9007199254740993 schedule.min_lr=1e-300
check "the name was not kept" grep -qF '"a: b #c"' out
check "the seed was not kept" grep -qx '  seed: 9007199254740993' out
check_not "printing a configuration made a run folder" test -e runs

# Models by their number of parameters, planned without memory for them, without data and without a GPU.
# counts FILE NUMBER
counts() {
    run "$FWA" train "$configs/$1.yaml" --dry-run
    expect 0 "$2" || return
    check_not "$1: a dry run made a run folder" test -e runs
}
counts lm/transformer 123,587,328
for rule in falcon1 falcon1a falcon3a; do counts lm/$rule 130,888,080; done
counts lm/retnet 130,666,752
counts lm/deltanet 130,832,712
counts lm/gated_deltanet 130,888,152
counts lm/mamba2 128,958,912
counts lm/mamba2_mlp 140,428,896
counts lm/medium/falcon1a 379,359,616
counts lm/medium/transformer 353,502,208
# shellcheck disable=SC2086 # the launcher and its options
run $mpirun -np 4 "$FWA" train "$configs/lm/falcon1a.yaml" --dry-run
expect 0 130,888,080 "4 ranks"
check_not "the plan is printed more than once" test "$(grep -c 130,888,080 err)" != 1
finish
