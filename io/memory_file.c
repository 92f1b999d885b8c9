// What a model remembers of a sequence as a file. Behind HDF5's bytes, most of which HDF5 does not check, stands a
// seal: the digest of all in front of it.
#include "io/memory_file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "io/files.h"
#include "io/hdf5_file.h"

#define FORMAT "fwa memory 1"
#define GROUP  "memory"
#define SEAL   "\nxxh3 "
#define HEX    32 // digits of a digest

static fwa_status write_seal(const char *path) {
    char hex[HEX + 1];
    FWA_TRY(fwa_file_digest(path, hex));
    FILE *file = fopen(path, "a");
    FWA_CHECK(file, FWA_IO, "cannot open %s: %s", path, strerror(errno));
    const bool written = fprintf(file, SEAL "%s", hex) > 0;
    FWA_CHECK(fclose(file) == 0 && written, FWA_IO, "cannot write %s: %s", path, strerror(errno));
    return fwa_sync_path(path);
}

// Before HDF5 sees it, which damage can make read anywhere.
static fwa_status check_seal(const char *path) {
    enum { SIZE = sizeof SEAL - 1 + HEX };
    char hex[HEX + 1], found[SIZE + 1] = "", wanted[SIZE + 1];
    FWA_TRY(fwa_input_check(path, FWA_INPUT_FILE));
    FILE *file = fopen(path, "r");
    FWA_CHECK(file, FWA_CONFIG, "cannot open %s: %s", path, strerror(errno));
    const bool long_enough = fseeko(file, -(off_t)SIZE, SEEK_END) == 0;
    const int64_t bytes = (int64_t)ftello(file);
    const bool whole = long_enough && fread(found, 1, SIZE, file) == SIZE;
    fclose(file);
    FWA_CHECK(whole && memcmp(found, SEAL, sizeof SEAL - 1) == 0, FWA_FORMAT,
              "%s: no memory of a sequence as --state-out writes it, or cut short: its digest is not at the end", path);
    FWA_TRY(fwa_file_digest_start(path, bytes, hex));
    snprintf(wanted, sizeof wanted, SEAL "%s", hex);
    FWA_CHECK(memcmp(found, wanted, SIZE) == 0, FWA_FORMAT,
              "%s is damaged: its bytes do not give the digest at its end; write it anew", path);
    return FWA_OK;
}

static fwa_status write_dataset(hid_t file, const char *path, hid_t type, int ndim, const int64_t *shape,
                                const void *data) {
    hsize_t sizes[FWA_MAX_DIMS];
    for (int d = 0; d < ndim; d++) sizes[d] = (hsize_t)shape[d];
    const hid_t space = H5Screate_simple(ndim, sizes, NULL);
    const hid_t plain = H5Pcreate(H5P_DATASET_CREATE);
    H5Pset_obj_track_times(plain, 0); // the same memory makes the same file
    const hid_t dataset = H5Dcreate2(file, path, type, space, H5P_DEFAULT, plain, H5P_DEFAULT);
    const bool written = dataset >= 0 && H5Dwrite(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, data) >= 0;
    fwa_status status = FWA_OK;
    FWA_CHECK_GOTO(written, FWA_IO, done, "cannot write %s: %s", path, fwa_hdf5_message());
done:
    if (dataset >= 0) H5Dclose(dataset);
    H5Pclose(plain);
    if (space >= 0) H5Sclose(space);
    return status;
}

static fwa_status write_content(hid_t file, const fwa_memory_header *h, const fwa_memory_tensor *tensors, int count) {
    hid_t group;
    char path[96];
    FWA_TRY(fwa_hdf5_put_text_attribute(file, "format", FORMAT));
    FWA_TRY(fwa_hdf5_put_text_attribute(file, "model", h->model));
    FWA_TRY(fwa_hdf5_put_attribute(file, "position", H5T_NATIVE_INT64, 0, &h->position));
    FWA_TRY(fwa_hdf5_put_attribute(file, "held", H5T_NATIVE_INT64, 0, &h->held));
    if (h->pending_count > 0)
        FWA_TRY(write_dataset(file, "pending", H5T_NATIVE_INT32, 1, &h->pending_count, h->pending));
    FWA_TRY(fwa_hdf5_group(&group, file, GROUP));
    H5Gclose(group);
    for (int i = 0; i < count; i++) {
        const fwa_tensor *t = &tensors[i].tensor;
        snprintf(path, sizeof path, GROUP "/%s", tensors[i].name);
        FWA_TRY(write_dataset(file, path, fwa_hdf5_type(t->dtype), t->ndim, t->shape, t->data));
    }
    return FWA_OK;
}

static fwa_status write_file(const char *path, const fwa_memory_header *h, const fwa_memory_tensor *tensors,
                             int count) {
    hid_t file;
    FWA_TRY(fwa_hdf5_create(&file, path));
    const fwa_status status = write_content(file, h, tensors, count);
    if (status != FWA_OK) fwa_hdf5_abandon(file);
    FWA_TRY(status);
    return fwa_hdf5_finish(file, path);
}

fwa_status fwa_memory_file_write(const char *path, const fwa_memory_header *h, const fwa_memory_tensor *tensors,
                                 int count) {
    char temporary[FWA_PATH_MAX];
    FWA_TRY(fwa_path_format(temporary, "%s.tmp", path));
    fwa_hdf5_lock();
    fwa_status status = write_file(temporary, h, tensors, count);
    fwa_hdf5_unlock();
    if (status == FWA_OK) status = write_seal(temporary);
    if (status == FWA_OK) status = fwa_file_rename(temporary, path);
    if (status != FWA_OK) unlink(temporary);
    FWA_TRY(status);
    return FWA_OK;
}

// Sizes of a dataset, -1 dimensions for none.
static int sizes_of(hid_t dataset, int64_t shape[FWA_MAX_DIMS]) {
    hsize_t sizes[FWA_MAX_DIMS];
    const hid_t space = H5Dget_space(dataset);
    int ndim = H5Sget_simple_extent_ndims(space);
    if (ndim > FWA_MAX_DIMS || H5Sget_simple_extent_dims(space, sizes, NULL) < 0) ndim = -1;
    for (int d = 0; d < ndim; d++) shape[d] = (int64_t)sizes[d];
    H5Sclose(space);
    return ndim;
}

static fwa_status read_pending(hid_t file, fwa_memory_header *h) {
    int64_t shape[FWA_MAX_DIMS] = {0};
    fwa_status status = FWA_OK;
    if (H5Lexists(file, "pending", H5P_DEFAULT) <= 0) return FWA_OK;
    const hid_t dataset = H5Dopen2(file, "pending", H5P_DEFAULT);
    FWA_CHECK_GOTO(dataset >= 0 && sizes_of(dataset, shape) == 1 && shape[0] > 0, FWA_FORMAT, done,
                   "pending: expected a list of tokens");
    h->pending = malloc((size_t)shape[0] * sizeof *h->pending);
    FWA_CHECK_GOTO(h->pending, FWA_MEMORY, done, "no memory for %lld tokens", (long long)shape[0]);
    FWA_CHECK_GOTO(H5Dread(dataset, H5T_NATIVE_INT32, H5S_ALL, H5S_ALL, H5P_DEFAULT, h->pending) >= 0, FWA_FORMAT, done,
                   "cannot read pending: %s", fwa_hdf5_message());
    h->pending_count = shape[0];
done:
    if (dataset >= 0) H5Dclose(dataset);
    return status;
}

static fwa_status read_header(hid_t file, fwa_memory_header *h) {
    char format[32] = "";
    FWA_CHECK(H5Aexists(file, "format") > 0, FWA_FORMAT, "no attribute format: it is no memory of a sequence");
    FWA_TRY(fwa_hdf5_get_text_attribute(file, "format", format, sizeof format));
    FWA_CHECK(strcmp(format, FORMAT) == 0, FWA_FORMAT, "format '%s', expected '%s'", format, FORMAT);
    FWA_TRY(fwa_hdf5_get_text_attribute(file, "model", h->model, sizeof h->model));
    FWA_TRY(fwa_hdf5_get_attribute(file, "position", H5T_NATIVE_INT64, 0, &h->position));
    FWA_TRY(fwa_hdf5_get_attribute(file, "held", H5T_NATIVE_INT64, 0, &h->held));
    FWA_CHECK(h->held >= 0 && h->held <= h->position, FWA_FORMAT, "held is %lld of %lld tokens read",
              (long long)h->held, (long long)h->position);
    return read_pending(file, h);
}

static fwa_status read_tensor(hid_t file, const fwa_memory_tensor *t) {
    char path[96], got[96], wanted[96];
    int64_t shape[FWA_MAX_DIMS] = {0};
    fwa_status status = FWA_OK;
    snprintf(path, sizeof path, GROUP "/%s", t->name);
    const hid_t dataset = H5Lexists(file, path, H5P_DEFAULT) > 0 ? H5Dopen2(file, path, H5P_DEFAULT) : -1;
    FWA_CHECK_GOTO(dataset >= 0, FWA_FORMAT, done, "no dataset %s", path);
    const int ndim = sizes_of(dataset, shape);
    bool same = ndim == t->tensor.ndim;
    for (int d = 0; same && d < ndim; d++) same = shape[d] == t->tensor.shape[d];
    FWA_CHECK_GOTO(same, FWA_FORMAT, done, "%s is %s, expected %s", path,
                   fwa_tensor_text(fwa_tensor_nd(NULL, t->tensor.dtype, ndim > 0 ? ndim : 1, shape), got),
                   fwa_tensor_text(t->tensor, wanted));
    FWA_CHECK_GOTO(H5Dread(dataset, fwa_hdf5_type(t->tensor.dtype), H5S_ALL, H5S_ALL, H5P_DEFAULT, t->tensor.data) >= 0,
                   FWA_FORMAT, done, "cannot read %s: %s", path, fwa_hdf5_message());
done:
    if (dataset >= 0) H5Dclose(dataset);
    return status;
}

static fwa_status read_tensors(hid_t file, const fwa_memory_tensor *tensors, int count) {
    for (int i = 0; i < count; i++) FWA_TRY(read_tensor(file, &tensors[i]));
    return FWA_OK;
}

fwa_status fwa_memory_file_read_header(const char *path, fwa_memory_header *header) {
    hid_t file;
    memset(header, 0, sizeof *header);
    FWA_TRY(check_seal(path));
    fwa_hdf5_lock();
    fwa_status status = fwa_hdf5_open(&file, path);
    if (status == FWA_OK) {
        status = fwa_hdf5_name_file(read_header(file, header), path);
        H5Fclose(file);
    }
    fwa_hdf5_unlock();
    return status;
}

fwa_status fwa_memory_file_read(const char *path, const fwa_memory_tensor *tensors, int count) {
    hid_t file;
    fwa_hdf5_lock();
    fwa_status status = fwa_hdf5_open(&file, path);
    if (status == FWA_OK) {
        status = fwa_hdf5_name_file(read_tensors(file, tensors, count), path);
        H5Fclose(file);
    }
    fwa_hdf5_unlock();
    return status;
}
