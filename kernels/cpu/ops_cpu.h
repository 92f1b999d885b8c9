// Prototypes of the CPU operators in both precisions: fwa_<op>_cpu_f32 and fwa_<op>_cpu_f64. Contracts: ops.h, ops.def.
#ifndef FWA_KERNELS_CPU_OPS_CPU_H
#define FWA_KERNELS_CPU_OPS_CPU_H

#include "kernels/ops.h"

#ifdef __cplusplus
extern "C" {
#endif

#define FWA_OP(backends, name, parameters, arguments)                                                                  \
    fwa_status fwa_##name##_cpu_f32 parameters;                                                                        \
    fwa_status fwa_##name##_cpu_f64 parameters;
#include "kernels/ops.def"
#undef FWA_OP

#ifdef __cplusplus
}
#endif
#endif
