// Folders of a run's checkpoints: names, list, left-overs.
#include "io/checkpoint_layout.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/log.h"

#define LEFT ".step_" // how the names begin of what is being written or removed

const char *const fwa_part_names[FWA_PART_COUNT] = {"master", "m", "v"};

void fwa_shard_name(char name[FWA_SHARD_NAME_MAX], int rank) {
    snprintf(name, FWA_SHARD_NAME_MAX, "shard.rank%05d.h5", rank);
}

fwa_status fwa_checkpoint_folder(char path[FWA_PATH_MAX], const char *run_dir, const char *prefix, int64_t step,
                                 const char *suffix) {
    FWA_TRY(fwa_path_format(path, "%s/checkpoints/%sstep_%08" PRId64 "%s", run_dir, prefix, step, suffix));
    return FWA_OK;
}

// Step of a folder name in exactly the form that fwa writes; -1 for any other name.
static int64_t parse_step(const char *name) {
    char again[64];
    if (strncmp(name, "step_", 5) != 0) return -1;
    long long step = strtoll(name + 5, NULL, 10);
    snprintf(again, sizeof again, "step_%08lld", step);
    return step >= 0 && strcmp(again, name) == 0 ? (int64_t)step : -1;
}

static int highest_first(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x < y) - (x > y);
}

// Opens RUN/checkpoints; *folder is NULL if it does not exist.
static fwa_status open_checkpoints(const char *run_dir, DIR **folder) {
    char path[FWA_PATH_MAX];
    FWA_TRY(fwa_path_format(path, "%s/checkpoints", run_dir));
    *folder = opendir(path);
    FWA_CHECK(*folder || errno == ENOENT, FWA_IO, "cannot list %s: %s", path, strerror(errno));
    return FWA_OK;
}

// The next entry, NULL behind the last one. A disk that fails in the middle of a list has not shown all there is.
static fwa_status next_entry(DIR *folder, const char *run_dir, const struct dirent **entry) {
    errno = 0;
    *entry = readdir(folder);
    FWA_CHECK(*entry || errno == 0, FWA_IO, "cannot list %s/checkpoints to its end: %s", run_dir, strerror(errno));
    return FWA_OK;
}

fwa_status fwa_checkpoint_steps(const char *run_dir, int64_t **steps, int *count) {
    *steps = NULL;
    *count = 0;
    DIR *folder;
    FWA_TRY(open_checkpoints(run_dir, &folder));
    if (!folder) return FWA_OK;
    fwa_status status = FWA_OK;
    int capacity = 0;
    for (const struct dirent *entry;;) {
        FWA_TRY_GOTO(next_entry(folder, run_dir, &entry), done);
        if (!entry) break;
        int64_t step = parse_step(entry->d_name);
        if (step < 0) continue;
        if (*count == capacity) {
            capacity = capacity ? 2 * capacity : 16;
            int64_t *more = realloc(*steps, (size_t)capacity * sizeof **steps);
            FWA_CHECK_GOTO(more, FWA_MEMORY, done, "no memory for the list of checkpoints of %s", run_dir);
            *steps = more;
        }
        (*steps)[(*count)++] = step;
    }
    if (*count) qsort(*steps, (size_t)*count, sizeof **steps, highest_first);
done:
    closedir(folder);
    if (status != FWA_OK) {
        free(*steps);
        *steps = NULL;
        *count = 0;
    }
    return status;
}

// Whether an entry's name begins so.
static fwa_status has_entry(const char *run_dir, const char *start, bool *has) {
    DIR *folder;
    *has = false;
    FWA_TRY(open_checkpoints(run_dir, &folder));
    if (!folder) return FWA_OK;
    fwa_status status = FWA_OK;
    for (const struct dirent *entry; !*has;) {
        FWA_TRY_GOTO(next_entry(folder, run_dir, &entry), done);
        if (!entry) break;
        *has = strncmp(entry->d_name, start, strlen(start)) == 0;
    }
done:
    closedir(folder);
    return status;
}

fwa_status fwa_checkpoint_has_aside(const char *run_dir, bool *has) {
    return has_entry(run_dir, FWA_ASIDE, has);
}

fwa_status fwa_checkpoint_has_left(const char *run_dir, bool *has) {
    return has_entry(run_dir, LEFT, has);
}

// Step of ".step_00001000.old"; -1 for any other name.
static int64_t parse_old(const char *name) {
    const size_t length = strlen(name);
    char step[64];
    if (name[0] != '.' || length < 6 || length > sizeof step || strcmp(name + length - 4, ".old") != 0) return -1;
    memcpy(step, name + 1, length - 5);
    step[length - 5] = '\0';
    return parse_step(step);
}

// Without an exchange of folders in one step (fwa_checkpoint_publish) there is a moment in which the older checkpoint
// of this step stands aside, and no newer one in its place: who was killed then has it back.
static fwa_status put_back(const char *run_dir, const char *name, bool *back) {
    char old[FWA_PATH_MAX], final[FWA_PATH_MAX];
    const int64_t step = parse_old(name);
    int ranks;
    *back = false;
    if (step < 0) return FWA_OK;
    FWA_TRY(fwa_checkpoint_folder(old, run_dir, ".", step, ".old"));
    FWA_TRY(fwa_checkpoint_folder(final, run_dir, "", step, ""));
    if (fwa_path_exists(final) || fwa_manifest_check(old, false, &ranks) != FWA_OK) {
        fwa_error_clear();
        return FWA_OK;
    }
    *back = rename(old, final) == 0;
    FWA_CHECK(*back, FWA_IO, "cannot rename %s to %s: %s", old, final, strerror(errno));
    return FWA_OK;
}

// Puts back what is whole; the rest is removed if `all` is to go.
static fwa_status sweep_entry(const char *run_dir, const char *name, bool all) {
    char path[FWA_PATH_MAX];
    bool back;
    if (strncmp(name, LEFT, strlen(LEFT)) != 0) return FWA_OK;
    FWA_TRY(put_back(run_dir, name, &back));
    if (back || !all) return FWA_OK;
    FWA_TRY(fwa_path_format(path, "%s/checkpoints/%s", run_dir, name));
    return fwa_remove_folder(path);
}

static fwa_status sweep(const char *run_dir, bool all) {
    DIR *folder;
    FWA_TRY(open_checkpoints(run_dir, &folder));
    if (!folder) return FWA_OK;
    fwa_status status = FWA_OK;
    for (const struct dirent *entry;;) {
        FWA_TRY_GOTO(next_entry(folder, run_dir, &entry), done);
        if (!entry) break;
        FWA_TRY_GOTO(sweep_entry(run_dir, entry->d_name, all), done);
    }
done:
    closedir(folder);
    return status;
}

fwa_status fwa_checkpoint_sweep(const char *run_dir) {
    return sweep(run_dir, true);
}

fwa_status fwa_checkpoint_recover(const char *run_dir) {
    return sweep(run_dir, false);
}

void fwa_checkpoint_clear(const char *run_dir) {
    if (sweep(run_dir, true) == FWA_OK) return;
    fwa_log_warn("what an interrupted save left stays: %s", fwa_error_message());
    fwa_error_clear();
}
