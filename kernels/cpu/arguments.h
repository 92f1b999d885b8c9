// What the CPU operators share for looking at their arguments.
#ifndef FWA_KERNELS_CPU_ARGUMENTS_H
#define FWA_KERNELS_CPU_ARGUMENTS_H

#include "core/tensor.h"
#include "kernels/cpu/real.h"

// Returns FWA_ERROR from the calling function unless `tensor` has this type and these sizes; rows may be strided.
#define FWA_EXPECT(tensor, dtype, ndim, ...) FWA_TRY(fwa_tensor_expect((tensor), #tensor, (dtype), (ndim), __VA_ARGS__))

// The same for a tensor without gaps.
#define FWA_EXPECT_DENSE(tensor, dtype, ndim, ...)                                                                     \
    do {                                                                                                               \
        FWA_EXPECT(tensor, dtype, ndim, __VA_ARGS__);                                                                  \
        FWA_CHECK(fwa_tensor_dense(tensor), FWA_ERROR, "%s: got rows with gaps, expected a dense tensor", #tensor);    \
    } while (0)

// Returns FWA_ERROR unless `tensor` has `dimensions` dimensions: before its sizes are read.
#define FWA_EXPECT_DIMS(tensor, dimensions)                                                                            \
    FWA_CHECK((tensor).ndim == (dimensions), FWA_ERROR, "%s: got %d dimensions, expected %d", #tensor, (tensor).ndim,  \
              (dimensions))

// Row r of a [R, ...] tensor, and row t of sequence b of a [B, T, ...] tensor.
static inline real *fwa_row(fwa_tensor t, int64_t r) {
    return (real *)t.data + r * t.stride[0];
}
static inline real *fwa_row_at(fwa_tensor tensor, int64_t b, int64_t t) {
    return (real *)tensor.data + b * tensor.stride[0] + t * tensor.stride[1];
}

#endif
