// RetNet on CUDA: the decay on the additive core.
#include "kernels/cuda/mixer_common.cuh"

FWA_MIXER_CUDA(retnet, core_additive, plain, false)
