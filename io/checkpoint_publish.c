// Publishing a checkpoint: views, state, manifest, and the rename that is the commit. Removing old ones.
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/log.h"
#include "io/checkpoint_writer.h"
#include "io/hdf5_file.h"

static fwa_status write_summary(const char *folder, int ranks, const fwa_checkpoint_state *state) {
    fwa_index index;
    FWA_TRY(fwa_index_build(&index, folder, ranks));
    fwa_status status;
    FWA_TRY_GOTO(fwa_views_write(folder, &index), done);
    FWA_TRY_GOTO(fwa_state_write(folder, state), done);
done:
    fwa_index_free(&index);
    return status;
}

// A checkpoint of the same step exists: exchanges the two folders in one step where the file system can.
static fwa_status replace_final(const fwa_checkpoint_writer *writer) {
    if (renameat2(AT_FDCWD, writer->temporary, AT_FDCWD, writer->final, RENAME_EXCHANGE) == 0) {
        fwa_drop_folder(writer->temporary);
        return FWA_OK;
    }
    char old[FWA_PATH_MAX];
    FWA_TRY(fwa_checkpoint_folder(old, writer->run_dir, ".", writer->step, ".old"));
    FWA_CHECK(rename(writer->final, old) == 0, FWA_IO, "cannot replace %s: %s", writer->final, strerror(errno));
    if (rename(writer->temporary, writer->final) != 0) {
        int error = errno;
        int restored = rename(old, writer->final);
        FWA_FAIL(FWA_IO, "cannot rename %s to %s: %s; the old one is at %s", writer->temporary, writer->final,
                 strerror(error), restored == 0 ? writer->final : old);
    }
    fwa_drop_folder(old);
    return FWA_OK;
}

// Files and their names are on the disk: the manifest was written last, and fwa_write_text syncs its folder.
static fwa_status commit(fwa_checkpoint_writer *writer) {
    char parent[FWA_PATH_MAX];
    FWA_TRY(fwa_path_format(parent, "%s/checkpoints", writer->run_dir));
    if (rename(writer->temporary, writer->final) != 0) {
        FWA_CHECK(errno == ENOTEMPTY || errno == EEXIST, FWA_IO, "cannot rename %s to %s: %s", writer->temporary,
                  writer->final, strerror(errno));
        FWA_TRY(replace_final(writer));
    }
    writer->published = true;
    FWA_TRY(fwa_sync_path(parent));
    return FWA_OK;
}

fwa_status fwa_checkpoint_publish(fwa_checkpoint_writer *writer, int ranks, const fwa_checkpoint_state *state) {
    FWA_CHECK(writer->rank == 0 && ranks > 0, FWA_ERROR, "rank %d publishes a checkpoint of %d ranks: expected rank 0",
              writer->rank, ranks);
    FWA_CHECK(state->step == writer->step, FWA_ERROR, "state of step %lld in a checkpoint of step %lld",
              (long long)state->step, (long long)writer->step);
    fwa_hdf5_lock();
    fwa_status status = write_summary(writer->temporary, ranks, state);
    fwa_hdf5_unlock();
    FWA_TRY(status);
    FWA_TRY(fwa_manifest_write(writer->temporary, writer->step, ranks));
    FWA_TRY(commit(writer));
    if (fwa_checkpoint_name_latest(writer->run_dir, writer->step) != FWA_OK) {
        fwa_log_warn("%s is complete, but \"latest\" still names an older one: %s", writer->final, fwa_error_message());
    }
    return FWA_OK;
}

// Renamed first, so that a folder that is half gone never looks like a checkpoint.
static fwa_status remove_checkpoint(const char *run_dir, int64_t step) {
    char path[FWA_PATH_MAX], old[FWA_PATH_MAX];
    FWA_TRY(fwa_checkpoint_folder(path, run_dir, "", step, ""));
    FWA_TRY(fwa_checkpoint_folder(old, run_dir, ".", step, ".old"));
    FWA_TRY(fwa_remove_folder(old));
    FWA_CHECK(rename(path, old) == 0, FWA_IO, "cannot remove %s: %s", path, strerror(errno));
    FWA_TRY(fwa_remove_folder(old));
    return FWA_OK;
}

static bool looks_whole(const char *run_dir, int64_t step) {
    char path[FWA_PATH_MAX];
    int ranks;
    return fwa_checkpoint_folder(path, run_dir, "", step, "") == FWA_OK &&
           fwa_manifest_check(path, false, &ranks) == FWA_OK;
}

fwa_status fwa_checkpoint_prune(const char *run_dir, int64_t keep_last, int64_t keep_every) {
    if (keep_last <= 0) return FWA_OK;
    int64_t *steps;
    int count;
    FWA_TRY(fwa_checkpoint_steps(run_dir, &steps, &count));
    fwa_status status = FWA_OK;
    int64_t kept = 0;
    for (int i = 0; i < count; i++) {
        if (kept < keep_last) {
            kept += looks_whole(run_dir, steps[i]);
        } else if (keep_every <= 0 || steps[i] % keep_every != 0) {
            FWA_TRY_GOTO(remove_checkpoint(run_dir, steps[i]), done);
        }
    }
done:
    free(steps);
    return status;
}
