// A plain model.h5 from a checkpoint: whole master tensors in one file that needs no shards.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "io/checkpoint_layout.h"
#include "io/hdf5_rows.h"

static fwa_status pack_tensor(fwa_checkpoint *checkpoint, hid_t file, int index) {
    fwa_named_tensor whole;
    FWA_TRY(fwa_checkpoint_read_whole(checkpoint, FWA_PART_MASTER, index, &whole));
    fwa_hdf5_lock();
    const fwa_status status = fwa_rows_write(file, &whole);
    fwa_hdf5_unlock();
    free(whole.tensor.data);
    return status;
}

static fwa_status describe(const fwa_checkpoint *checkpoint, hid_t file) {
    const fwa_checkpoint_state *state = fwa_checkpoint_get_state(checkpoint);
    FWA_TRY(fwa_hdf5_put_text_attribute(file, "format", "fwa-model"));
    FWA_TRY(fwa_hdf5_put_attribute(file, "step", H5T_NATIVE_INT64, 0, &state->step));
    return fwa_hdf5_put_text_attribute(file, "config", state->config);
}

static fwa_status pack_file(fwa_checkpoint *checkpoint, const char *path) {
    hid_t file;
    fwa_hdf5_lock();
    fwa_status status = fwa_hdf5_create(&file, path);
    if (status != FWA_OK) fwa_hdf5_unlock();
    FWA_TRY(status);
    status = describe(checkpoint, file);
    fwa_hdf5_unlock();
    int count = fwa_checkpoint_count(checkpoint);
    for (int i = 0; i < count && status == FWA_OK; i++) status = pack_tensor(checkpoint, file, i);
    fwa_hdf5_lock();
    if (status == FWA_OK) {
        status = fwa_hdf5_finish(file, path);
    } else {
        fwa_hdf5_abandon(file);
    }
    fwa_hdf5_unlock();
    FWA_TRY(status);
    return FWA_OK;
}

fwa_status fwa_checkpoint_pack(fwa_checkpoint *checkpoint, const char *path) {
    char temporary[FWA_PATH_MAX];
    FWA_TRY(fwa_path_format(temporary, "%s.tmp", path));
    fwa_status status;
    FWA_TRY_GOTO(pack_file(checkpoint, temporary), failed);
    FWA_TRY_GOTO(fwa_file_rename(temporary, path), failed);
    return FWA_OK;
failed:
    unlink(temporary);
    return status;
}
