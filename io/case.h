// A case of a mixing rule as a file (HDF5): a text attribute `rule`, numbers as attributes, tensors in the groups in/,
// out/ and grad/. In memory every tensor is f64, whatever number type the file holds. Not collective; takes the HDF5
// lock.
#ifndef FWA_IO_CASE_H
#define FWA_IO_CASE_H

#include "core/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { FWA_CASE_TENSORS = 96, FWA_CASE_NUMBERS = 24 };

typedef struct fwa_case {
    char rule[64]; // "": the file has none
    struct {
        char name[32];
        double value;
    } numbers[FWA_CASE_NUMBERS];
    struct {
        char path[64]; // "in/q"
        fwa_tensor tensor;
    } tensors[FWA_CASE_TENSORS];
    int number_count, tensor_count;
} fwa_case;

// Reads all tensors and those attributes of `numbers` (ends with NULL) that the file has. FWA_FORMAT names attribute or
// dataset. The caller frees *out with fwa_case_free, after a failure too.
FWA_MUST_CHECK fwa_status fwa_case_read(fwa_case *out, const char *path, const char *const *numbers);
// Writes PATH.tmp, syncs, renames: PATH is whole or as it was.
FWA_MUST_CHECK fwa_status fwa_case_write(const fwa_case *c, const char *path);
void fwa_case_free(fwa_case *c);

fwa_tensor fwa_case_tensor(const fwa_case *c, const char *path);          // absent: none
bool fwa_case_number(const fwa_case *c, const char *name, double *value); // false, value kept: none
FWA_MUST_CHECK fwa_status fwa_case_set(fwa_case *c, const char *name, double value);
// A new tensor of zeros with this shape; *out views its memory, which is the case's.
FWA_MUST_CHECK fwa_status fwa_case_add(fwa_case *c, const char *path, int ndim, const int64_t *shape, fwa_tensor *out);

#ifdef __cplusplus
}
#endif
#endif
