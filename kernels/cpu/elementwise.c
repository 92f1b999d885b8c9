// Operators on whole dense tensors: conversion between float types, sum, sum of squares.
#include <string.h>

#include "core/bf16.h"
#include "kernels/cpu/arguments.h"
#include "kernels/cpu/ops_cpu.h"
#include "kernels/cpu/parallel.h"

static fwa_status check_same_count(fwa_tensor y, fwa_tensor x) {
    FWA_CHECK(fwa_tensor_count(y) == fwa_tensor_count(x), FWA_ERROR, "y: got %lld elements, expected x's %lld",
              (long long)fwa_tensor_count(y), (long long)fwa_tensor_count(x));
    FWA_CHECK(fwa_tensor_dense(y) && fwa_tensor_dense(x), FWA_ERROR, "got rows with gaps, expected dense tensors");
    FWA_CHECK((y.data && x.data) || fwa_tensor_count(x) == 0, FWA_ERROR, "got an absent tensor, expected x and y");
    return FWA_OK;
}

// double to float to odd: the last bit tells of what was cut off, so that a second rounding to bf16 is right.
static float float_to_odd(double value) {
    float nearest = (float)value;
    if ((double)nearest == value || value != value) return nearest;
    uint32_t bits;
    memcpy(&bits, &nearest, sizeof bits);
    if (bits & 1u) return nearest;
    bits += fabs((double)nearest) < fabs(value) ? 1u : -1u;
    memcpy(&nearest, &bits, sizeof nearest);
    return nearest;
}

static double cast_get(fwa_tensor x, int64_t i) {
    if (x.dtype == FWA_F64) return ((const double *)x.data)[i];
    if (x.dtype == FWA_F32) return (double)((const float *)x.data)[i];
    return (double)fwa_bf16_to_float(((const uint16_t *)x.data)[i]);
}

static void cast_set(fwa_tensor y, int64_t i, double value) {
    if (y.dtype == FWA_F64)
        ((double *)y.data)[i] = value;
    else if (y.dtype == FWA_F32)
        ((float *)y.data)[i] = (float)value;
    else
        ((uint16_t *)y.data)[i] = fwa_bf16_from_float(float_to_odd(value));
}

fwa_status FWA_T(fwa_cast_cpu)(fwa_stream *stream, fwa_tensor y, fwa_tensor x) {
    (void)stream;
    FWA_TRY(check_same_count(y, x));
    FWA_CHECK(x.dtype <= FWA_BF16 && y.dtype <= FWA_BF16, FWA_UNSUPPORTED,
              "cast: got %s to %s, expected f64, f32 or bf16", fwa_dtype_name(x.dtype), fwa_dtype_name(y.dtype));
    int64_t n = fwa_tensor_count(x);
    if (x.dtype == y.dtype) {
        if (n > 0) memmove(y.data, x.data, fwa_tensor_bytes(x));
        return FWA_OK;
    }
#pragma omp parallel for if (fwa_parallel(2 * n))
    for (int64_t i = 0; i < n; i++) cast_set(y, i, cast_get(x, i));
    return FWA_OK;
}

fwa_status FWA_T(fwa_add_cpu)(fwa_stream *stream, fwa_tensor y, fwa_tensor x) {
    (void)stream;
    FWA_TRY(check_same_count(y, x));
    FWA_CHECK(x.dtype == FWA_REAL_DTYPE && y.dtype == FWA_REAL_DTYPE, FWA_ERROR, "add: got %s += %s, expected %s",
              fwa_dtype_name(y.dtype), fwa_dtype_name(x.dtype), fwa_dtype_name(FWA_REAL_DTYPE));
    int64_t n = fwa_tensor_count(x);
    real *out = y.data;
    const real *in = x.data;
#pragma omp parallel for simd if (parallel : fwa_parallel(n))
    for (int64_t i = 0; i < n; i++) out[i] += in[i];
    return FWA_OK;
}

#define BLOCK  4096 // elements of a partial sum
#define BLOCKS 256  // partial sums of a round

static double block_square(const real *x, int64_t n) {
    double sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < n; i++) sum += (double)x[i] * (double)x[i];
    return sum;
}

fwa_status FWA_T(fwa_square_accumulate_cpu)(fwa_stream *stream, fwa_step_state *state, fwa_tensor x) {
    (void)stream;
    FWA_CHECK(x.dtype == FWA_REAL_DTYPE && fwa_tensor_dense(x), FWA_ERROR, "x: got %s%s, expected a dense %s tensor",
              fwa_dtype_name(x.dtype), fwa_tensor_dense(x) ? "" : " with gaps", fwa_dtype_name(FWA_REAL_DTYPE));
    int64_t n = fwa_tensor_count(x);
    FWA_CHECK(x.data || n == 0, FWA_ERROR, "x: got an absent tensor");
    const real *in = x.data;
    double total = 0;
    for (int64_t start = 0; start < n; start += BLOCK * BLOCKS) {
        double partial[BLOCKS];
        int64_t blocks = fwa_min(BLOCKS, fwa_ceil_div(n - start, BLOCK));
#pragma omp parallel for if (fwa_parallel(blocks * BLOCK))
        for (int64_t i = 0; i < blocks; i++) {
            int64_t from = start + i * BLOCK;
            partial[i] = block_square(in + from, fwa_min(BLOCK, n - from));
        }
        for (int64_t i = 0; i < blocks; i++) total += partial[i];
    }
    state->grad_square += total;
    return FWA_OK;
}
