// Gated DeltaNet on CUDA: step and decay on the delta core, the decay first.
#include "kernels/cuda/mixer_common.cuh"

FWA_MIXER_CUDA(gated_deltanet, core_delta, plain, true)
