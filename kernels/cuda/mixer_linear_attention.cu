// Linear attention on CUDA: the additive core without weights.
#include "kernels/cuda/mixer_common.cuh"

FWA_MIXER_CUDA(linear_attention, core_additive, plain, false)
