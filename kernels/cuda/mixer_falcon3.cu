// Falcon-3 on CUDA: the Falcon rate with the largest eigenvalue on the window core.
#include "kernels/cuda/mixer_common.cuh"

FWA_MIXER_CUDA(falcon3, core_window, falcon_top, false)
