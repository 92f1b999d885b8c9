// Rounding to bf16 where a GPU's chunk kernels have bf16 (fwa_backend.rounds): inputs, first and second operands of
// products, states that stay for the backward pass, results. Sums, gates and the state that is carried are not rounded.
#ifndef FWA_KERNELS_CPU_ROUNDED_H
#define FWA_KERNELS_CPU_ROUNDED_H

#include <stdbool.h>

#include "core/bf16.h"
#include "kernels/cpu/real.h"

// x [n] where `rounds`.
static inline void fwa_round_where(bool rounds, real *x, int64_t n) {
    for (int64_t i = 0; rounds && i < n; i++) x[i] = (real)fwa_bf16_to_float(fwa_bf16_from_float((float)x[i]));
}

#endif
