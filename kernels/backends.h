// The backends themselves, behind fwa_backend_create; and the operator tables they carry, all generated from ops.def.
#ifndef FWA_KERNELS_BACKENDS_H
#define FWA_KERNELS_BACKENDS_H

#include "kernels/ops.h"

#ifdef __cplusplus
extern "C" {
#endif

// Create a backend without `ops`, which the registry fills in. Arguments were checked there. Caller: out->destroy(out).
FWA_MUST_CHECK fwa_status fwa_backend_cpu_create(fwa_backend **out, fwa_dtype precision, int threads, bool plan_only);
FWA_MUST_CHECK fwa_status fwa_backend_cpu_describe(char *text, size_t size);

// In cuda/: exist in builds with CUDA only. The count is FWA_UNSUPPORTED with the reason where CUDA cannot be
// used at all (driver missing or too old) and 0 devices otherwise.
FWA_MUST_CHECK fwa_status fwa_backend_cuda_create(fwa_backend **out, fwa_dtype precision, int device);
FWA_MUST_CHECK fwa_status fwa_backend_cuda_count(int *count);
FWA_MUST_CHECK fwa_status fwa_backend_cuda_describe(int device, char *text, size_t size);
void fwa_backend_cpu_libraries(char *text, size_t size);  // as fwa_backend_libraries
void fwa_backend_cuda_libraries(char *text, size_t size); // the same
const char *fwa_backend_cuda_cudnn(void);                 // version of cuDNN ("9.14.0"), NULL in builds without

extern const fwa_ops fwa_ops_cpu_f32, fwa_ops_cpu_f64;
extern const fwa_ops fwa_ops_cuda_f32, fwa_ops_cuda_bf16; // in builds with CUDA only

// Every entry ends in fwa_op_missing with that name: what a CUDA table holds where ops.def names no CUDA kernel.
extern const fwa_ops fwa_ops_missing_cuda_f32, fwa_ops_missing_cuda_bf16;
#define FWA_OP(backends, name, parameters, arguments)                                                                  \
    fwa_status fwa_##name##_missing_cuda_f32 parameters;                                                               \
    fwa_status fwa_##name##_missing_cuda_bf16 parameters;
#include "kernels/ops.def"
#undef FWA_OP

#ifdef __cplusplus
}
#endif
#endif
