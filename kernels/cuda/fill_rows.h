// Filling a part of every row (fill_rows of core/backend.h) on a CUDA stream.
#ifndef FWA_KERNELS_CUDA_FILL_ROWS_H
#define FWA_KERNELS_CUDA_FILL_ROWS_H

#include <cuda_runtime_api.h>

#include "core/status.h"

#ifdef __cplusplus
extern "C" {
#endif

FWA_MUST_CHECK fwa_status fwa_cuda_fill_rows(cudaStream_t stream, void *to, int byte, size_t width, size_t stride,
                                             size_t rows);

#ifdef __cplusplus
}
#endif
#endif
