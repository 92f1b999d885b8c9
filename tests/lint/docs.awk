# What pages say of the project, against the project. Reads, each named by KIND=... in front of it: the list of all files,
# train/help.c, io/config_schema.def, the words of the sources, then pages. Prints PAGE:LINE: what is not there.

function report(what) {
    print page ":" line ": " what
    bad = 1
}

# resolve(PATH): without . and ..
function resolve(path, part, n, i, m, out) {
    n = split(path, part, "/")
    m = 0
    for (i = 1; i <= n; i++) {
        if (part[i] == "..") m--
        else if (part[i] != "." && part[i] != "") out[++m] = part[i]
    }
    path = out[1]
    for (i = 2; i <= m; i++) path = path "/" out[i]
    return path
}

# slug(HEADING): the anchor that a heading has
function slug(heading) {
    heading = tolower(heading)
    gsub(/[^a-z0-9 _-]/, "", heading)
    gsub(/ /, "-", heading)
    return heading
}

function check_link(target, file, anchor, i) {
    if (target ~ /^(https?|mailto):/) return
    i = index(target, "#")
    anchor = i ? substr(target, i + 1) : ""
    if (i) target = substr(target, 1, i - 1)
    file = page
    if (target != "") {
        sub(/[^\/]*$/, "", file)
        file = resolve(file target)
        if (!(file in there)) report("no such file: " target)
    }
    if (anchor != "") links[file "#" anchor] = page ":" line ": no such heading: " target "#" anchor
}

# Names that stand for others, such as the rules x and longhorn of docs/adding_a_rule.md, and files of other programs and people.
function is_example(word) {
    return word ~ /(^|[\/_])(x|longhorn)([_.]|$)/ || word ~ /^(mpi|hdf5)\.h$|site\.sh$/ || word ~ /[<>*{}$]/ || word ~ /[\/_.](RULE|ROW|NAME|CONFIG|FILE)/
}

# check_words(CODE): paths, file names, configuration keys and names of the sources
function check_words(code, word, n, i, w) {
    gsub(/[][(),;:="'|]/, " ", code)
    n = split(code, word, /[ \t]+/)
    for (i = 1; i <= n; i++) {
        w = word[i]
        sub(/[.?!\/]+$/, "", w)
        if (is_example(w)) continue
        if (w ~ /^(core|kernels|io|dist|layers|train|tests|tools|configs|slurm|docs|cmake)\/[A-Za-z0-9]/) {
            if (!(w in there) && w !~ /^train\/[a-z_]+$/) report("no such file: " w) # train/loss: a name in TensorBoard
        } else if (w ~ /^[A-Za-z0-9_]+\.(c|h|cu|cuh|def|sh|awk|py)$/) {
            if (!(w in named)) report("no file of this name: " w)
        } else if (w ~ /^[a-z]+\.[a-z_]+(\.[a-z_]+)*$/) {
            check_key(w)
        } else if (w ~ /^(fwa|FWA)_[A-Za-z0-9_]*[A-Za-z0-9]$/ && !(w in known)) {
            report("not in the sources: " w)
        }
    }
}

function check_key(w, section) {
    section = w
    sub(/\..*/, "", section)
    if (!(section in sections) || w ~ /\.(md|txt|yaml|json|jsonl|bin|safetensors)$/) return
    if (w ~ /^model\.mixer\./) { # of every entry, or of the one that is named
        sub(/^model\.mixer\./, "", w)
        sub(/^main\./, "", w)
        if (!(w in mixer_keys) && w != "main") report("no such key: model.mixer." w)
    } else if (!(w in keys) && w != "model.mixer") {
        report("no such key: " w)
    }
}

# check_command(CODE): a command of fwa and its options; the options of another command behind it are that one's
function check_command(code, word, n, i, w, command) {
    sub(/[ \t]#.*/, "", code)
    n = split(code, word, /[ \t]+/)
    for (i = 1; i <= n; i++) {
        w = word[i]
        if (w == "|" || w == "&&") command = ""
        else if (w ~ /(^|\/)fwa$/ && word[i + 1] ~ /^[a-z]+$/ && !(i > 1 && word[i - 1] ~ /^(--fwa|\$PWD)/)) {
            command = word[++i]
            if (command == "help" && i < n) command = word[++i]
            if (command ~ /^(help|configuration|memory|bytes)$/) command = ""
            else if (!(command in commands)) { report("no such command: fwa " command); command = "" }
        } else if (w ~ /^--[a-z]/) {
            sub(/=.*/, "", w)
            gsub(/[^a-zA-Z0-9-]/, "", w)
            if (command != "" && !((command, w) in options) && w != "--help") report("fwa " command " has no " w)
            if (i == 1 && !(w in known)) report("nothing takes " w)
        }
    }
}

# check_text(TEXT): a paragraph, whose spans of code may go over an end of line
function check_text(text, rest, span, n, i) {
    rest = text
    gsub(/`[^`]*`/, "", rest)
    while (match(rest, /\]\([^) ]*\)/)) {
        check_link(substr(rest, RSTART + 2, RLENGTH - 3))
        rest = substr(rest, RSTART + RLENGTH)
    }
    n = split(text, span, "`")
    for (i = 2; i <= n; i += 2) {
        check_words(span[i])
        check_command(span[i])
    }
}

KIND == "files" {
    there[$0] = 1
    file = $0
    sub(/.*\//, "", file)
    named[file] = 1
    folder = $0
    while (sub(/\/[^\/]*$/, "", folder)) there[folder] = 1
    next
}
KIND == "words" { known[$0] = 1; next }
KIND == "help" {
    if (/^    \{"[a-z]+",/) {
        split($0, field, "\"")
        name = field[2]
        commands[name] = 1
    }
    line = $0
    while (match(line, /--[a-zA-Z][a-zA-Z-]*/)) {
        options[name, substr(line, RSTART, RLENGTH)] = 1
        line = substr(line, RSTART + RLENGTH)
    }
    next
}
KIND == "schema" {
    split($0, field, /[(), ]+/)
    if (field[1] == "FWA_SECTION") sections[field[2]] = 1
    if (field[1] == "FWA_CONFIG_KEY") keys[field[2] "." field[3]] = 1
    if (field[1] == "FWA_MIXER_KEY") mixer_keys[field[2]] = 1
    next
}
FNR == 1 {
    check_text(text)
    language = text = ""
    page = FILENAME
}
{ line = FNR }
/^```/ {
    check_text(text)
    text = ""
    language = language == "" ? ($0 == "```" ? "text" : substr($0, 4)) : ""
    next
}
language == "sh" {
    check_words($0)
    check_command($0)
}
language != "" { next }
/^#+ / {
    heading = $0
    sub(/^#+ /, "", heading)
    headings[page "#" slug(heading)] = 1
}
/^    / && /(fwa|tools|mpirun)[ \/]/ && text == "" {
    check_words($0)
    check_command($0)
    next
}
/^ *$/ || /^ *\|/ {
    check_text(text)
    text = $0
    next
}
{ text = text " " $0 }
END {
    check_text(text)
    for (link in links) if (!(link in headings)) { print links[link]; bad = 1 }
    exit bad
}
