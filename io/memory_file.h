// What a model remembers of a sequence as a file (HDF5): attributes format, model, position, held, the tokens that were
// taken but not read as `pending`, and the tensors in the group memory/; behind that its digest. Not collective; takes
// the HDF5 lock.
#ifndef FWA_IO_MEMORY_FILE_H
#define FWA_IO_MEMORY_FILE_H

#include "core/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct fwa_memory_header {
    char model[64]; // which model's memory it is
    int64_t position, held;
    int32_t *pending; // [pending_count]
    int64_t pending_count;
} fwa_memory_header;

// Host memory, dense, f32 or f64.
typedef struct fwa_memory_tensor {
    char name[64];
    fwa_tensor tensor;
} fwa_memory_tensor;

// Writes PATH.tmp, syncs, renames: PATH is whole or as it was.
FWA_MUST_CHECK fwa_status fwa_memory_file_write(const char *path, const fwa_memory_header *header,
                                                const fwa_memory_tensor *tensors, int count);
// FWA_FORMAT where it is no such file. The caller frees header->pending.
FWA_MUST_CHECK fwa_status fwa_memory_file_read_header(const char *path, fwa_memory_header *header);
// Fills tensors of these names and shapes, converted to their types; FWA_FORMAT where the file has others.
FWA_MUST_CHECK fwa_status fwa_memory_file_read(const char *path, const fwa_memory_tensor *tensors, int count);

#ifdef __cplusplus
}
#endif
#endif
