// DeltaNet on CUDA: beta as the step on the delta core.
#include "kernels/cuda/mixer_common.cuh"

FWA_MIXER_CUDA(deltanet, core_delta, plain, false)
