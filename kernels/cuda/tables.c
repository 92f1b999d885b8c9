// The operator tables of the CUDA backend: the kernel where ops.def says CPU_CUDA, the answer "missing" elsewhere.
#include "kernels/backends.h"
#include "kernels/cuda/ops_cuda.h"

#define ENTRY_CPU(name, type)      fwa_##name##_missing_cuda_##type
#define ENTRY_CPU_CUDA(name, type) fwa_##name##_cuda_##type

#define FWA_OP(backends, name, parameters, arguments) .name = ENTRY_##backends(name, f32),
const fwa_ops fwa_ops_cuda_f32 = {
#include "kernels/ops.def"
};
#undef FWA_OP

#define FWA_OP(backends, name, parameters, arguments) .name = ENTRY_##backends(name, bf16),
const fwa_ops fwa_ops_cuda_bf16 = {
#include "kernels/ops.def"
};
#undef FWA_OP
