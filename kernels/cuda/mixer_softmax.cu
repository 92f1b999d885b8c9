// Causal softmax attention on CUDA: the attention core.
#include "kernels/cuda/mixer_common.cuh"

FWA_MIXER_CUDA(softmax, core_attention, none, false)
