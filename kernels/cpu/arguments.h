// Rows of arguments on the CPU, beside the checks of kernels/arguments.h.
#ifndef FWA_KERNELS_CPU_ARGUMENTS_H
#define FWA_KERNELS_CPU_ARGUMENTS_H

#include "kernels/arguments.h"
#include "kernels/cpu/real.h"

// Row r of a [R, ...] tensor, and row t of sequence b of a [B, T, ...] tensor.
static inline real *fwa_row(fwa_tensor t, int64_t r) {
    return (real *)t.data + r * t.stride[0];
}
static inline real *fwa_row_at(fwa_tensor tensor, int64_t b, int64_t t) {
    return (real *)tensor.data + b * tensor.stride[0] + t * tensor.stride[1];
}

#endif
