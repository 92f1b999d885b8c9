// Cases of mixing rules from and to HDF5 files.
#include "io/case.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "io/files.h"
#include "io/hdf5_file.h"

static const char *const groups[] = {"in", "out", "grad"};
enum { GROUPS = sizeof groups / sizeof groups[0] };

void fwa_case_free(fwa_case *c) {
    for (int i = 0; i < c->tensor_count; i++) free(c->tensors[i].tensor.data);
    c->tensor_count = 0;
}

fwa_tensor fwa_case_tensor(const fwa_case *c, const char *path) {
    for (int i = 0; i < c->tensor_count; i++)
        if (strcmp(c->tensors[i].path, path) == 0) return c->tensors[i].tensor;
    return fwa_tensor_absent();
}

bool fwa_case_number(const fwa_case *c, const char *name, double *value) {
    for (int i = 0; i < c->number_count; i++) {
        if (strcmp(c->numbers[i].name, name) != 0) continue;
        *value = c->numbers[i].value;
        return true;
    }
    return false;
}

fwa_status fwa_case_set(fwa_case *c, const char *name, double value) {
    FWA_CHECK(c->number_count < FWA_CASE_NUMBERS && strlen(name) < sizeof c->numbers[0].name, FWA_ERROR,
              "attribute %s: a case has at most %d, with names shorter than %zu", name, (int)FWA_CASE_NUMBERS,
              sizeof c->numbers[0].name);
    snprintf(c->numbers[c->number_count].name, sizeof c->numbers[0].name, "%s", name);
    c->numbers[c->number_count++].value = value;
    return FWA_OK;
}

fwa_status fwa_case_add(fwa_case *c, const char *path, int ndim, const int64_t *shape, fwa_tensor *out) {
    FWA_CHECK(c->tensor_count < FWA_CASE_TENSORS && strlen(path) < sizeof c->tensors[0].path, FWA_FORMAT,
              "dataset %s: a case has at most %d, with names shorter than %zu", path, (int)FWA_CASE_TENSORS,
              sizeof c->tensors[0].path);
    fwa_tensor t = fwa_tensor_nd(NULL, FWA_F64, ndim, shape);
    const int64_t count = fwa_tensor_count(t);
    t.data = calloc((size_t)(count > 0 ? count : 1), sizeof(double));
    FWA_CHECK(t.data, FWA_MEMORY, "no memory for the %lld numbers of %s", (long long)count, path);
    snprintf(c->tensors[c->tensor_count].path, sizeof c->tensors[0].path, "%s", path);
    c->tensors[c->tensor_count++].tensor = t;
    *out = t;
    return FWA_OK;
}

// Sizes of a dataset of numbers.
static fwa_status read_shape(hid_t dataset, const char *path, int *ndim, int64_t shape[FWA_MAX_DIMS]) {
    hid_t type = H5Dget_type(dataset), space = H5Dget_space(dataset);
    hsize_t sizes[FWA_MAX_DIMS] = {0};
    const H5T_class_t class = type >= 0 ? H5Tget_class(type) : H5T_NO_CLASS;
    *ndim = space >= 0 ? H5Sget_simple_extent_ndims(space) : -1;
    const bool numbers = class == H5T_FLOAT || class == H5T_INTEGER;
    const bool fits = *ndim >= 1 && *ndim <= FWA_MAX_DIMS && H5Sget_simple_extent_dims(space, sizes, NULL) >= 0;
    for (int d = 0; fits && d < *ndim; d++) shape[d] = (int64_t)sizes[d];
    if (space >= 0) H5Sclose(space);
    if (type >= 0) H5Tclose(type);
    FWA_CHECK(numbers, FWA_FORMAT, "%s holds no numbers, expected floating point", path);
    FWA_CHECK(fits, FWA_FORMAT, "%s has %d dimensions, expected 1 to %d", path, *ndim, FWA_MAX_DIMS);
    return FWA_OK;
}

static fwa_status read_dataset(fwa_case *c, hid_t dataset, const char *path) {
    int ndim;
    int64_t shape[FWA_MAX_DIMS];
    fwa_tensor t;
    FWA_TRY(read_shape(dataset, path, &ndim, shape));
    FWA_TRY(fwa_case_add(c, path, ndim, shape, &t));
    FWA_CHECK(H5Dread(dataset, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, t.data) >= 0, FWA_FORMAT,
              "cannot read %s: %s", path, fwa_hdf5_message());
    return FWA_OK;
}

static fwa_status read_group(fwa_case *c, hid_t file, const char *name) {
    if (H5Lexists(file, name, H5P_DEFAULT) <= 0) return FWA_OK;
    H5G_info_t info;
    FWA_CHECK(H5Gget_info_by_name(file, name, &info, H5P_DEFAULT) >= 0, FWA_FORMAT, "%s is no group: %s", name,
              fwa_hdf5_message());
    for (hsize_t i = 0; i < info.nlinks; i++) {
        char entry[48], path[64];
        const ssize_t length =
            H5Lget_name_by_idx(file, name, H5_INDEX_NAME, H5_ITER_INC, i, entry, sizeof entry, H5P_DEFAULT);
        FWA_CHECK(length > 0 && (size_t)length < sizeof entry, FWA_FORMAT, "entry %lld of group %s has no short name",
                  (long long)i, name);
        snprintf(path, sizeof path, "%s/%s", name, entry);
        hid_t dataset = H5Dopen2(file, path, H5P_DEFAULT);
        FWA_CHECK(dataset >= 0, FWA_FORMAT, "%s is no dataset: %s", path, fwa_hdf5_message());
        const fwa_status status = read_dataset(c, dataset, path);
        H5Dclose(dataset);
        FWA_TRY(status);
    }
    return FWA_OK;
}

static fwa_status read_file(fwa_case *c, hid_t file, const char *const *numbers) {
    if (H5Aexists(file, "rule") > 0) FWA_TRY(fwa_hdf5_get_text_attribute(file, "rule", c->rule, sizeof c->rule));
    for (; *numbers; numbers++) {
        double value;
        if (H5Aexists(file, *numbers) <= 0) continue;
        FWA_TRY(fwa_hdf5_get_attribute(file, *numbers, H5T_NATIVE_DOUBLE, 0, &value));
        FWA_TRY(fwa_case_set(c, *numbers, value));
    }
    for (int i = 0; i < GROUPS; i++) FWA_TRY(read_group(c, file, groups[i]));
    return FWA_OK;
}

fwa_status fwa_case_read(fwa_case *out, const char *path, const char *const *numbers) {
    hid_t file;
    memset(out, 0, sizeof *out);
    fwa_hdf5_lock();
    fwa_status status = fwa_hdf5_open(&file, path);
    if (status == FWA_OK) {
        status = fwa_hdf5_name_file(read_file(out, file, numbers), path);
        H5Fclose(file);
    }
    fwa_hdf5_unlock();
    FWA_TRY(status);
    return FWA_OK;
}

static fwa_status write_dataset(hid_t file, const char *path, fwa_tensor t) {
    hsize_t sizes[FWA_MAX_DIMS];
    for (int d = 0; d < t.ndim; d++) sizes[d] = (hsize_t)t.shape[d];
    hid_t space = H5Screate_simple(t.ndim, sizes, NULL);
    hid_t dataset = H5Dcreate2(file, path, H5T_IEEE_F64LE, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    const bool written =
        dataset >= 0 && H5Dwrite(dataset, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, t.data) >= 0;
    fwa_status status = FWA_OK;
    FWA_CHECK_GOTO(written, FWA_IO, done, "cannot write %s: %s", path, fwa_hdf5_message());
done:
    if (dataset >= 0) H5Dclose(dataset);
    if (space >= 0) H5Sclose(space);
    return status;
}

// Makes the group where the case has a tensor in it.
static fwa_status write_group(hid_t file, const fwa_case *c, const char *name) {
    const size_t length = strlen(name);
    bool made = false;
    for (int i = 0; i < c->tensor_count; i++) {
        const char *path = c->tensors[i].path;
        if (strncmp(path, name, length) != 0 || path[length] != '/') continue;
        if (!made) {
            hid_t group;
            FWA_TRY(fwa_hdf5_group(&group, file, name));
            H5Gclose(group);
            made = true;
        }
        FWA_TRY(write_dataset(file, path, c->tensors[i].tensor));
    }
    return FWA_OK;
}

static fwa_status write_content(hid_t file, const fwa_case *c) {
    FWA_TRY(fwa_hdf5_put_text_attribute(file, "rule", c->rule));
    for (int i = 0; i < c->number_count; i++)
        FWA_TRY(fwa_hdf5_put_attribute(file, c->numbers[i].name, H5T_NATIVE_DOUBLE, 0, &c->numbers[i].value));
    for (int i = 0; i < GROUPS; i++) FWA_TRY(write_group(file, c, groups[i]));
    return FWA_OK;
}

static fwa_status write_file(const fwa_case *c, const char *path) {
    hid_t file;
    FWA_TRY(fwa_hdf5_create(&file, path));
    const fwa_status status = write_content(file, c);
    if (status != FWA_OK) fwa_hdf5_abandon(file);
    FWA_TRY(fwa_hdf5_name_file(status, path));
    return fwa_hdf5_finish(file, path);
}

fwa_status fwa_case_write(const fwa_case *c, const char *path) {
    char temporary[FWA_PATH_MAX];
    FWA_TRY(fwa_path_format(temporary, "%s.tmp", path));
    fwa_hdf5_lock();
    fwa_status status = write_file(c, temporary);
    fwa_hdf5_unlock();
    if (status == FWA_OK) status = fwa_file_rename(temporary, path);
    if (status != FWA_OK) unlink(temporary);
    FWA_TRY(status);
    return FWA_OK;
}
