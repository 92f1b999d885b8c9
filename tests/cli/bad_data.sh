#!/bin/sh
# Token shards that cannot be used: exit code 2, file, value and expectation are named, no run folder is left.
. "$(dirname "$0")/lib.sh"
token_data
trained 1 good tiny-lm.yaml train.steps=1
rm -r runs

# refused FILE TEXT...: FILE stands as the training data.
refused() {
    train 1 refused tiny-lm.yaml data.train="$1"
    expect 2 "$@"
    check_not "$what: left a run folder" test -e runs
    rm -rf runs
}

shard whole.bin 300 1
head -c 1500 whole.bin >cut.bin
refused cut.bin 300 1624 1500
{
    cat whole.bin
    printf '12'
} >long.bin
refused long.bin 300 1624 1626
head -c 1000 whole.bin >header.bin
refused header.bin 1000 1024
: >empty.bin
refused empty.bin "0 bytes"
shard magic.bin 300 1 64 20240522
refused magic.bin 20240522 20240520
shard version.bin 300 1 64 20240520 2
refused version.bin "version 2"
shard fewer.bin 300 1 64 20240520 1 299
refused fewer.bin 299
shard more.bin 300 1 64 20240520 1 301
refused more.bin 301
shard none.bin 0 1
refused none.bin
shard negative.bin 300 1 64 20240520 1 4294967295
refused negative.bin
shard ids.bin 300 1 4000
refused ids.bin 277
mkdir data/folder.bin
refused data/folder.bin

# Documents can be parted by GPT-2's mark alone: shards without it are used, and the log says so.
shard unmarked.bin 300 1
shard marked.bin 300 1
printf '\120\304' | dd of=marked.bin bs=1 seek=1034 conv=notrunc 2>dd.txt # 50256
for file in unmarked marked; do
    trained 1 $file tiny-lm.yaml train.steps=1 model.vocab_size=50304 data.reset_documents=true data.train=$file.bin
    cat out err >said.txt
    grep -c 'document mark 50256' said.txt >$file.count
    rm -r runs
done
check "nothing said of missing marks" grep -qx 1 unmarked.count
check "marks were not found" grep -qx 0 marked.count

# One bad file among good ones is found before the first step, wherever it stands.
cp ids.bin data/train_9.bin
train 1 refused tiny-lm.yaml
expect 2 data/train_9.bin 277
check_not "left a run folder" test -e runs
rm data/train_9.bin

# The glob finds nothing; too little for one sequence; validation data is looked at before training, too.
refused 'nowhere/*.bin'
shard short.bin 16 1
refused short.bin 16 17
train 1 refused tiny-lm.yaml data.val=cut.bin eval.every=1
expect 2 cut.bin 1500
train 1 refused tiny-lm.yaml data.val='nowhere/*.bin' eval.every=1
expect 2 'nowhere/*.bin' data.val
train 1 refused tiny-lm.yaml 'data.val=""' eval.every=1
expect 2 eval.every data.val
check_not "left a run folder" test -e runs
trained 1 unasked tiny-lm.yaml train.steps=2 'data.val=""'
rm -r runs
if [ "$(id -u)" != 0 ]; then
    cp whole.bin locked.bin
    chmod 0 locked.bin
    refused locked.bin "Permission denied"
fi

# Other data than before: a run does not go on with it.
trained 1 run tiny-lm.yaml train.stop_after=2
shard data/train_2.bin 217 9
train 1 run tiny-lm.yaml --resume auto
expect 2 "data.train" "step_00000002"
rm -r runs

# On several ranks, and on one of them alone, be it the first or the last: all leave with the same code, none waits.
train 2 refused tiny-lm.yaml data.train=magic.bin train.micro_batch=4
expect 2 magic.bin 20240522
mkdir here there
cp -r tiny.yaml tiny-lm.yaml data here
cp -r tiny.yaml tiny-lm.yaml data there
head -c 1100 whole.bin >there/data/train_1.bin
cat >rank.sh <<'SH'
#!/bin/sh
if [ "$OMPI_COMM_WORLD_RANK" = "$bad" ]; then cd there; else cd here; fi || exit 99
exec "$@"
SH
for bad in 0 1 2; do
    # shellcheck disable=SC2086 # the launcher and its options
    run env bad=$bad $mpirun -np 3 sh rank.sh "$FWA" train \
        tiny-lm.yaml run.name=refused train.micro_batch=1 train.global_batch=6
    expect 2 data/train_1.bin 1100 "rank $bad"
    check_not "bad data on rank $bad: left a run folder" test -e here/runs -o -e there/runs
done

# Sequences of all updates may be more than 64 bits count.
cd here || exit 1
run "$FWA" train tiny-lm.yaml train.steps=9223372036854775807 train.stop_after=1
expect 0 " epochs"
check_not "epochs below 0" grep -q -e '-[0-9.]* epochs' err
finish
