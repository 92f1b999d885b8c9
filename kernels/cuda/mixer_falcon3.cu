// Falcon-3 on CUDA: the Falcon rate with the largest eigenvalue on the delta core over windows.
#include "kernels/cuda/mixer_common.cuh"

FWA_MIXER_CUDA(falcon3, core_delta, falcon_top, false)
