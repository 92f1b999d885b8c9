// Checkpoints of a run that goes on from an earlier one.
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/log.h"
#include "io/checkpoint_layout.h"

fwa_status fwa_checkpoint_name_latest(const char *run_dir, int64_t step) {
    char path[FWA_PATH_MAX], text[64];
    FWA_TRY(fwa_path_format(path, "%s/checkpoints/latest", run_dir));
    snprintf(text, sizeof text, "step_%08" PRId64 "\n", step);
    return fwa_write_text(path, text);
}

// The first RUN/checkpoints/set_aside_N that is not there.
static fwa_status new_folder(const char *run_dir, char folder[FWA_PATH_MAX]) {
    for (int n = 1;; n++) {
        FWA_TRY(fwa_path_format(folder, "%s/checkpoints/" FWA_ASIDE "%d", run_dir, n));
        if (!fwa_path_exists(folder)) return fwa_make_folders(folder);
    }
}

// Highest steps first, so that who is killed here goes on from the one that would have been next.
static fwa_status move_away(const char *run_dir, const int64_t *steps, int count) {
    char folder[FWA_PATH_MAX], from[FWA_PATH_MAX], to[FWA_PATH_MAX];
    FWA_TRY(new_folder(run_dir, folder));
    for (int i = 0; i < count; i++) {
        FWA_TRY(fwa_checkpoint_folder(from, run_dir, "", steps[i], ""));
        FWA_TRY(fwa_path_format(to, "%s/step_%08" PRId64, folder, steps[i]));
        FWA_CHECK(rename(from, to) == 0, FWA_IO, "cannot rename %s to %s: %s", from, to, strerror(errno));
    }
    fwa_log_warn("%s holds %d checkpoint%s that this run goes back behind or passed over as damaged, step %" PRId64
                 " the newest: remove the folder when it is not needed",
                 folder, count, fwa_plural(count), steps[0]);
    return FWA_OK;
}

static fwa_status correct_latest(const char *run_dir, const int64_t *left, int count) {
    char path[FWA_PATH_MAX];
    if (count > 0) return fwa_checkpoint_name_latest(run_dir, left[0]);
    FWA_TRY(fwa_path_format(path, "%s/checkpoints/latest", run_dir));
    FWA_CHECK(unlink(path) == 0 || errno == ENOENT, FWA_IO, "cannot remove %s: %s", path, strerror(errno));
    return FWA_OK;
}

fwa_status fwa_checkpoint_set_aside(const char *run_dir, int64_t step, const char *path) {
    char own[FWA_PATH_MAX];
    int64_t *steps;
    int count, later = 0;
    FWA_TRY(fwa_checkpoint_folder(own, run_dir, "", step, ""));
    FWA_TRY(fwa_checkpoint_steps(run_dir, &steps, &count));
    while (later < count && (steps[later] > step || (steps[later] == step && !fwa_path_same(own, path)))) later++;
    fwa_status status = later > 0 ? move_away(run_dir, steps, later) : FWA_OK;
    if (status == FWA_OK && later > 0) status = correct_latest(run_dir, steps + later, count - later);
    free(steps);
    return status;
}
