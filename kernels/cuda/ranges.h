// The backend's parts of a step (core/range.h) for NVIDIA's tools.
#ifndef FWA_KERNELS_CUDA_RANGES_H
#define FWA_KERNELS_CUDA_RANGES_H

#include "core/range.h"

#ifdef __cplusplus
extern "C" {
#endif

// The listener that hands them on as NVTX ranges of the domain "fwa", or NULL where no tool runs this process.
fwa_ranges *fwa_cuda_ranges(void);

#ifdef __cplusplus
}
#endif
#endif
