// Falcon-1A on CUDA: the Falcon rate on the additive core.
#include "kernels/cuda/mixer_common.cuh"

FWA_MIXER_CUDA(falcon1a, core_additive, falcon, false)
