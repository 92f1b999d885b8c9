#!/bin/sh
# tests/peers/compare.py asks the program which rules there are: all that have CUDA kernels are measured, and one of which
# it does not know whether it has a peer is refused before anything is.
. "$(dirname "$0")/lib.sh"
needs_python argparse
cuda_rules >rules.txt
check "no rules found" test -s rules.txt

# The program, with the rules of info.txt, and a millisecond for whatever is measured.
cat >played <<'SH'
#!/bin/sh
here=$(dirname "$0")
[ "$1" = info ] && exec cat "$here/info.txt"
shift 2
for rule; do
    case $rule in --*) break ;; esac
    for pass in forward backward; do echo "{\"name\": \"$rule\", \"pass\": \"$pass\", \"ms_median\": 1.5}"; done
done
SH
chmod +x played
echo 'raise SystemExit("no peers here")' >torch.py
# compare: of info.txt
compare() {
    rm -rf peers
    run env PYTHONPATH="$PWD" "$python" "$FWA_SOURCE_DIR/tests/peers/compare.py" --fwa played --out peers --only ops
}
# measured RULES: the table has these, no others
measured() {
    sed -n 's/^| \([a-z][a-z_0-9]*\) | 1.500 | 3.000 |.*/\1/p' peers/compare.md >measured.txt
    check "other rules than those with CUDA kernels: $(cat out)" diff "$1" measured.txt
}
"$FWA" info >sound.txt
cp sound.txt info.txt
compare
expect 1 # without peers
check "peers were measured all the same" grep -q "gpu_ops.py.*: no peers here" peers/compare.md
measured rules.txt
sed 's/^\(  retnet .*\) cuda$/\1/' sound.txt >info.txt
compare
grep -vx retnet rules.txt >fewer.txt
measured fewer.txt

sed 's/^  retnet /  fresh  /' sound.txt >info.txt
compare
expect 1 "compare.py: fresh: name its peer in PEERS, or that it has none in NO_PEER" \
    "compare.py: retnet: \`fwa info\` has no such rule"
check_not "measured in spite of it" test -e peers/fwa_ops.jsonl
finish
