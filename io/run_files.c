// Files that belong to a run folder or a checkpoint, told by their names and by what stands beside them.
#include "io/run_files.h"

#include <limits.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "io/files.h"

static bool is_among(const char *name, const char *const *names) {
    for (; *names; names++)
        if (strcmp(name, *names) == 0) return true;
    return false;
}

static bool holds(const char *folder, const char *name) {
    char path[FWA_PATH_MAX];
    return fwa_path_format(path, "%s/%s", folder, name) == FWA_OK && fwa_path_exists(path);
}

static bool is_run(const char *folder) {
    return holds(folder, "metrics.jsonl") || holds(folder, "checkpoints");
}

static bool is_of_run(const char *folder, const char *name) {
    static const char *const names[] = {"config.yaml", "metrics.jsonl",   "gates.jsonl",  "log.txt",      "lock",
                                        "FINISHED",    "gemm_algos.json", "profile.json", "started_from", NULL};
    return is_among(name, names) && is_run(folder);
}

// `name` starts with `start` and ends with `end`.
static bool is_between(const char *name, const char *start, const char *end) {
    const size_t length = strlen(name), first = strlen(start), last = strlen(end);
    return length >= first + last && strncmp(name, start, first) == 0 && strcmp(name + length - last, end) == 0;
}

// Shards are there before the manifest, and stay where it was lost.
static bool is_of_checkpoint(const char *folder, const char *name) {
    static const char *const parts[] = {"manifest.json", "state.h5", "model.h5", "optim.h5", NULL};
    if (is_between(name, "shard.rank", ".h5")) return true;
    return is_among(name, parts) && (holds(folder, "manifest.json") || holds(folder, "shard.rank00000.h5"));
}

// RUN/checkpoints/latest
static bool is_latest(const char *folder, const char *name) {
    const char *slash = strrchr(folder, '/');
    return strcmp(name, "latest") == 0 && strcmp(slash ? slash + 1 : folder, "checkpoints") == 0;
}

static fwa_status check_name(const char *option, const char *path, const char *name) {
    char folder[FWA_PATH_MAX];
    const char *slash = strrchr(name, '/'), *base = slash ? slash + 1 : name;
    if (slash)
        FWA_TRY(fwa_path_format(folder, "%.*s", (int)(slash > name ? slash - name : 1), name));
    else
        FWA_TRY(fwa_path_format(folder, "."));
    const bool run = is_of_run(folder, base);
    FWA_CHECK(!run && !is_latest(folder, base) && !is_of_checkpoint(folder, base), FWA_CONFIG,
              "%s %s: this file belongs to the %s %s, expected one that may be replaced: name another", option, path,
              run ? "run" : "checkpoint in", folder);
    return FWA_OK;
}

fwa_status fwa_run_file_check(const char *option, const char *path) {
    char resolved[PATH_MAX];
    struct stat info;
    if (stat(path, &info) != 0 || !realpath(path, resolved)) return FWA_OK;
    FWA_TRY(check_name(option, path, path));
    return check_name(option, path, resolved);
}

fwa_status fwa_run_folder_check(const char *path, const char *wanted) {
    FWA_CHECK(!is_run(path) && !holds(path, "manifest.json") && !holds(path, "shard.rank00000.h5"), FWA_CONFIG,
              "%s would be emptied to make %s, but holds a run or a checkpoint: name another folder", path, wanted);
    return FWA_OK;
}
