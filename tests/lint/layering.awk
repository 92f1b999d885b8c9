# Include directions. A file includes its own folder, core/, and lower levels; outside libraries are seen by the one
# folder that wraps them. Reads sources named relative to the root; prints what breaks a rule and exits 1.
BEGIN {
    split("core:core kernels:core,kernels io:core,io dist:core,dist layers:core,kernels,layers " \
          "train:core,kernels,io,dist,layers,train tests:core,kernels,io,dist,layers,train,tests", rules, " ")
    for (i in rules) {
        split(rules[i], pair, ":")
        n = split(pair[2], seen, ",")
        for (j = 1; j <= n; j++) may[pair[1], seen[j]]
        folders[pair[1]]
    }
    mpi = "^mpi(-ext)?\\.h$"
    hdf5 = "^(hdf5(_hl)?|H5[A-Za-z]*)\\.h$"
    cuda = "^(cuda|cublas|cudnn|cub/|nccl|nvtx|nvToolsExt|nvml|mma|cooperative_groups|device_|vector_types)"
}

function complain(text) {
    print FILENAME ":" FNR ": " text
    bad = 1
}

# Headers of outside libraries, by path.
function check_outside(header) {
    if (header ~ mpi && FILENAME !~ /^(dist|tests)\//) complain("<" header "> belongs in dist/")
    if (header ~ hdf5 && FILENAME !~ /^(io|tests)\//) complain("<" header "> belongs in io/")
    if (header ~ cuda && FILENAME !~ /^(kernels\/cuda|dist|tests\/gpu)\//)
        complain("<" header "> belongs in kernels/cuda/ or dist/")
}

function check_own(header, own, target) {
    own = FILENAME
    sub(/\/.*/, "", own)
    target = header
    if (!sub(/\/.*/, "", target)) {
        if (own != "tests") complain("write \"" own "/.../" header "\": includes are named from the root")
    } else if (target in folders && !((own, target) in may)) {
        complain(own "/ must not include \"" header "\"")
    }
}

/^[ \t]*#[ \t]*include[ \t]*[<"]/ {
    header = $0
    sub(/^[ \t]*#[ \t]*include[ \t]*[<"]/, "", header)
    quoted = $0 ~ /include[ \t]*"/
    sub(/[>"].*/, "", header)
    check_outside(header)
    if (quoted) check_own(header)
}

/FWA_WITH_CUDA/ && FILENAME != "kernels/registry.c" {
    complain("only kernels/registry.c and the build ask what is built in")
}

END { exit bad }
