// Falcon-3A on CUDA: the Falcon rate on the additive core over windows.
#include "kernels/cuda/mixer_common.cuh"

FWA_MIXER_CUDA(falcon3a, core_additive, falcon, false)
