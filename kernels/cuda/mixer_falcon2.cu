// Falcon-2 on CUDA: the Falcon rate on the delta form of the column core.
#include "kernels/cuda/mixer_common.cuh"

FWA_MIXER_CUDA(falcon2, core_column_delta, falcon, false)
