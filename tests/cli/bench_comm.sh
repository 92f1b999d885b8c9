#!/bin/sh
# fwa bench comm: a row for each operation and size, from results that were checked; busbw as it is defined.
. "$(dirname "$0")/lib.sh"

for ranks in 1 2 4; do
    on "$ranks" bench comm --from 8 --to 20000
    expect 0 || continue
    # 8, 32, ... 8192, 20000 for four operations; nothing is printed twice.
    # shellcheck disable=SC2016 # awk's variables, not the shell's
    check "$ranks ranks: expected 7 rows for each operation: $(cat out)" awk -v n="$ranks" '
    $1 ~ /^(all-reduce|all-gather|reduce-scatter|exchange)$/ && NF == 5 {
        rows[$1]++
        factor = $1 == "exchange" ? 1 : (n - 1) / n * ($1 == "all-reduce" ? 2 : 1)
        apart = $5 - $4 * factor
        if ($2 < last[$1] || $3 < 0 || apart > 0.002 + 0.001 * $5 || -apart > 0.002 + 0.001 * $5) { print; bad = 1 }
        last[$1] = $2
    }
    END {
        for (name in rows) { kinds++; if (rows[name] != 7) bad = 1 }
        exit bad || kinds != 4
    }' out
done
run "$FWA" bench comm --backend tpu
expect 2 "tpu" "cpu or cuda"
run "$FWA" bench comm --from 64 --to 8
expect 2 "--to"
run "$FWA" bench comm config.yaml
expect 2 "config.yaml"
run "$FWA" bench what
expect 2 "step, op, comm or io"
finish
