// Products of a state S [K,V] with one vector, for forms that go step by step.
#ifndef FWA_KERNELS_CPU_STATE_H
#define FWA_KERNELS_CPU_STATE_H

#include "kernels/cpu/lanes.h"

// y[V] = S^T x
static inline void fwa_state_read(const real *S, const real *x, real *y, int64_t K, int64_t V) {
    fwa_zero(y, V);
    for (int64_t k = 0; k < K; k++) fwa_axpy(y, x[k], S + k * V, V);
}

// y[K] += a S u
static inline void fwa_state_read_transposed(const real *S, const real *u, real a, real *y, int64_t K, int64_t V) {
    for (int64_t k = 0; k < K; k++) y[k] += a * fwa_dot(S + k * V, u, V);
}

// S += a x u^T
static inline void fwa_state_add(real *S, real a, const real *x, const real *u, int64_t K, int64_t V) {
    for (int64_t k = 0; k < K; k++) fwa_axpy(S + k * V, a * x[k], u, V);
}

#endif
