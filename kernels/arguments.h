// What operators share for looking at their arguments: each returns FWA_ERROR from the calling function, naming the
// argument.
#ifndef FWA_KERNELS_ARGUMENTS_H
#define FWA_KERNELS_ARGUMENTS_H

#include "core/tensor.h"

// `tensor` has this type and these sizes; rows may be strided.
#define FWA_EXPECT(tensor, dtype, ndim, ...) FWA_TRY(fwa_tensor_expect((tensor), #tensor, (dtype), (ndim), __VA_ARGS__))

// The same for a tensor without gaps.
#define FWA_EXPECT_DENSE(tensor, dtype, ndim, ...)                                                                     \
    do {                                                                                                               \
        FWA_EXPECT(tensor, dtype, ndim, __VA_ARGS__);                                                                  \
        FWA_CHECK(fwa_tensor_dense(tensor), FWA_ERROR, "%s: got rows with gaps, expected a dense tensor", #tensor);    \
    } while (0)

// `tensor` has `dimensions` dimensions: before its sizes are read.
#define FWA_EXPECT_DIMS(tensor, dimensions)                                                                            \
    FWA_CHECK((tensor).ndim == (dimensions), FWA_ERROR, "%s: got %d dimensions, expected %d", #tensor, (tensor).ndim,  \
              (dimensions))

#endif
