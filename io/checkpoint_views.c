// model.h5 and optim.h5: virtual datasets that show the shards' rows as whole tensors, by file names in the same
// folder.
#include <math.h>
#include <stdio.h>

#include "io/checkpoint_writer.h"
#include "io/hdf5_rows.h"

static herr_t map_piece(hid_t list, hid_t space, const fwa_index_entry *entry, int part, const fwa_index_piece *piece) {
    hsize_t start[FWA_MAX_DIMS] = {(hsize_t)piece->row_start}, count[FWA_MAX_DIMS];
    for (int d = 0; d < entry->about.tensor.ndim; d++) count[d] = (hsize_t)entry->about.shape[d];
    count[0] = (hsize_t)piece->rows;
    char shard[FWA_SHARD_NAME_MAX], dataset[FWA_NAME_MAX + 16];
    fwa_shard_name(shard, piece->shard);
    snprintf(dataset, sizeof dataset, "/%s/%s", fwa_part_names[part], entry->about.name);
    hid_t rows = H5Screate_simple(entry->about.tensor.ndim, count, NULL);
    if (rows < 0) return -1;
    herr_t failed = H5Sselect_hyperslab(space, H5S_SELECT_SET, start, NULL, count, NULL);
    if (failed >= 0) failed = H5Pset_virtual(list, space, shard, dataset, rows);
    if (failed >= 0) H5Sclose(rows);
    return failed;
}

static fwa_status make_view(hid_t group, const fwa_index_entry *entry, int part, hid_t space, hid_t list) {
    const fwa_named_tensor *about = &entry->about;
    const double nan = NAN;
    bool ready = space >= 0 && H5Pset_fill_value(list, H5T_NATIVE_DOUBLE, &nan) >= 0;
    for (int i = 0; i < entry->count[part] && ready; i++) {
        ready = map_piece(list, space, entry, part, &entry->pieces[part][i]) >= 0;
    }
    hid_t dataset = H5I_INVALID_HID;
    if (ready) {
        dataset =
            H5Dcreate2(group, about->name, fwa_hdf5_type(about->tensor.dtype), space, H5P_DEFAULT, list, H5P_DEFAULT);
    }
    FWA_CHECK(dataset >= 0, FWA_IO, "cannot write the view of %s: %s", about->name, fwa_hdf5_message());
    fwa_status status = fwa_rows_describe(dataset, about, -1);
    H5Dclose(dataset);
    FWA_TRY(status);
    return FWA_OK;
}

static fwa_status write_view(hid_t group, const fwa_index_entry *entry, int part) {
    hsize_t sizes[FWA_MAX_DIMS];
    for (int d = 0; d < entry->about.tensor.ndim; d++) sizes[d] = (hsize_t)entry->about.shape[d];
    hid_t list = H5Pcreate(H5P_DATASET_CREATE);
    FWA_CHECK(list >= 0 && H5Pset_obj_track_times(list, false) >= 0, FWA_ERROR, "cannot describe a dataset: %s",
              fwa_hdf5_message());
    hid_t space = H5Screate_simple(entry->about.tensor.ndim, sizes, NULL);
    fwa_status status = make_view(group, entry, part, space, list);
    if (space >= 0) H5Sclose(space);
    H5Pclose(list);
    FWA_TRY(status);
    return FWA_OK;
}

static fwa_status write_views(hid_t group, const fwa_index *index, int part) {
    for (int i = 0; i < index->count; i++) {
        if (index->entries[i].present[part]) FWA_TRY(write_view(group, &index->entries[i], part));
    }
    return FWA_OK;
}

static fwa_status write_moments(hid_t file, const fwa_index *index) {
    for (int part = FWA_PART_M; part <= FWA_PART_V; part++) {
        hid_t group;
        FWA_TRY(fwa_hdf5_group(&group, file, fwa_part_names[part]));
        fwa_status status = write_views(group, index, part);
        H5Gclose(group);
        FWA_TRY(status);
    }
    return FWA_OK;
}

static fwa_status write_file(const char *folder, const char *name, const fwa_index *index, bool moments) {
    char path[FWA_PATH_MAX];
    FWA_TRY(fwa_path_format(path, "%s/%s", folder, name));
    hid_t file;
    FWA_TRY(fwa_hdf5_create(&file, path));
    fwa_status status = moments ? write_moments(file, index) : write_views(file, index, FWA_PART_MASTER);
    if (status != FWA_OK) fwa_hdf5_abandon(file);
    FWA_TRY(status);
    FWA_TRY(fwa_hdf5_finish(file, path));
    return FWA_OK;
}

fwa_status fwa_views_write(const char *folder, const fwa_index *index) {
    FWA_TRY(write_file(folder, "model.h5", index, false));
    FWA_TRY(write_file(folder, "optim.h5", index, true));
    return FWA_OK;
}
