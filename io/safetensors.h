// safetensors files: 8 bytes with the length of a JSON header, the header with type, shape and place of every tensor,
// then their bytes, little-endian, without gaps. Not collective.
#ifndef FWA_IO_SAFETENSORS_H
#define FWA_IO_SAFETENSORS_H

#include <stdbool.h>
#include <stdio.h>

#include "core/status.h"
#include "core/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

#define FWA_SAFETENSORS_NAME 128

typedef struct fwa_safetensor {
    char name[FWA_SAFETENSORS_NAME];
    char type[8]; // "F64", "F32", "F16", "BF16", "I32", "I64", ...
    int ndim;
    int64_t shape[FWA_MAX_DIMS];
    int64_t start, bytes; // start: behind the header; filled by reading and by fwa_safetensors_begin
} fwa_safetensor;

// Describes a tensor to be written; the type is that of a dtype.
fwa_safetensor fwa_safetensor_about(const char *name, fwa_dtype dtype, int ndim, const int64_t *shape);

typedef struct fwa_safetensors_writer fwa_safetensors_writer;
// Writes `path`.tmp; the header of all tensors first.
FWA_MUST_CHECK fwa_status fwa_safetensors_begin(fwa_safetensors_writer **out, const char *path,
                                                const fwa_safetensor *tensors, int count);
// The bytes of the next tensor, in the order of the header: dense elements of its type.
FWA_MUST_CHECK fwa_status fwa_safetensors_put(fwa_safetensors_writer *writer, const void *data, int64_t bytes);
// Syncs and renames where all tensors are there and `good`, removes the file otherwise; frees the writer, which may be
// NULL.
FWA_MUST_CHECK fwa_status fwa_safetensors_end(fwa_safetensors_writer *writer, bool good);

typedef struct fwa_safetensors {
    char *path;
    FILE *file;
    fwa_safetensor *at;
    int count;
    int64_t data; // where the first tensor begins
} fwa_safetensors;

// Opens a file and checks its header: names, known types, shapes that fit their bytes, within the file, no overlaps.
// FWA_FORMAT says what does not fit. Close it after a failure, too.
FWA_MUST_CHECK fwa_status fwa_safetensors_open(fwa_safetensors *file, const char *path);
void fwa_safetensors_close(fwa_safetensors *file);
const fwa_safetensor *fwa_safetensors_find(const fwa_safetensors *file, const char *name); // NULL: none
// All elements, converted to f32 or f64, into a tensor's memory of [tensor->shape[0], rest], dense. FWA_FORMAT for
// types that are no real numbers.
FWA_MUST_CHECK fwa_status fwa_safetensors_read(fwa_safetensors *file, const fwa_safetensor *tensor, fwa_dtype to,
                                               void *out);

#ifdef __cplusplus
}
#endif
#endif
