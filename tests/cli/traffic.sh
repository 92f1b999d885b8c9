#!/bin/sh
# fwa bench step on ranks: the bytes that it counts between the pieces of sequences are those of the formula, for every
# rule, worked out here for one of them; what is summed is every gradient and little else; parallel.zero sends values.
. "$(dirname "$0")/lib.sh"
sizes="run.backend=cpu model.layers=2 model.d_model=32 model.heads=2 model.head_dim=16 model.ffn=48 model.logit_scale=1
    task.name=addition model.vocab_size=2048 data.reset_documents=false train.precision=f32 train.micro_batch=1
    train.global_batch=2 train.seq_len=32"

# step RANKS CONFIG ARGUMENTS...
step() {
    ranks=$1 config=$2
    shift 2
    # shellcheck disable=SC2086 # several words
    on "$ranks" bench step "$config" $sizes --steps 12 "$@"
    expect 0
}
# field NAME: of the last step's line.
field() {
    columns out "$1" | tail -n 1 | tr -d ' '
}

# A layer of every rule, up to eight a model.
sed -n 's/^FWA_MIXER(\([a-z0-9_]*\),.*/\1/p' "${FWA_SOURCE_DIR:?}/kernels/mixers.def" | split -l 8 - rules.
for part in rules.*; do
    {
        echo "base: $FWA_SOURCE_DIR/configs/lm/small.yaml"
        echo "model:"
        echo "  mixers: [$(paste -s -d , "$part")]"
        echo "  mixer:"
        sed 's/.*/    &: {rule: &}/' "$part"
    } >part.yaml
    for layout in "4 false" "4 true" "2 false" "2 true"; do
        step 4 part.yaml model.layers="$(wc -l <"$part")" parallel.sp="${layout% *}" data.reset_documents="${layout#* }"
        check "$part: $(cat out)" test "$(field exchanged_bytes)" = "$(field exchanged_expected)"
        check "$part: nothing was exchanged" test "$(field exchanged_bytes)" -gt 0
    done
done

falcon1a=$FWA_SOURCE_DIR/configs/lm/falcon1a.yaml
# Three boundaries, both ways, two layers, two sequences: 3 rows of q, k, v and one key of 32, f32, and two heads' S.
step 4 "$falcon1a" parallel.sp=4
check "falcon1a: $(cat out)" test "$(field exchanged_bytes)" = $((3 * 2 * 2 * 2 * 4 * (3 * 96 + 32 + 2 * 16 * 16)))
# Two ranks hold a sequence, and two another; a byte for each of three rows in front of a piece says where documents start.
step 4 "$falcon1a" parallel.sp=2 data.reset_documents=true
check "documents: $(cat out)" test "$(field exchanged_bytes)" = $((2 * 2 * 2 * 4 * (3 * 96 + 32 + 2 * 16 * 16) + 2 * 3))

# A gradient for every parameter in f32, and what stores them in whole rows; the sums of losses, and of signals.
step 2 "$falcon1a"
check "one sequence a rank exchanges nothing: $(cat out)" test "$(field exchanged_bytes)" = 0
check "without parallel.zero nothing is shared: $(cat out)" test "$(field shared_bytes)" = 0
plain=$(field reduced_bytes) parameters=$(field parameters)
check "$plain bytes of $parameters gradients" test "$plain" -ge $((4 * parameters + 40))
check "$plain bytes of $parameters gradients" test "$plain" -le $((parameters * 101 / 25))
step 2 "$falcon1a" parallel.zero=1
check "every value once: $(cat out)" test "$(field shared_bytes)" = $((plain - 40))
check "all gradients with parallel.zero: $(cat out)" test "$(field reduced_bytes)" = "$plain"
step 1 "$falcon1a"
check "one rank: $(cat out)" test "$(field reduced_bytes) $(field exchanged_bytes)" = "0 0"
finish
