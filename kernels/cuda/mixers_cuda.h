// The CUDA kernels of every rule of mixers.def that is marked CPU_CUDA.
#ifndef FWA_KERNELS_CUDA_MIXERS_CUDA_H
#define FWA_KERNELS_CUDA_MIXERS_CUDA_H

#include "kernels/rule.h"

#ifdef __cplusplus
extern "C" {
#endif

#define FWA_MIXER_DECLARE_CPU(name)
#define FWA_MIXER_DECLARE_CPU_CUDA(name)                                                                               \
    extern const fwa_mixer fwa_mixer_##name##_cuda_f32, fwa_mixer_##name##_cuda_bf16;
#define FWA_MIXER(name, backends) FWA_MIXER_DECLARE_##backends(name)
#include "kernels/mixers.def"
#undef FWA_MIXER
#undef FWA_MIXER_DECLARE_CPU
#undef FWA_MIXER_DECLARE_CPU_CUDA

#ifdef __cplusplus
}
#endif
#endif
