// Pinned host memory through which small copies pass, so that neither direction makes the host wait.
//
// A copy takes slots, of which there are a few. To the device: the bytes are copied into slots at once, a slot is free
// again when the stream has read it; where all are taken the host waits for the one taken first. From the device: the
// stream fills the slot, then a function in stream order copies it to its destination, so the bytes are there whenever
// later work of the stream, or a wait for it, has finished.
#ifndef FWA_KERNELS_CUDA_STAGING_H
#define FWA_KERNELS_CUDA_STAGING_H

#include <stdbool.h>

#include "kernels/cuda/device.h"

#ifdef __cplusplus
extern "C" {
#endif

// Owned by the backend. All streams must have finished before: fwa_cuda_staging_destroy.
FWA_MUST_CHECK fwa_status fwa_cuda_staging_create(struct fwa_cuda_staging **out);
void fwa_cuda_staging_destroy(struct fwa_cuda_staging *staging);

// *done false, and the copy still to be made, where the bytes are too many, no slot can be had, or `host` is pinned
// itself. FWA_ERROR while the stream is being captured. May be called from any thread.
FWA_MUST_CHECK fwa_status fwa_cuda_staging_upload(struct fwa_cuda_staging *staging, cudaStream_t stream, void *device,
                                                  const void *host, size_t bytes, bool *done);
FWA_MUST_CHECK fwa_status fwa_cuda_staging_download(struct fwa_cuda_staging *staging, cudaStream_t stream, void *host,
                                                    const void *device, size_t bytes, bool *done);

#ifdef __cplusplus
}
#endif
#endif
