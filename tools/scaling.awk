# The tables of scaling.sh from its scaling.jsonl. Exit code 1: counted bytes are not the predicted ones, or a resumed
# run has other losses.
function text(line, key) {
    if (!match(line, "\"" key "\": \"[^\"]*\"")) return ""
    return substr(line, RSTART + length(key) + 5, RLENGTH - length(key) - 6)
}
# The k-th value of a key in the line.
function value(line, key, k, found) {
    for (found = "-"; k > 0; k--) {
        if (!match(line, "\"" key "\": *[^,}\\]]*")) return "-"
        found = substr(line, RSTART, RLENGTH)
        sub(/^[^:]*: */, "", found)
        line = substr(line, RSTART + RLENGTH)
    }
    return found
}
function number(line, key) {
    return value(line, key, 1) + 0
}
function thousands(x) {
    return sprintf("%.1f k", x / 1000)
}
function percent(x) {
    return sprintf("%.1f %%", 100 * x)
}
function head(title, columns, n, part, line, i) {
    n = split(columns, part, "|")
    line = ""
    for (i = 1; i <= n; i++) line = line "|---"
    printf "\n%s\n\n| %s |\n%s|\n", title, columns, line
}
# A step that single ranks took, by what it was: whether there is one, and the mean of their ms; `slowest`, `fastest`.
function step_of(line) {
    return number(line, "tokens") " " text(line, "rule") " " number(line, "length")
}
function alone(key) {
    return key in count
}
function mean(key) {
    return sum[key] / count[key]
}
function pieces_of(line) {
    return text(line, "part") ~ /^(sp|table)$/ && number(line, "ranks") > 1
}

{
    name = text($0, "name")
    if (number($0, "code")) {
        if (!(name in row)) failure[name] = $0
        next
    }
    delete failure[name]
    if (!(name in row)) found[++rows] = name
    row[name] = $0
}

# Rows of a rule behind each other.
function group(i, k, rule, seen, n) {
    for (i = 1; i <= rows; i++) {
        rule = text(row[found[i]], "rule")
        if (rule in seen) continue
        seen[rule] = 1
        for (k = i; k <= rows; k++)
            if (text(row[found[k]], "rule") == rule) order[++n] = found[k]
    }
}

END {
    group()
    if (rows) printf "%s, commit %s\n", text(row[order[1]], "machine"), text(row[order[1]], "commit")
    for (i = 1; i <= rows; i++) {
        line = row[order[i]]
        if (number(line, "ranks") != 1 || text(line, "part") !~ /^(dp|sp|table)$/) continue
        key = step_of(line)
        ms = number(line, "ms_median")
        count[key]++
        sum[key] += ms
        if (ms > slowest[key]) slowest[key] = ms
        if (!(key in fastest) || ms < fastest[key]) fastest[key] = ms
    }
    data_parallel()
    weak_scaling()
    strong_scaling()
    resuming()
    projection()
    bandwidth()
    traffic()
    for (name in failure) {
        if (!failures++) printf "\nFailed:\n\n"
        printf "* %s, exit code %s: `%s`\n", name, value(failure[name], "code", 1), text(failure[name], "command")
    }
    exit bad
}

function data_parallel(i, line, key, ms, ranks, how, n, single) {
    for (i = 1; i <= rows; i++) {
        line = row[order[i]]
        if (text(line, "part") != "dp") continue
        key = step_of(line)
        ranks = number(line, "ranks")
        if (!n++)
            head("Data parallel: a batch shared out over ranks; of linear: beside the mean of single ranks at once", \
                "rule | tokens | ranks | | ms a step | tokens/s | of linear | beside the slowest | GB")
        if (ranks == 1) {
            if (key in single) continue
            single[key] = 1
            ms = mean(key)
            how = sprintf("%d at once, %.1f to %.1f ms", count[key], fastest[key], slowest[key])
        } else {
            ms = number(line, "ms_median")
            how = number(line, "zero") ? "parallel.zero=1" : (line ~ /"overlap": false/ ? "--no-overlap" : "")
        }
        printf "| %s | %.0f | %d | %s | %.1f | %s ", text(line, "rule"), number(line, "tokens"), ranks, how, ms, \
            thousands(1000 * number(line, "tokens") / ms)
        if (ranks > 1 && alone(key))
            printf "| %s | %s ", percent(mean(key) / ms / ranks), percent(slowest[key] / ms / ranks)
        else printf "| | "
        printf "| %.1f |\n", number(line, "mem_bytes") / 1e9
    }
}

# Sequences cut into pieces as long as a sequence that a single rank had.
function weak_scaling(i, line, key, ms, piece, n) {
    for (i = 1; i <= rows; i++) {
        line = row[order[i]]
        if (!pieces_of(line)) continue
        piece = number(line, "length") / number(line, "sp")
        key = piece " " text(line, "rule") " " piece
        if (!alone(key)) continue
        if (!n++)
            head("Weak scaling: as many tokens on each rank; alone: a piece as a sequence on single ranks at once", \
                "rule | data ranks | pieces | tokens of a sequence | alone, mean ms | slowest | ms a step | " \
                "tokens/s | weak scaling | beside the slowest | GB")
        ms = number(line, "ms_median")
        printf "| %s | %d | %d | %.0f | %.1f | %.1f | %.1f | %s | %s | %s | %.1f |\n", text(line, "rule"), \
            number(line, "ranks") / number(line, "sp"), number(line, "sp"), number(line, "length"), mean(key), \
            slowest[key], ms, thousands(number(line, "tokens_per_s")), percent(mean(key) / ms), \
            percent(slowest[key] / ms), number(line, "mem_bytes") / 1e9
    }
}

# One sequence, on one rank and in pieces.
function strong_scaling(i, line, key, ms, n) {
    for (i = 1; i <= rows; i++) {
        line = row[order[i]]
        if (!pieces_of(line)) continue
        key = step_of(line)
        if (number(line, "ranks") != number(line, "sp") || !alone(key)) continue
        if (!n++) head("Strong scaling: one sequence on one rank, and cut over ranks", \
            "rule | tokens | pieces | ms on one rank | ms a step | tokens/s | times as fast | of linear")
        ms = number(line, "ms_median")
        printf "| %s | %.0f | %d | %.1f | %.1f | %s | %.2f | %s |\n", text(line, "rule"), number(line, "tokens"), \
            number(line, "sp"), mean(key), ms, thousands(number(line, "tokens_per_s")), mean(key) / ms, \
            percent(mean(key) / ms / number(line, "sp"))
    }
}

# The measurement whose checkpoint this one went on from. Rows without saved_ranks, as there were once, name it in their
# command.
function saver_of(line) {
    if (value(line, "saved_ranks", 1) != "-")
        return "resume-save-" text(line, "precision") "-" number(line, "saved_ranks")
    return match(line, /resume-save-[^ \/]*\/checkpoints/) ? substr(line, RSTART, RLENGTH - 12) : ""
}

# Losses of the two steps behind the checkpoint, beside those of the run that saved it and went on.
function resuming(i, k, line, stayed, apart, most, limit, n) {
    for (i = 1; i <= rows; i++) {
        line = row[order[i]]
        if (order[i] !~ /^resume-on/ || !(saver_of(line) in row)) continue
        stayed = row[saver_of(line)]
        limit = text(line, "precision") == "f64" ? 1e-11 : (text(line, "precision") == "f32" ? 1e-5 : 1e-3)
        most = 0
        for (k = 1; k <= 2; k++) {
            apart = value(line, "loss", k) / value(stayed, "loss", k) - 1
            if (apart < 0) apart = -apart
            if (apart > most) most = apart
        }
        if (!n++) head("Resumed: losses of the steps behind a checkpoint, beside the run that saved it and went on", \
            "precision | saved on | gone on with on | next loss | beside | then | beside | relative, at most | limit")
        printf "| %s | %d | %d | %s | %s ", text(line, "precision"), number(stayed, "ranks"), number(line, "ranks"), \
            value(line, "loss", 1), value(stayed, "loss", 1)
        printf "| %s | %s | %.1e | %.0e%s |\n", value(line, "loss", 2), value(stayed, "loss", 2), most, limit, \
            (most <= limit ? "" : ", TOO FAR APART")
        if (!(most <= limit)) bad = 1
    }
}

function projection(i, line, rate, n) {
    for (i = 1; i <= rows; i++) {
        line = row[order[i]]
        if (text(line, "part") != "project") continue
        if (!n++) head("The whole run at the mean of 100 steps", \
            "rule | ranks | tokens a step | ms, median | ms, mean | tokens/s | hours for 49.152 G tokens")
        rate = 1000 * number(line, "tokens") / number(line, "ms_mean")
        printf "| %s | %d | %.0f | %.1f ", text(line, "rule"), number(line, "ranks"), number(line, "tokens"), \
            number(line, "ms_median")
        printf "| %.1f | %s | %.2f |\n", number(line, "ms_mean"), thousands(rate), 49.152e9 / rate / 3600
    }
}

function bandwidth(i, k, line, rest, n) {
    for (i = 1; i <= rows; i++) {
        line = row[order[i]]
        if (text(line, "part") != "comm") continue
        if (!n++) head("What the communicator moves; thread blocks on GPUs, 0: as many as NCCL takes", \
            "ranks | thread blocks | operation | bytes | us | bus GB/s")
        rest = line
        sub(/.*"result": /, "", rest)
        for (k = 1; value(rest, "bytes", k) != "-"; k++)
            printf "| %d | %d | %s | %s | %s | %s |\n", number(line, "ranks"), number(line, "ctas"), \
                operation(rest, k), value(rest, "bytes", k), value(rest, "us", k), value(rest, "busbw", k)
    }
}
function operation(line, k, found) {
    found = value(line, "operation", k)
    gsub(/"/, "", found)
    return found
}

function traffic(i, line, counted, expected, n, nccl, good) {
    for (i = 1; i <= rows; i++) {
        line = row[order[i]]
        counted = value(line, "exchanged_bytes", 1)
        expected = value(line, "exchanged_expected", 1)
        nccl = value(line, "nccl_bytes", 1)
        if (number(line, "sp") < 2 || counted == "-") continue
        if (!n++) head("Bytes between the pieces of sequences, of all ranks, a step", \
            "rule | data ranks | pieces | tokens of a sequence | counted | predicted | NCCL's log | ")
        if (nccl == "null") nccl = "-"
        good = counted == expected && (nccl == "-" || nccl == counted)
        printf "| %s | %d | %d | %.0f ", text(line, "rule"), number(line, "ranks") / number(line, "sp"), \
            number(line, "sp"), number(line, "length")
        printf "| %s | %s | %s | %s |\n", counted, expected, (nccl == "-" ? "" : nccl), (good ? "equal" : "DIFFERENT")
        if (!good) bad = 1
    }
}
