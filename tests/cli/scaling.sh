#!/bin/sh
# tools/scaling.sh: its tables from rows whose results are worked out here, all its parts on two ranks, what stands
# measured is not measured again, and what fails, hangs or finds no time is said while the rest goes on.
. "$(dirname "$0")/lib.sh"
tool=$FWA_SOURCE_DIR/tools/scaling.sh
FWA_MPIRUN=$mpirun
export FWA_MPIRUN

# row NAME FIELDS RESULT: of a measurement that went well.
row() {
    echo "{\"part\": \"${1%%-*}\", \"name\": \"$1\", $2, \"code\": 0, \"commit\": \"c\", \"machine\": \"m\"," \
        "\"result\": $3}"
}
# line PART NAME RULE RANKS SP LENGTH TOKENS MS [EXCHANGED EXPECTED]
line() {
    row "$1-$2" "\"ranks\": $4, \"rule\": \"$3\", \"sp\": $5, \"length\": $6, \"zero\": 0, \"overlap\": true" \
        "{\"tokens\": $7, \"ms_median\": $8, \"ms_mean\": $8, \"tokens_per_s\": $(($7 * 1000 / $8)),
        \"mem_bytes\": 2500000000, \"exchanged_bytes\": ${9:-0}, \"exchanged_expected\": ${10:-0}}" | tr -d '\n'
    echo
}
# tables: of rows.jsonl
tables() {
    mkdir -p known
    mv rows.jsonl known/scaling.jsonl
    run sh "$tool" --tables known
}
says() {
    check "the tables do not say: $1
$(cat out)" grep -qF -e "$1" out
}
{
    line dp a0 falcon1 1 1 1024 1000 100
    line dp a1 falcon1 1 1 1024 1000 140
    line dp b falcon1 2 1 1024 1000 75
    line sp c0 falcon1a 1 1 64 64 90
    line sp c1 falcon1a 1 1 64 64 110
    line sp d falcon1a 2 2 128 128 125 700 700
    line sp e falcon1a 1 1 128 128 200
    line sp f falcon1a 4 2 128 256 160 1400 1400
    line project g falcon1 2 1 1024 491520 250
    row resume-save-f32-4 '"ranks": 4, "precision": "f32"' '[{"loss": 2.0}, {"loss": 1.5}]'
    row resume-on-f32-1 '"ranks": 1, "precision": "f32", "saved_ranks": 4' '[{"loss": 2.0}, {"loss": 1.500006}]'
    # Another start in the same folder, on two ranks; a row of before there was saved_ranks.
    row resume-save-f32-2 '"ranks": 2, "precision": "f32"' '[{"loss": 3.0}, {"loss": 2.5}]'
    row resume-on-f32-2 '"ranks": 2, "precision": "f32", "saved_ranks": 2' '[{"loss": 3.0}, {"loss": 2.5}]'
    row resume-on-f32-4 '"ranks": 4, "precision": "f32",
        "command": "fwa train --resume x/resume/resume-save-f32-4/checkpoints/step_00000004 run.name=resume-on-f32-4"' \
        '[{"loss": 2.0}, {"loss": 1.5}]' | tr -d '\n'
} >rows.jsonl
tables
expect 0
says "| falcon1 | 1000 | 1 | 2 at once, 100.0 to 140.0 ms | 120.0 | 8.3 k | | | 2.5 |"
says "| falcon1 | 1000 | 2 |  | 75.0 | 13.3 k | 80.0 % | 93.3 % | 2.5 |"
says "| falcon1a | 1 | 2 | 128 | 100.0 | 110.0 | 125.0 | 1.0 k | 80.0 % | 88.0 % | 2.5 |"
says "| falcon1a | 2 | 2 | 128 | 100.0 | 110.0 | 160.0 | 1.6 k | 62.5 % | 68.8 % | 2.5 |"
says "| falcon1a | 128 | 2 | 200.0 | 125.0 | 1.0 k | 1.60 | 80.0 % |"
says "| falcon1 | 2 | 491520 | 250.0 | 250.0 | 1966.1 k | 6.94 |"
says "| f32 | 4 | 1 | 2.0 | 2.0 | 1.500006 | 1.5 | 4.0e-06 | 1e-05 |"
says "| f32 | 2 | 2 | 3.0 | 3.0 | 2.5 | 2.5 | 0.0e+00 | 1e-05 |"
says "| f32 | 4 | 4 | 2.0 | 2.0 | 1.5 | 1.5 | 0.0e+00 | 1e-05 |"
says "| falcon1a | 1 | 2 | 128 | 700 | 700 |  | equal |"
mkdir locale
if localedef -i de_DE -f UTF-8 locale/de_DE.UTF-8 >locale.txt 2>&1; then # decimal commas
    mv out points.md
    run env LOCPATH="$work/locale" LC_ALL=de_DE.UTF-8 sh "$tool" --tables known
    expect 0
    check "other tables in another locale" diff points.md out
fi

line sp d falcon1a 2 2 128 128 125 700 701 >rows.jsonl
tables
expect 1
says DIFFERENT
{
    row resume-save-f32-4 '"ranks": 4, "precision": "f32"' '[{"loss": 2.0}, {"loss": 1.5}]'
    row resume-on-f32-1 '"ranks": 1, "precision": "f32", "saved_ranks": 4' '[{"loss": 2.0}, {"loss": 1.5001}]'
} >rows.jsonl
tables
expect 1
says "TOO FAR APART"

tiny="data.reset_documents=false model.layers=1 model.d_model=32 model.heads=2 model.head_dim=16 model.ffn=48
    model.vocab_size=277 optimizer.lr=2e-2"
# scaling PROGRAM FOLDER ARGUMENTS...
scaling() {
    program=$1 folder=$2
    shift 2
    # shellcheck disable=SC2086 # several words
    run sh "$tool" --fwa "$program" --out "$folder" --backend cpu --ranks 2 --rules falcon1 "$@" $tiny
}
limit=240
scaling "$FWA" all
expect 0
for title in "Data parallel" "Weak scaling" "Strong scaling" Resumed "The whole run" "What the communicator" Bytes; do
    says "$title"
done
says "0 failed, 0 skipped"
check "not 18 measurements" test "$(grep -c '"code": 0' all/scaling.jsonl)" = 18
check "not four rows of what two ranks had saved" test \
    "$(grep -c '"name": "resume-on-.*"saved_ranks": 2, .*"code": 0' all/scaling.jsonl)" = 4
sed 's/, "saved_ranks": 2//' all/scaling.jsonl >old.jsonl # as rows once were
check_not "the field is still there" grep -q saved_ranks old.jsonl
mv old.jsonl all/scaling.jsonl
scaling "$FWA" all
expect 0
says "| f64 | 2 | 1 |"
check "measured again: $(cat err)" test "$(wc -l <all/scaling.jsonl)" = 18
# More ranks save, and as many as before go on with it: other measurements, whose rows stand beside the first ones.
scaling "$FWA" all --ranks 4 --parts resume --names 'resume-*-f32-*'
expect 0
for ranks in 1 2 4; do says "| f32 | 4 | $ranks |"; done
for ranks in 1 2; do says "| f32 | 2 | $ranks |"; done
check "not 22 measurements: $(cat err)" test "$(wc -l <all/scaling.jsonl)" = 22

# One that fails, and one that hangs.
cat >broken <<SH
#!/bin/sh
case "\$*" in
*--no-overlap*) echo "error: broken" >&2; exit 3 ;;
*parallel.zero=1*) exec sleep 1000 ;;
esac
exec "$FWA" "\$@"
SH
chmod +x broken
scaling "$PWD/broken" hurt --parts dp --limit 8
expect 1 "FAILED (3): dp-falcon1-2-no-overlap: error: broken" "FAILED (124): dp-falcon1-2-zero1"
says "2 failed, 0 skipped"
says "* dp-falcon1-2-no-overlap, exit code 3:"
check "the rest was not measured" test "$(grep -c '"code": 0' hurt/scaling.jsonl)" = 3
scaling "$FWA" hurt --parts dp
expect 0
check_not "an old failure is still told: $(cat out)" grep -q "^Failed" out

# Four GPUs, played by a program that says with which ones it was started: each measurement has its own.
cat >played <<'SH'
#!/bin/sh
case $1 in
info) printf '  cuda        computes in bf16\n' && for i in 0 1 2 3; do echo "      device $i: GPU, 8 GiB"; done ;;
--version) echo "fwa 1 (commit 1a2b)" ;;
bench) echo "{\"bench\": \"step\", \"config\": \"$CUDA_VISIBLE_DEVICES\", \"tokens\": 9, \"ms_median\": 1}" ;;
esac
SH
chmod +x played
printf '#!/bin/sh\nshift 2\nexec "$@"\n' >launch
FWA_MPIRUN="sh $PWD/launch" CUDA_VISIBLE_DEVICES='' run sh "$tool" --fwa "$PWD/played" --out four --parts dp,sp
expect 0
# used NAME DEVICES
used() {
    check "$1 did not run on $2 and $3 sequences: $(grep "\"$1\"" four/scaling.jsonl)" sh -c \
        "grep '\"name\": \"$1\",' four/scaling.jsonl | grep '\"devices\": \"$2\"' | grep '\"config\": \"$2\"' |
        grep 'train.global_batch=$3 '"
}
used dp-transformer-1-at3 3 480
used dp-transformer-4 0,1,2,3 480
used dp-transformer-2 0,1 480
used dp-falcon1-2 2,3 480
used sp-falcon1a-1-1-65536-at2 2 1
used sp-falcon1a-1-1-131072 0 1
used sp-falcon1-1-1-131072 1 1
used sp-falcon1a-2-2-131072 2,3 1
used sp-falcon1-4-2-131072 0,1,2,3 2
used sp-gated_deltanet-4-4-262144 0,1,2,3 1
check "not one machine of one commit" test "$(grep -c '"commit": "1a2b", "machine": "GPU"' four/scaling.jsonl)" = \
    "$(wc -l <four/scaling.jsonl)"

scaling "$FWA" late --parts dp,resume --seconds 0
expect 0 "skipped: dp-falcon1-2: about"
says "Not measured: resume-on-f32-2-1: there is no"

# By names: no others, and a checkpoint stays until all that read it were measured.
scaling "$FWA" named --parts dp,resume --names 'dp-*-at0,resume-save-*'
expect 0
check "other names: $(cat named/scaling.jsonl)" test "$(grep -o '"name": "[^"]*"' named/scaling.jsonl | sort | tr -d '\n')" = \
    '"name": "dp-falcon1-1-at0""name": "resume-save-f32-2""name": "resume-save-f64-2"'
says "0 failed, 0 skipped"
scaling "$FWA" named --parts resume --names 'resume-on-f32-*'
expect 0
check "files of f32 or none of f64: $(find named -name 'shard.*')" sh -c \
    "find named -name 'shard.*.h5' | grep -q f64 && ! find named -name 'shard.*.h5' | grep -q f32"
scaling "$FWA" named --parts resume
expect 0
says "| f64 | 2 | 1 |"
check "shards are left: $(find named -name 'shard.*')" test -z "$(find named -name 'shard.*.h5')"

printf '#!/bin/sh\n' >blind
chmod +x blind
run sh "$tool" --fwa "$PWD/blind" --out none
expect 2 "no GPU that fwa can use"
scaling "$FWA" none --ranks 3
expect 2 "3 ranks"
scaling "$FWA" none --parts dp,speed
expect 2 "speed"
scaling "$FWA" none --rules falcon9
expect 2 "falcon9"
for parts in '' ',' ' '; do
    scaling "$FWA" none --parts "$parts"
    expect 2 "--parts $parts: expected some of dp"
done
for number in 08 -5 1e3 12345678901; do
    scaling "$FWA" none --parts dp --seconds $number
    expect 2 "got '$number', expected a whole number"
done
scaling "$FWA" none --parts dp --names 'sp-*'
expect 2 "--names sp-*: no measurement"
scaling "$FWA" none --parts dp --names 'sp-*,dp-*-2,dp-[ab]' --plan
expect 0 "skipped: --names sp-*: no measurement" "skipped: --names dp-[ab]: no measurement" "dp-falcon1-2 on 0,1"
check_not "one of the others was planned" grep -q -e dp-falcon1-1-at0 -e 'names dp-\*-2' err
finish
