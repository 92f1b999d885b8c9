// Depthwise causal convolution without bias over the steps of sequences: y_t = sum_i w[:,i] x_{t-W+1+i}.
#ifndef FWA_KERNELS_CPU_CONV_H
#define FWA_KERNELS_CPU_CONV_H

#include "core/tensor.h"
#include "kernels/cpu/real.h"

#define FWA_CONV_WIDTH_MAX 16

// Inputs: x [B,T,P] (rows may be strided), w [P,W]; halo [B,W-1,P] = the inputs before x, absent: zeros; reset u8
// [B,T], absent: none. A step sees nothing from before the last reset at or before it.
typedef struct fwa_conv {
    int64_t B, T, P, W;
    fwa_tensor x, w, halo, reset;
} fwa_conv;

// Steps [begin, end) of sequence b of y [B,T,P].
void FWA_T(fwa_conv_forward)(const fwa_conv *conv, int64_t b, int64_t begin, int64_t end, fwa_tensor y);

// Channels [begin, end): d [B,T,P] holds dy and becomes dx; dw [P,W] +=; dhalo [B,W-1,P] = or absent.
void FWA_T(fwa_conv_backward)(const fwa_conv *conv, int64_t begin, int64_t end, fwa_tensor d, fwa_tensor dw,
                              fwa_tensor dhalo);

#endif
