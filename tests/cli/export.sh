#!/bin/sh
# A model leaves in a folder and comes back with the same bits; what does not fit is refused and leaves nothing behind.
# (The models in PyTorch: tests/peers/export.py.)
. "$(dirname "$0")/lib.sh"
trained 1 plain tiny.yaml train.steps=3

run "$FWA" export runs/plain away --logits 20
expect 0 "step 3, 47 tensors"
check "not the files of an export" test "$(cd away && echo *)" = "config.json logits.safetensors model.safetensors"
for text in '"format": "fwa-model"' '"step": 3,' '"rule": "falcon3a"' '"window": 3,' '"logit_scale": 8.0'; do
    check "config.json does not say $text" grep -qF -e "$text" away/config.json
done
check "a parameter is not under its own name" grep -aqF '"blocks.1.mixer.conv_k.weight":{"dtype":"F32"' away/model.safetensors

# There and back.
run "$FWA" import away runs/again
expect 0 "runs/again: checkpoint of step 3"
run "$FWA" export runs/again away2 --logits 20
expect 0
for file in model logits; do check "other $file" cmp away/$file.safetensors away2/$file.safetensors; done
check "not the masters alone" test "$(echo runs/again/*)" = \
    "runs/again/checkpoints runs/again/config.yaml runs/again/lock"
mkdir runs/held
run flock runs/held/lock "$FWA" import away runs/held
expect 2 "runs/held is in use by another fwa"
check "a folder in use was written to" test "$(echo runs/held/*)" = runs/held/lock
run "$FWA" import away runs/held
expect 0
for name in plain again; do
    on 1 eval runs/$name --widths 1-2 --examples 40 --json $name.json
    expect 0
done
check "other scores" cmp plain.json again.json
train 1 on tiny.yaml train.steps=2 --init-from runs/again
expect 0
train 1 again runs/again/config.yaml train.steps=4 --resume auto
expect 2 "holds weights alone" "--init-from"
run "$FWA" import away runs/other model.layers=2
expect 2 "model.safetensors: holds tensor blocks.2."
run "$FWA" import away runs/other model.ffn=40
expect 2 "blocks.0.mlp.gate.weight"
run "$FWA" export runs/plain half --dtype bf16
expect 0
check "not half the size" test "$(($(wc -c <half/model.safetensors) * 10))" -lt $(($(wc -c <away/model.safetensors) * 6))
run "$FWA" import half runs/half
expect 0

# LLaMA's layout, without the rows of ids that do not exist, which come back as zeros.
trained 1 soft tiny.yaml train.steps=2 model.mixers='[all]'
run "$FWA" export runs/soft llama --to llama
expect 0 "LLaMA's layout"
check "ids that do not exist" grep -aqF '"model.embed_tokens.weight":{"dtype":"F32","shape":[259,32]' llama/model.safetensors
run "$FWA" import llama runs/llama
expect 0
run "$FWA" export runs/llama llama2 --to llama
check "other weights" cmp llama/model.safetensors llama2/model.safetensors
# A reader that knows LLaMA alone gets the same logits: the scale of this model's stands in its last norm.
mkdir foreign
sed 's/"fwa"/"other"/' llama/config.json >foreign/config.json
cp llama/model.safetensors foreign
run "$FWA" import foreign runs/foreign
expect 0
for name in soft foreign; do
    run "$FWA" export runs/$name logits-$name --logits 20
    expect 0
    od -An -v -tf4 -w4 logits-$name/logits.safetensors | tail -n $((20 * 259)) >$name.txt
done
# shellcheck disable=SC2016 # awk's variables, not the shell's
check "other logits" awk '
NR == FNR { one[FNR] = $1; next }
{ d = one[FNR] - $1; squares += d * d; size += $1 * $1 }
END { exit !(FNR == 20 * 259 && size > 100 && squares < 1e-10 * size) }' soft.txt foreign.txt
for change in tie_word_embeddings:true:false rope_theta:1:5 rms_norm_eps:1:3 attention_bias:false:true; do
    key=${change%%:*} values=${change#*:}
    sed "s/\"$key\": ${values%:*}/\"$key\": ${values#*:}/" foreign/config.json >config.json
    check_not "no $key" cmp -s config.json foreign/config.json
    mkdir "foreign-$key"
    cp config.json llama/model.safetensors "foreign-$key"
    run "$FWA" import "foreign-$key" runs/other
    expect 2 "$key"
done
run "$FWA" export runs/plain none --to llama
expect 2 "layer 0 has rule falcon1" "--to safetensors"

# A Transformer without positions goes by its own names alone, and comes back as one.
trained 1 nope tiny.yaml train.steps=2 model.mixers='[all]' model.mixer.all.rotary=false
run "$FWA" export runs/nope none --to llama
expect 2 "layer 0 has rotary false" "--to safetensors"
run "$FWA" import foreign runs/other model.mixer.main.rotary=false
expect 2 "layer 0 has rotary false"
run "$FWA" export runs/nope nope --logits 20
expect 0
check "config.json does not say it" grep -qF '"rotary": false,' nope/config.json
run "$FWA" import nope runs/nope-again
expect 0
run "$FWA" export runs/nope-again nope2 --logits 20
expect 0
check "other logits" cmp nope/logits.safetensors nope2/logits.safetensors
run "$FWA" import nope runs/turned model.mixer.all.rotary=true
expect 0
run "$FWA" export runs/turned nope3 --logits 20
expect 0
check_not "positions changed no logit" cmp nope/logits.safetensors nope3/logits.safetensors
sed -e 's/"hidden_size": 32/"hidden_size": 64/' -e 's/"fwa"/"other"/' llama/config.json >wrong.json
mkdir wrong
cp wrong.json wrong/config.json
cp llama/model.safetensors wrong
run "$FWA" import wrong runs/wrong
expect 2 "model.embed_tokens.weight"
sed -e 's/"num_key_value_heads": 2/"num_key_value_heads": 1/' -e 's/"fwa"/"other"/' llama/config.json >wrong/config.json
run "$FWA" import wrong runs/wrong
expect 2 "1 key-value head for 2:"

# A tokenizer's files travel under other names.
mkdir words
echo '{"<|endoftext|>": 0}' >words/encoder.json
: >words/vocab.bpe
run "$FWA" export runs/soft spoken --to llama --tokenizer words
expect 0
check "no tokenizer beside the model" cmp words/encoder.json spoken/vocab.json
run "$FWA" export runs/soft mute --tokenizer nowhere
expect 2 "--tokenizer nowhere: has neither vocab.json nor encoder.json"

# Mistakes
for folder in 3 40 2000; do
    mkdir cut$folder
    cp away/config.json cut$folder
    head -c $folder away/model.safetensors >cut$folder/model.safetensors
    run "$FWA" import cut$folder runs/wrong
    expect 2 "cut$folder/model.safetensors"
done
mkdir gone
run "$FWA" import gone runs/wrong
expect 2 "gone/config.json"
cp away/config.json gone
run "$FWA" import gone runs/wrong
expect 2 "gone/model.safetensors"
sed 's/"version": 1/"version": 9/' away/config.json >gone/config.json
run "$FWA" import gone runs/wrong
expect 2 "version 9"
echo '{}' >gone/config.json
run "$FWA" import gone runs/wrong
expect 2 "fwa-model" "llama"
echo '{' >gone/config.json
run "$FWA" import gone runs/wrong
expect 2 "gone/config.json:2: not JSON"
run "$FWA" import away runs/plain
expect 2 "runs/plain has checkpoints already"
mkdir -p runs/training
: >runs/training/metrics.jsonl
run "$FWA" import away runs/training
expect 2 "runs/training is the folder of a training"
check_not "a training got a configuration" test -e runs/training/config.yaml

# The checkpoint comes last: without a configuration there is none; and what an interruption left is no obstacle.
mkdir -p runs/late/config.yaml
run "$FWA" import away runs/late
expect 1 runs/late/config.yaml
check_not "a checkpoint without a configuration" ls runs/late/checkpoints
rmdir runs/late/config.yaml
mkdir -p runs/late/checkpoints/.step_00000003.tmp
echo 'model: {layers: 9}' >runs/late/config.yaml
run "$FWA" import away runs/late
expect 0 "runs/late: checkpoint of step 3"
sed 's/name: again/name: late/' runs/again/config.yaml >wanted.yaml
check "not this model's configuration" diff wanted.yaml runs/late/config.yaml
no_leftovers late
run "$FWA" export runs/plain away
expect 2 "away has files already"
run "$FWA" export runs/plain
expect 2 "a new folder"
run "$FWA" export runs/nothing none
expect 2 "runs/nothing"
run "$FWA" export runs/plain none --to onnx
expect 2 "--to 'onnx'" safetensors
run "$FWA" export runs/plain none --dtype f16
expect 2 "--dtype 'f16'"
run "$FWA" export runs/plain none --logits 5 model.layers=1
expect 2 "model.layers=1"
run "$FWA" export runs/plain none more
expect 2 "got 'more'"
run "$FWA" export runs/plain ''
expect 2 "empty name"
run "$FWA" export runs/plain tiny.yaml
expect 2 "tiny.yaml is a file"
sed '/^ *"step":/d' away/config.json >gone/config.json
run "$FWA" import gone runs/wrong
expect 2 '"step" and "tokens"'
run "$FWA" export runs/plain file/none
expect 0
: >file2
run "$FWA" export runs/plain file2/none
expect 1 file2
check_not "a refused import left a run" ls -d runs/wrong runs/other
check_not "a refused export left a folder" ls -d none mute none.tmp mute.tmp .tmp
finish
