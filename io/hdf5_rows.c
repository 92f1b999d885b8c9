// Rows of a parameter to and from HDF5, chunk by chunk; strided rows go through a packed block.
#include "io/hdf5_rows.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/shape.h"

#define CHUNK_BYTES ((int64_t)4 << 20)

fwa_status fwa_rows_check(const fwa_named_tensor *tensor) {
    const fwa_tensor *rows = &tensor->tensor;
    const char *name = tensor->name;
    FWA_CHECK(name[0] && !strpbrk(name, "/%") && strcmp(name, ".") != 0, FWA_ERROR,
              "parameter name \"%s\": expected a dotted name without / and %%", name);
    FWA_CHECK(rows->ndim >= 1 && rows->ndim <= FWA_MAX_DIMS, FWA_ERROR, "%s has %d dimensions: expected 1 to %d", name,
              rows->ndim, FWA_MAX_DIMS);
    FWA_CHECK(rows->dtype == FWA_F32 || rows->dtype == FWA_F64, FWA_UNSUPPORTED,
              "%s has type %s: checkpoints hold f32 and f64", name, fwa_dtype_name(rows->dtype));
    for (int d = 1; d < rows->ndim; d++) {
        FWA_CHECK(rows->shape[d] == tensor->shape[d], FWA_ERROR, "%s: dimension %d of the rows is %lld: expected %lld",
                  name, d, (long long)rows->shape[d], (long long)tensor->shape[d]);
    }
    int64_t end = tensor->row_start + rows->shape[0];
    FWA_CHECK(tensor->row_start >= 0 && rows->shape[0] >= 0 && end <= tensor->shape[0], FWA_ERROR,
              "%s: rows [%lld, %lld) of %lld", name, (long long)tensor->row_start, (long long)end,
              (long long)tensor->shape[0]);
    FWA_CHECK(rows->data || fwa_tensor_count(*rows) == 0, FWA_ERROR, "%s has rows but no memory", name);
    return FWA_OK;
}

// Copies between a strided tensor and packed memory, one run of the last dimension at a time.
static void copy_packed(const fwa_tensor *t, char *packed, bool pack) {
    size_t size = fwa_dtype_size(t->dtype), bytes = (size_t)t->shape[t->ndim - 1] * size;
    int64_t runs = fwa_tensor_count(*t) / t->shape[t->ndim - 1];
    for (int64_t run = 0; run < runs; run++, packed += bytes) {
        int64_t offset = 0, rest = run;
        for (int d = t->ndim - 2; d >= 0; d--) {
            offset += rest % t->shape[d] * t->stride[d];
            rest /= t->shape[d];
        }
        char *at = (char *)t->data + (size_t)offset * size;
        memcpy(pack ? packed : at, pack ? at : packed, bytes);
    }
}

// Rows of one chunk: what is moved in one call.
static int64_t chunk_rows(hid_t dataset, int64_t otherwise) {
    hsize_t chunk[FWA_MAX_DIMS];
    hid_t list = H5Dget_create_plist(dataset);
    bool chunked = list >= 0 && H5Pget_layout(list) == H5D_CHUNKED && H5Pget_chunk(list, FWA_MAX_DIMS, chunk) > 0;
    if (list >= 0) H5Pclose(list);
    return chunked ? (int64_t)chunk[0] : otherwise;
}

static fwa_status move_block(hid_t dataset, int64_t first, const fwa_tensor *block, void *packed, const char *place,
                             bool write) {
    hsize_t start[FWA_MAX_DIMS] = {(hsize_t)first}, count[FWA_MAX_DIMS];
    for (int d = 0; d < block->ndim; d++) count[d] = (hsize_t)block->shape[d];
    hid_t type = fwa_hdf5_type(block->dtype);
    hid_t memory = H5Screate_simple(block->ndim, count, NULL);
    hid_t file = H5Dget_space(dataset);
    herr_t failed = file < 0 ? -1 : H5Sselect_hyperslab(file, H5S_SELECT_SET, start, NULL, count, NULL);
    if (failed >= 0) {
        failed = write ? H5Dwrite(dataset, type, memory, file, H5P_DEFAULT, packed)
                       : H5Dread(dataset, type, memory, file, H5P_DEFAULT, packed);
    }
    fwa_status status = FWA_OK;
    FWA_CHECK_GOTO(failed >= 0, write ? FWA_IO : FWA_FORMAT, done, "cannot %s %zu bytes of %s: %s",
                   write ? "write" : "read", fwa_tensor_bytes(*block), place, fwa_hdf5_message());
done:
    if (memory >= 0) H5Sclose(memory);
    if (file >= 0) H5Sclose(file);
    return status;
}

static fwa_status move_rows(hid_t dataset, int64_t first, fwa_tensor rows, bool write) {
    int64_t count = rows.shape[0];
    if (fwa_tensor_count(rows) == 0) return FWA_OK;
    const char *place = fwa_hdf5_place(dataset);
    int64_t step = chunk_rows(dataset, first + count);
    size_t packed_bytes = fwa_tensor_bytes(rows) / (size_t)count * (size_t)fwa_min(step, count);
    bool dense = fwa_tensor_dense(rows);
    char *packed = dense ? NULL : malloc(packed_bytes);
    FWA_CHECK(dense || packed, FWA_MEMORY, "no memory for %zu bytes of %s", packed_bytes, place);
    fwa_status status = FWA_OK;
    for (int64_t done = 0; done < count;) {
        int64_t here = fwa_min(count - done, step - (first + done) % step);
        fwa_tensor block = fwa_tensor_slice(rows, 0, done, here);
        if (!dense && write) copy_packed(&block, packed, true);
        FWA_TRY_GOTO(move_block(dataset, first + done, &block, dense ? block.data : packed, place, write), done);
        if (!dense && !write) copy_packed(&block, packed, false);
        done += here;
    }
done:
    free(packed);
    return status;
}

// Chunks of at most CHUNK_BYTES, of nearly equal rows so that little of the last one is padding.
static fwa_status creation_list(const fwa_tensor *rows, hid_t *list) {
    hsize_t chunk[FWA_MAX_DIMS];
    int64_t room = CHUNK_BYTES / (int64_t)fwa_dtype_size(rows->dtype);
    for (int d = rows->ndim - 1; d >= 0; d--) {
        int64_t size = fwa_max(rows->shape[d], 1);
        int64_t chunks = fwa_ceil_div(size, fwa_min(size, room));
        chunk[d] = (hsize_t)fwa_ceil_div(size, chunks);
        room = fwa_max(room / (int64_t)chunk[d], 1);
    }
    *list = H5Pcreate(H5P_DATASET_CREATE);
    bool made = *list >= 0 && H5Pset_chunk(*list, rows->ndim, chunk) >= 0 && H5Pset_fletcher32(*list) >= 0;
    // No time stamps: the same state gives the same bytes.
    made = made && H5Pset_obj_track_times(*list, false) >= 0;
    FWA_CHECK(made, FWA_ERROR, "cannot describe a dataset: %s", fwa_hdf5_message());
    return FWA_OK;
}

fwa_status fwa_rows_describe(hid_t dataset, const fwa_named_tensor *tensor, int64_t row_start) {
    const unsigned char decay = tensor->decay;
    FWA_TRY(fwa_hdf5_put_text_attribute(dataset, "dtype", fwa_dtype_name(tensor->tensor.dtype)));
    FWA_TRY(fwa_hdf5_put_attribute(dataset, "shape", H5T_NATIVE_INT64, tensor->tensor.ndim, tensor->shape));
    if (row_start >= 0) FWA_TRY(fwa_hdf5_put_attribute(dataset, "row_start", H5T_NATIVE_INT64, 0, &row_start));
    FWA_TRY(fwa_hdf5_put_text_attribute(dataset, "init", tensor->init));
    FWA_TRY(fwa_hdf5_put_attribute(dataset, "decay", H5T_NATIVE_UCHAR, 0, &decay));
    return FWA_OK;
}

fwa_status fwa_rows_write(hid_t group, const fwa_named_tensor *tensor) {
    FWA_TRY(fwa_rows_check(tensor));
    const fwa_tensor *rows = &tensor->tensor;
    hsize_t sizes[FWA_MAX_DIMS];
    for (int d = 0; d < rows->ndim; d++) sizes[d] = (hsize_t)rows->shape[d];
    hid_t list, dataset = H5I_INVALID_HID;
    FWA_TRY(creation_list(rows, &list));
    hid_t space = H5Screate_simple(rows->ndim, sizes, NULL);
    fwa_status status;
    dataset = H5Dcreate2(group, tensor->name, fwa_hdf5_type(rows->dtype), space, H5P_DEFAULT, list, H5P_DEFAULT);
    FWA_CHECK_GOTO(dataset >= 0, FWA_IO, done, "cannot create dataset %s: %s", tensor->name, fwa_hdf5_message());
    FWA_TRY_GOTO(fwa_rows_describe(dataset, tensor, tensor->row_start), done);
    FWA_TRY_GOTO(move_rows(dataset, 0, *rows, true), done);
    herr_t failed = H5Dclose(dataset);
    dataset = H5I_INVALID_HID;
    FWA_CHECK_GOTO(failed >= 0, FWA_IO, done, "cannot write %zu bytes of %s: %s", fwa_tensor_bytes(*rows), tensor->name,
                   fwa_hdf5_message());
done:
    if (dataset >= 0) H5Dclose(dataset);
    if (space >= 0) H5Sclose(space);
    H5Pclose(list);
    return status;
}

fwa_status fwa_rows_read(hid_t dataset, int64_t first, fwa_tensor rows) {
    FWA_TRY(move_rows(dataset, first, rows, false));
    return FWA_OK;
}

// The attributes belong to the rows: other sizes are equal, and the rows are some of those of `shape`.
static fwa_status check_about(const fwa_named_tensor *about) {
    const fwa_tensor *t = &about->tensor;
    bool good =
        about->shape[0] >= t->shape[0] && about->row_start >= 0 && about->row_start <= about->shape[0] - t->shape[0];
    for (int d = 1; d < t->ndim; d++) good &= about->shape[d] == t->shape[d];
    char text[96];
    FWA_CHECK(good, FWA_FORMAT,
              "dataset %s: got %s from row %lld on, expected rows of the tensor of its attribute shape", about->name,
              fwa_tensor_text(*t, text), (long long)about->row_start);
    return FWA_OK;
}

fwa_status fwa_rows_about(hid_t dataset, const char *name, fwa_named_tensor *about) {
    memset(about, 0, sizeof *about);
    snprintf(about->name, sizeof about->name, "%s", name);
    fwa_dtype dtype;
    FWA_TRY(fwa_hdf5_dtype(dataset, &dtype));
    hsize_t sizes[FWA_MAX_DIMS];
    int64_t rows[FWA_MAX_DIMS] = {0};
    hid_t space = H5Dget_space(dataset);
    int ndim = space >= 0 ? H5Sget_simple_extent_ndims(space) : -1;
    bool fits = ndim >= 1 && ndim <= FWA_MAX_DIMS && H5Sget_simple_extent_dims(space, sizes, NULL) == ndim;
    if (space >= 0) H5Sclose(space);
    FWA_CHECK(fits, FWA_FORMAT, "dataset %s has %d dimensions: expected 1 to %d", name, ndim, FWA_MAX_DIMS);
    for (int d = 0; d < ndim; d++) rows[d] = (int64_t)sizes[d];
    about->tensor = fwa_tensor_nd(NULL, dtype, ndim, rows);
    unsigned char decay = 0;
    FWA_TRY(fwa_hdf5_get_attribute(dataset, "shape", H5T_NATIVE_INT64, ndim, about->shape));
    FWA_TRY(fwa_hdf5_get_attribute(dataset, "row_start", H5T_NATIVE_INT64, 0, &about->row_start));
    FWA_TRY(fwa_hdf5_get_text_attribute(dataset, "init", about->init, sizeof about->init));
    FWA_TRY(fwa_hdf5_get_attribute(dataset, "decay", H5T_NATIVE_UCHAR, 0, &decay));
    about->decay = decay != 0;
    return check_about(about);
}
