// Which checkpoint is read: rank 0 finds it, all ranks read the same one.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/log.h"
#include "io/files.h"
#include "train/run.h"

#define READS_MAX    10 // of a run folder whose newest checkpoint is removed while it is read
#define LOOK_SECONDS 5  // that a rank looks for the checkpoint that rank 0 has found

fwa_status fwa_run_find_checkpoint(const char *run_or_checkpoint, char path[2048]) {
    char file[FWA_PATH_MAX];
    FWA_CHECK(strlen(run_or_checkpoint) < 1024, FWA_CONFIG, "%.200s...: expected a path of fewer than 1024 bytes",
              run_or_checkpoint);
    FWA_TRY(fwa_path_format(file, "%s/manifest.json", run_or_checkpoint));
    if (fwa_path_exists(file)) {
        snprintf(path, 2048, "%s", run_or_checkpoint);
        return FWA_OK;
    }
    char *newest = NULL;
    struct stat info;
    FWA_CHECK(stat(run_or_checkpoint, &info) == 0, FWA_CONFIG,
              "%s: no such run folder or checkpoint; expected a run folder, or RUN/checkpoints/step_NNNNNNNN",
              run_or_checkpoint);
    FWA_CHECK(S_ISDIR(info.st_mode), FWA_CONFIG, "%s is a file, expected the folder of a run or a checkpoint",
              run_or_checkpoint);
    FWA_TRY(fwa_checkpoint_newest(run_or_checkpoint, &newest));
    FWA_CHECK(newest, FWA_CONFIG, "%s: holds no checkpoint (no manifest.json, no sound folder checkpoints/step_*)",
              run_or_checkpoint);
    snprintf(path, 2048, "%s", newest);
    free(newest);
    return FWA_OK;
}

// `first`: the digest of rank 0's. A folder of this name on another disk may hold something else.
static fwa_status compare_manifest(const char *path, const char *manifest, const char *first) {
    char mine[33];
    if (!fwa_path_exists(manifest))
        fwa_log_warn("%s is not there, but on rank 0: looking for it for %d s", path, LOOK_SECONDS);
    FWA_CHECK(fwa_path_appears(manifest, LOOK_SECONDS), FWA_CONFIG,
              "%s is not there, but on rank 0: expected one on storage that all hosts share, or copies of it", path);
    FWA_TRY(fwa_file_digest(manifest, mine));
    FWA_CHECK(
        strcmp(mine, first) == 0, FWA_CONFIG,
        "%s is another checkpoint here than on rank 0: expected one on storage that all hosts share, or copies of "
        "it",
        path);
    return FWA_OK;
}

fwa_status fwa_run_same_checkpoint(fwa_world *world, const char *path) {
    char manifest[FWA_PATH_MAX], first[33] = "";
    if (world->size == 1) return FWA_OK;
    FWA_TRY(fwa_path_format(manifest, "%s/manifest.json", path));
    FWA_TRY(fwa_world_agree(world, world->rank == 0 ? fwa_file_digest(manifest, first) : FWA_OK));
    FWA_TRY(world->all->broadcast(world->all, NULL, first, sizeof first, FWA_U8, 0));
    return fwa_world_agree(world, world->rank == 0 ? FWA_OK : compare_manifest(path, manifest, first));
}

static fwa_status choose(fwa_world *world, const char *source, char path[2048]) {
    memset(path, 0, 2048);
    FWA_TRY(fwa_world_agree_late(world, world->rank == 0 ? fwa_run_find_checkpoint(source, path) : FWA_OK));
    FWA_TRY(world->all->broadcast(world->all, NULL, path, 2048, FWA_U8, 0));
    return fwa_run_same_checkpoint(world, path);
}

// Rank 0 looks at every byte, once and for all; of a run's newest checkpoint it has.
static fwa_status open_and_read(const fwa_world *world, const char *source, const char *path, fwa_run_reader read,
                                void *user) {
    fwa_checkpoint *checkpoint;
    const bool whole = world->rank == 0 && strcmp(source, path) == 0;
    FWA_TRY(whole ? fwa_checkpoint_open(&checkpoint, path) : fwa_checkpoint_open_quick(&checkpoint, path));
    fwa_status status = read(user, checkpoint);
    fwa_checkpoint_close(checkpoint);
    return status;
}

// A run that trains has removed the checkpoint that was its newest one.
static fwa_status is_gone(fwa_world *world, const char *source, const char *path, bool *gone) {
    int64_t away = strcmp(source, path) != 0 && !fwa_path_exists(path);
    FWA_TRY(world->all->broadcast(world->all, NULL, &away, 1, FWA_I64, 0));
    *gone = away != 0;
    return FWA_OK;
}

static fwa_status read_chosen(fwa_world *world, const char *source, fwa_run_reader read, void *user, bool *gone) {
    char path[2048];
    *gone = false;
    fwa_status status = choose(world, source, path);
    if (status == FWA_OK) status = fwa_world_agree_late(world, open_and_read(world, source, path, read, user));
    if (!path[0] || (status != FWA_IO && status != FWA_FORMAT && status != FWA_CONFIG)) return status;
    FWA_TRY(is_gone(world, source, path, gone));
    if (*gone && world->rank == 0)
        fwa_log_info("%s was removed by its run while it was read: looking for the newest one again", path);
    return status;
}

fwa_status fwa_run_read_checkpoint(fwa_world *world, const char *source, fwa_run_reader read, void *user) {
    fwa_status status = FWA_OK;
    bool gone = true;
    for (int i = 0; i < READS_MAX && gone; i++) {
        if (i > 0) fwa_error_clear();
        status = read_chosen(world, source, read, user, &gone);
    }
    return status;
}
