// Floating-point operations of a training step by the model's own arithmetic, for the share of a device's peak (MFU).
// Pure functions of numbers. A multiply-add counts two; what is recomputed in the backward pass does not count.
#ifndef FWA_TRAIN_FLOPS_H
#define FWA_TRAIN_FLOPS_H

#include "kernels/rule.h"

#ifdef __cplusplus
extern "C" {
#endif

// One mixing layer: the core its rule runs on and its sizes (core/shape.h). Hq heads of q and k, H of v.
typedef struct fwa_flops_mixer {
    fwa_core core;
    int64_t T, Hq, H, K, V;
    int64_t C; // chunk length; not used by attention
    int64_t B; // pairs of the window; used by the window core only
} fwa_flops_mixer;

typedef struct fwa_flops_model {
    int64_t parameters;   // without embedding and output head
    int64_t D, N;         // of the output head, tied or not
    double mixer_forward; // sum of fwa_flops_mixer_forward over the layers
} fwa_flops_model;

// Forward products of one mixing layer for one token. Causal: only pairs (t, s <= t) count.
//   attention  q.k, p.v: T+1 pairs for every two tokens           (T+1) (Hq K + H V)
//   additive   the same inside a chunk, S^T q, S += x v^T         (C+1) (Hq K + H V) + 4 H K V
//   delta      additive, x.x and the solve (pairs s < t), S^T x   + (C-1) (H K + H V) + 2 H K V
//   window     delta with B residuals a step                      + (B-1) (C+1) H V
//   column     as additive: the systems of rules that have one per column are not counted (a lower bound)
// C is at most T.
double fwa_flops_mixer_forward(const fwa_flops_mixer *mixer);

// Forward and backward of one token: 6 x parameters + 6 x D x N + 3 x mixer_forward.
double fwa_flops_token(const fwa_flops_model *model);

// Dense bf16 rate of the data sheet in FLOP/s for a device by its name ("NVIDIA H200"); NaN where unknown, and for a
// part of a device (MIG).
double fwa_flops_device_peak(const char *device);

// Share of the peak of `devices` devices; NaN where the peak is.
double fwa_flops_mfu(double flops_per_token, double tokens_per_s, double device_peak, int devices);

#ifdef __cplusplus
}
#endif
#endif
