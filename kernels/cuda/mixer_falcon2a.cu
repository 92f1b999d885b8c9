// Falcon-2A on CUDA: the Falcon rate on the additive form of the column core.
#include "kernels/cuda/mixer_common.cuh"

FWA_MIXER_CUDA(falcon2a, core_column_additive, falcon, false)
