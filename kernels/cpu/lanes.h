// Loops over contiguous rows that compilers turn into vector code, with one order of summation whatever the vector
// width.
#ifndef FWA_KERNELS_CPU_LANES_H
#define FWA_KERNELS_CPU_LANES_H

#include <stdbool.h>
#include <string.h>

#include "kernels/cpu/real.h"

#define FWA_LANES 16

static inline real fwa_lanes_sum(real lane[FWA_LANES]) {
    for (int half = FWA_LANES / 2; half > 0; half /= 2)
        for (int l = 0; l < half; l++) lane[l] += lane[l + half];
    return lane[0];
}

// a . b
static inline real fwa_dot(const real *restrict a, const real *restrict b, int64_t n) {
    real lane[FWA_LANES] = {0};
    int64_t i = 0;
    for (; i + FWA_LANES <= n; i += FWA_LANES)
        for (int l = 0; l < FWA_LANES; l++) lane[l] += a[i + l] * b[i + l];
    for (int l = 0; i + l < n; l++) lane[l] += a[i + l] * b[i + l];
    return fwa_lanes_sum(lane);
}

// sum of a
static inline real fwa_sum(const real *a, int64_t n) {
    real lane[FWA_LANES] = {0};
    int64_t i = 0;
    for (; i + FWA_LANES <= n; i += FWA_LANES)
        for (int l = 0; l < FWA_LANES; l++) lane[l] += a[i + l];
    for (int l = 0; i + l < n; l++) lane[l] += a[i + l];
    return fwa_lanes_sum(lane);
}

// y += a x
static inline void fwa_axpy(real *restrict y, real a, const real *restrict x, int64_t n) {
    for (int64_t i = 0; i < n; i++) y[i] += a * x[i];
}

// y = a x
static inline void fwa_scaled(real *restrict y, real a, const real *restrict x, int64_t n) {
    for (int64_t i = 0; i < n; i++) y[i] = a * x[i];
}

// y = a y
static inline void fwa_scale(real *y, real a, int64_t n) {
    for (int64_t i = 0; i < n; i++) y[i] *= a;
}

// y = a o x, element by element
static inline void fwa_multiplied(real *restrict y, const real *restrict a, const real *restrict x, int64_t n) {
    for (int64_t i = 0; i < n; i++) y[i] = a[i] * x[i];
}

// y = a o y
static inline void fwa_multiply(real *restrict y, const real *restrict a, int64_t n) {
    for (int64_t i = 0; i < n; i++) y[i] *= a[i];
}

// y += a o x
static inline void fwa_multiply_add(real *restrict y, const real *restrict a, const real *restrict x, int64_t n) {
    for (int64_t i = 0; i < n; i++) y[i] += a[i] * x[i];
}

static inline void fwa_copy(real *restrict y, const real *restrict x, int64_t n) {
    memcpy(y, x, (size_t)n * sizeof *y);
}

static inline void fwa_fill(real *y, real a, int64_t n) {
    for (int64_t i = 0; i < n; i++) y[i] = a;
}

static inline void fwa_zero(real *y, int64_t n) {
    memset(y, 0, (size_t)n * sizeof *y);
}

// c[M,N] = alpha op(a) op(b) + beta c, op = transpose where ta, tb; all row-major. beta = 0 does not read c. inner = 0
// leaves c as it is, whatever beta.
static inline void fwa_tile_gemm(real *c, int64_t ldc, const real *a, int64_t lda, bool ta, const real *b, int64_t ldb,
                                 bool tb, int64_t M, int64_t N, int64_t inner, real alpha, real beta) {
    if (M == 0 || N == 0 || inner == 0) return;
    FWA_BLAS(gemm)
    (CblasRowMajor, ta ? CblasTrans : CblasNoTrans, tb ? CblasTrans : CblasNoTrans, (int)M, (int)N, (int)inner, alpha,
     a, (int)lda, b, (int)ldb, beta, c, (int)ldc);
}

// The same for a dense c and dense factors.
static inline void fwa_tile_product(real *c, const real *a, bool ta, const real *b, bool tb, int64_t M, int64_t N,
                                    int64_t inner, real alpha, real beta) {
    fwa_tile_gemm(c, N, a, ta ? M : inner, ta, b, tb ? inner : N, tb, M, N, inner, alpha, beta);
}

#endif
