// What attention keeps of cuDNN between calls: the library's handle and the plan of every kind of pass seen. The
// library is optional: attention_cudnn.cu has these functions where the build has it, cudnn_absent.cu where not.
#ifndef FWA_KERNELS_CUDA_CUDNN_H
#define FWA_KERNELS_CUDA_CUDNN_H

#include "kernels/cuda/device.h"

#ifdef __cplusplus
extern "C" {
#endif

// Owned by the backend, used by its streams from the thread that runs operators. The library is first touched when a
// plan is asked for. Caller: fwa_cudnn_destroy.
FWA_MUST_CHECK fwa_status fwa_cudnn_create(struct fwa_cudnn **out);
void fwa_cudnn_destroy(struct fwa_cudnn *cudnn);

#ifdef __cplusplus
}
#endif
#endif
