// Declarations of every rule of mixers.def: its descriptor and its CPU kernels in both precisions.
#ifndef FWA_KERNELS_CPU_MIXERS_CPU_H
#define FWA_KERNELS_CPU_MIXERS_CPU_H

#include "kernels/rule.h"

#ifdef __cplusplus
extern "C" {
#endif

#define FWA_MIXER(name, backends)                                                                                      \
    extern const fwa_rule fwa_rule_##name;                                                                             \
    extern const fwa_mixer fwa_mixer_##name##_cpu_f32, fwa_mixer_##name##_cpu_f64;
#include "kernels/mixers.def"
#undef FWA_MIXER

#ifdef __cplusplus
}
#endif
#endif
