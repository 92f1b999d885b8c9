// Falcon-1 on CUDA: the Falcon rate on the delta core.
#include "kernels/cuda/mixer_common.cuh"

FWA_MIXER_CUDA(falcon1, core_delta, falcon, false)
