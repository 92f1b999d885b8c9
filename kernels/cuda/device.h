// What the files of this folder share on the host: the stream, and CUDA's errors as fwa_status.
#ifndef FWA_KERNELS_CUDA_DEVICE_H
#define FWA_KERNELS_CUDA_DEVICE_H

#include <cuda_runtime_api.h>

#include "core/status.h"

#ifdef __cplusplus
extern "C" {
#endif

// Operators allocate nothing. What one needs between two of its own kernels (partial sums, split products) it takes
// from the workspace of its stream: allocated with the stream, free for every operator as work of one stream runs in
// order, never holding anything from one operator to the next.
#define FWA_CUDA_WORKSPACE_BYTES ((size_t)32 << 20)

struct fwa_cuda_products;
struct fwa_cudnn;
struct fwa_cuda_staging;

struct fwa_stream {
    cudaStream_t handle;
    void *workspace; // FWA_CUDA_WORKSPACE_BYTES of device memory
    int multiprocessors;
    int shared_bytes;                   // the most shared memory that a block may ask for
    struct fwa_cuda_products *products; // of the backend (products.h)
    struct fwa_cudnn *cudnn;            // of the backend (cudnn.h)
};

// FWA_OK for cudaSuccess; otherwise raises FWA_MEMORY, FWA_UNSUPPORTED (no code for this GPU) or FWA_BACKEND.
fwa_status fwa_cuda_status(cudaError_t error, const char *what, const char *file, int line, const char *function);

// Returns from the calling function where a CUDA call fails.
#define FWA_CUDA_TRY(call)                                                                                             \
    do {                                                                                                               \
        fwa_status fwa_cuda_status_ = fwa_cuda_status((call), #call, __FILE__, __LINE__, __func__);                    \
        if (fwa_cuda_status_ != FWA_OK) return fwa_cuda_status_;                                                       \
    } while (0)

#ifdef __cplusplus
}
#endif
#endif
