// Mamba-2 on CUDA: the decay on the additive core.
#include "kernels/cuda/mixer_common.cuh"

FWA_MIXER_CUDA(mamba2, core_additive, plain, false)
