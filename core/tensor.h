// A tensor is a view: pointer, type, shape, strides. It never owns memory (arenas do) and is passed by value.
//
// The last dimension is always dense (stride 1) so that rows can be handed to BLAS; leading dimensions may be strided,
// which is how q, k, v, g are read out of one packed projection. A tensor with data == NULL is "absent": operators
// document which arguments may be.
#ifndef FWA_CORE_TENSOR_H
#define FWA_CORE_TENSOR_H

#include <stdbool.h>

#include "core/status.h"
#include "core/types.h"

#ifdef __cplusplus
extern "C" {
#endif

#define FWA_MAX_DIMS 4

typedef struct fwa_tensor {
    void *data;
    fwa_dtype dtype;
    int ndim;
    int64_t shape[FWA_MAX_DIMS];
    int64_t stride[FWA_MAX_DIMS]; // in elements
} fwa_tensor;

// Dense row-major views of `data`.
fwa_tensor fwa_tensor_1d(void *data, fwa_dtype dtype, int64_t n0);
fwa_tensor fwa_tensor_2d(void *data, fwa_dtype dtype, int64_t n0, int64_t n1);
fwa_tensor fwa_tensor_3d(void *data, fwa_dtype dtype, int64_t n0, int64_t n1, int64_t n2);
fwa_tensor fwa_tensor_4d(void *data, fwa_dtype dtype, int64_t n0, int64_t n1, int64_t n2, int64_t n3);
fwa_tensor fwa_tensor_nd(void *data, fwa_dtype dtype, int ndim, const int64_t *shape);
fwa_tensor fwa_tensor_absent(void); // data NULL, ndim 0

static inline bool fwa_tensor_present(fwa_tensor t) {
    return t.data != NULL;
}
int64_t fwa_tensor_count(fwa_tensor t); // number of elements
size_t fwa_tensor_bytes(fwa_tensor t);  // of the elements, strides not counted
// Element i of a dense tensor of f32 or f64 in host memory.
static inline double fwa_tensor_real(fwa_tensor t, int64_t i) {
    return t.dtype == FWA_F64 ? ((const double *)t.data)[i] : (double)((const float *)t.data)[i];
}
bool fwa_tensor_dense(fwa_tensor t); // row-major without gaps

// The same elements under another shape: splits dimensions of any view ([R,P] -> [B,T,H,K]) and merges those that
// follow each other without a gap. What is no such view (another count, rows that do not merge) comes back absent,
// which operators refuse.
fwa_tensor fwa_tensor_as_2d(fwa_tensor t, int64_t n0, int64_t n1);
fwa_tensor fwa_tensor_as_3d(fwa_tensor t, int64_t n0, int64_t n1, int64_t n2);
fwa_tensor fwa_tensor_as_4d(fwa_tensor t, int64_t n0, int64_t n1, int64_t n2, int64_t n3);
// Elements [start, start + count) along `dim`; strides stay. A tensor without memory (planned, not yet committed) stays
// without: slice after the commit.
fwa_tensor fwa_tensor_slice(fwa_tensor t, int dim, int64_t start, int64_t count);

// "[2, 3, 4] f32" into `text`; for messages.
const char *fwa_tensor_text(fwa_tensor t, char text[96]);

// FWA_ERROR with both shapes unless `t` is present with this type and these `ndim` sizes, each an int64_t. `name` is
// the argument's.
FWA_MUST_CHECK fwa_status fwa_tensor_expect(fwa_tensor t, const char *name, fwa_dtype dtype, int ndim, ...);

#ifdef __cplusplus
}
#endif
#endif
