// Reading a checkpoint: everything is checked when it is opened, then rows are joined from the shards that hold them.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/log.h"
#include "core/shape.h"
#include "io/checkpoint_index.h"
#include "io/hdf5_rows.h"

#define OPEN_FILES_MAX 64
#define LOOKS_MAX      20 // for the newest checkpoint of a run that removes those looked at

struct fwa_checkpoint {
    char path[FWA_PATH_MAX];
    int ranks;
    fwa_checkpoint_state state;
    fwa_index index;
    hid_t *shards; // opened when first read from
    int open_count;
};

static void close_shards(fwa_checkpoint *checkpoint) {
    for (int i = 0; i < checkpoint->ranks && checkpoint->shards; i++) {
        if (checkpoint->shards[i] >= 0) H5Fclose(checkpoint->shards[i]);
        checkpoint->shards[i] = H5I_INVALID_HID;
    }
    checkpoint->open_count = 0;
}

static fwa_status read_contents(fwa_checkpoint *checkpoint) {
    FWA_TRY(fwa_state_read(checkpoint->path, &checkpoint->state));
    FWA_TRY(fwa_index_build(&checkpoint->index, checkpoint->path, checkpoint->ranks));
    return FWA_OK;
}

static fwa_status open_checked(fwa_checkpoint *checkpoint, const char *path, bool digests) {
    FWA_TRY(fwa_path_format(checkpoint->path, "%s", path));
    FWA_TRY(fwa_manifest_check(path, digests, &checkpoint->ranks));
    checkpoint->shards = malloc((size_t)checkpoint->ranks * sizeof *checkpoint->shards);
    FWA_CHECK(checkpoint->shards, FWA_MEMORY, "no memory for %d shards of %s", checkpoint->ranks, path);
    for (int i = 0; i < checkpoint->ranks; i++) checkpoint->shards[i] = H5I_INVALID_HID;
    fwa_hdf5_lock();
    fwa_status status = read_contents(checkpoint);
    fwa_hdf5_unlock();
    FWA_TRY(status);
    return FWA_OK;
}

static fwa_status open_folder(fwa_checkpoint **out, const char *path, bool digests) {
    *out = NULL;
    fwa_checkpoint *checkpoint = calloc(1, sizeof *checkpoint);
    FWA_CHECK(checkpoint, FWA_MEMORY, "no memory for checkpoint %s", path);
    fwa_status status = open_checked(checkpoint, path, digests);
    if (status != FWA_OK) {
        fwa_checkpoint_close(checkpoint);
        checkpoint = NULL;
    }
    *out = checkpoint;
    FWA_TRY(status);
    return FWA_OK;
}

fwa_status fwa_checkpoint_open(fwa_checkpoint **out, const char *path) {
    return open_folder(out, path, true);
}

fwa_status fwa_checkpoint_open_quick(fwa_checkpoint **out, const char *path) {
    return open_folder(out, path, false);
}

void fwa_checkpoint_close(fwa_checkpoint *checkpoint) {
    if (!checkpoint) return;
    fwa_hdf5_lock();
    close_shards(checkpoint);
    fwa_hdf5_unlock();
    fwa_state_free(&checkpoint->state);
    fwa_index_free(&checkpoint->index);
    free(checkpoint->shards);
    free(checkpoint);
}

const fwa_checkpoint_state *fwa_checkpoint_get_state(const fwa_checkpoint *checkpoint) {
    return &checkpoint->state;
}

const char *fwa_checkpoint_path(const fwa_checkpoint *checkpoint) {
    return checkpoint->path;
}

int fwa_checkpoint_count(const fwa_checkpoint *checkpoint) {
    return checkpoint->index.count;
}

const char *fwa_checkpoint_name(const fwa_checkpoint *checkpoint, int index) {
    return checkpoint->index.entries[index].about.name;
}

const fwa_named_tensor *fwa_checkpoint_about(const fwa_checkpoint *checkpoint, int index) {
    return &checkpoint->index.entries[index].about;
}

int fwa_checkpoint_ranks(const fwa_checkpoint *checkpoint) {
    return checkpoint->ranks;
}

bool fwa_checkpoint_has(const fwa_checkpoint *checkpoint, fwa_checkpoint_part part, int index) {
    return checkpoint->index.entries[index].present[part];
}

const char *fwa_checkpoint_part_name(fwa_checkpoint_part part) {
    return fwa_part_names[part];
}

static fwa_status open_shard(fwa_checkpoint *checkpoint, int shard) {
    if (checkpoint->shards[shard] >= 0) return FWA_OK;
    if (checkpoint->open_count == OPEN_FILES_MAX) close_shards(checkpoint);
    char name[FWA_SHARD_NAME_MAX], path[FWA_PATH_MAX];
    fwa_shard_name(name, shard);
    FWA_TRY(fwa_path_format(path, "%s/%s", checkpoint->path, name));
    FWA_TRY(fwa_hdf5_open(&checkpoint->shards[shard], path));
    checkpoint->open_count++;
    return FWA_OK;
}

// The part of `piece` that lies in to's rows.
static fwa_status read_piece(fwa_checkpoint *checkpoint, int part, const fwa_index_piece *piece, fwa_named_tensor *to) {
    int64_t start = fwa_max(piece->row_start, to->row_start);
    int64_t end = fwa_min(piece->row_start + piece->rows, to->row_start + to->tensor.shape[0]);
    if (start >= end) return FWA_OK;
    FWA_TRY(open_shard(checkpoint, piece->shard));
    char name[FWA_NAME_MAX + 16];
    snprintf(name, sizeof name, "/%s/%s", fwa_part_names[part], to->name);
    hid_t dataset = H5Dopen2(checkpoint->shards[piece->shard], name, H5P_DEFAULT);
    FWA_CHECK(dataset >= 0, FWA_FORMAT, "cannot open %s of shard %d of %s: %s", name, piece->shard, checkpoint->path,
              fwa_hdf5_message());
    fwa_tensor rows = fwa_tensor_slice(to->tensor, 0, start - to->row_start, end - start);
    fwa_status status = fwa_rows_read(dataset, start - piece->row_start, rows);
    H5Dclose(dataset);
    FWA_TRY(status);
    return FWA_OK;
}

static fwa_status read_pieces(fwa_checkpoint *checkpoint, int part, const fwa_index_entry *entry,
                              fwa_named_tensor *to) {
    for (int i = 0; i < entry->count[part]; i++) FWA_TRY(read_piece(checkpoint, part, &entry->pieces[part][i], to));
    return FWA_OK;
}

fwa_status fwa_checkpoint_read(fwa_checkpoint *checkpoint, fwa_checkpoint_part part, fwa_named_tensor *to) {
    FWA_TRY(fwa_rows_check(to));
    const fwa_index_entry *entry = fwa_index_find(&checkpoint->index, to->name);
    FWA_CHECK(entry && entry->present[part], FWA_FORMAT, "checkpoint %s has no %s of parameter %s: %s",
              checkpoint->path, fwa_part_names[part], to->name,
              entry ? "it holds weights alone, as fwa import makes it; start from it with --init-from"
                    : "it was written by another model");
    if (!fwa_named_tensor_alike(&entry->about, to)) {
        char found[96], expected[96];
        FWA_FAIL(FWA_FORMAT, "parameter %s of checkpoint %s is %s: expected %s by the model", to->name,
                 checkpoint->path, fwa_tensor_text(entry->about.tensor, found),
                 fwa_tensor_text(fwa_tensor_nd(NULL, to->tensor.dtype, to->tensor.ndim, to->shape), expected));
    }
    fwa_hdf5_lock();
    fwa_status status = read_pieces(checkpoint, part, entry, to);
    fwa_hdf5_unlock();
    FWA_TRY(status);
    return FWA_OK;
}

fwa_status fwa_checkpoint_read_whole(fwa_checkpoint *checkpoint, fwa_checkpoint_part part, int index,
                                     fwa_named_tensor *whole) {
    *whole = *fwa_checkpoint_about(checkpoint, index);
    const size_t bytes = fwa_tensor_bytes(whole->tensor);
    void *data = whole->tensor.data = malloc(bytes ? bytes : 1);
    FWA_CHECK(data, FWA_MEMORY, "no memory for %zu bytes of %s", bytes, whole->name);
    const fwa_status status = fwa_checkpoint_read(checkpoint, part, whole);
    if (status == FWA_OK) return FWA_OK;
    free(data);
    whole->tensor.data = NULL;
    return fwa_error_pass(status, __FILE__, __LINE__, __func__);
}

// Opens one candidate of fwa_checkpoint_newest; *path stays NULL if it is damaged, or (*gone) if the run that writes it
// has removed it since it was listed.
static fwa_status try_candidate(const char *candidate, char **path, bool *gone) {
    fwa_checkpoint *checkpoint;
    fwa_status status = fwa_checkpoint_open(&checkpoint, candidate);
    fwa_checkpoint_close(checkpoint);
    if (status == FWA_IO || status == FWA_FORMAT) {
        *gone = !fwa_path_exists(candidate);
        if (!*gone) fwa_log_warn("checkpoint %s is passed over: %s", candidate, fwa_error_message());
        return FWA_OK;
    }
    FWA_TRY(status);
    *path = strdup(candidate);
    FWA_CHECK(*path, FWA_MEMORY, "no memory for the name of %s", candidate);
    return FWA_OK;
}

// *gone: a candidate was removed meanwhile, and there may be a newer one.
static fwa_status look_for_newest(const char *run_dir, char **path, bool *gone) {
    int64_t *steps;
    int count;
    *gone = false;
    FWA_TRY(fwa_checkpoint_steps(run_dir, &steps, &count));
    fwa_status status = FWA_OK;
    for (int i = 0; i < count && !*path && !*gone; i++) {
        char candidate[FWA_PATH_MAX];
        FWA_TRY_GOTO(fwa_checkpoint_folder(candidate, run_dir, "", steps[i], ""), done);
        FWA_TRY_GOTO(try_candidate(candidate, path, gone), done);
    }
    FWA_CHECK_GOTO(
        *path || *gone || count == 0, FWA_FORMAT, done,
        "no sound checkpoint in %s/checkpoints, but %d damaged: move what is there away to start from the beginning",
        run_dir, count);
done:
    free(steps);
    return status;
}

fwa_status fwa_checkpoint_newest(const char *run_dir, char **path) {
    bool gone = true;
    *path = NULL;
    for (int i = 0; i < LOOKS_MAX && gone; i++) FWA_TRY(look_for_newest(run_dir, path, &gone));
    FWA_CHECK(!gone, FWA_IO, "%s removes its checkpoints faster than they are read: raise checkpoint.keep_last",
              run_dir);
    if (*path) return FWA_OK;
    bool aside;
    FWA_TRY(fwa_checkpoint_has_aside(run_dir, &aside));
    FWA_CHECK(!aside, FWA_FORMAT,
              "all checkpoints in %s/checkpoints are set aside: continue one of them by its path (--resume "
              "%s/checkpoints/" FWA_ASIDE "N/step_...), or move them away to start from the beginning",
              run_dir, run_dir);
    return FWA_OK;
}
