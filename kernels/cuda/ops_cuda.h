// The CUDA operators, declared from ops.def: fwa_<op>_cuda_f32 and fwa_<op>_cuda_bf16. Only those marked CPU_CUDA
// exist.
#ifndef FWA_KERNELS_CUDA_OPS_CUDA_H
#define FWA_KERNELS_CUDA_OPS_CUDA_H

#include "kernels/ops.h"

#ifdef __cplusplus
extern "C" {
#endif

#define FWA_OP(backends, name, parameters, arguments)                                                                  \
    fwa_status fwa_##name##_cuda_f32 parameters;                                                                       \
    fwa_status fwa_##name##_cuda_bf16 parameters;
#include "kernels/ops.def"
#undef FWA_OP

#ifdef __cplusplus
}
#endif
#endif
