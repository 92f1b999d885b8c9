// What a rate is: how a rule makes the write weight w_t and the decay gamma_t of every step out of its scalars (and of
// x), and how gradients go back. One sequence, one value head. The cores know nothing of beta and lambda.
#ifndef FWA_KERNELS_CPU_RATE_H
#define FWA_KERNELS_CPU_RATE_H

#include "kernels/cpu/real.h"
#include "kernels/rule.h"

typedef struct fwa_rate_task {
    const fwa_mixer_options *options;
    int64_t T, n, K;
    const int64_t *first;                  // [T] first pair of the window (core.h); n+t+1: no pair, nothing is written
    const real *x;                         // [n+T,K]
    const real *beta, *lambda, *log_decay; // [T]; NULL where the rule has no such input
    double *norms, *dnorms;                // [n+T] work: |x_j|^2 and its gradient
    real *w, *gamma;                       // [T] forward: overwritten
    const real *dw, *dgamma;               // [T] backward
    real *dbeta, *dlambda, *dlog_decay;    // [T] overwritten where the input is present
    real *dx;                              // [n+T,K] +=
} fwa_rate_task;

typedef struct fwa_rate_impl {
    void (*forward)(const fwa_rate_task *task);
    void (*backward)(const fwa_rate_task *task);
} fwa_rate_impl;

extern const fwa_rate_impl FWA_T(fwa_rate_falcon); // energy, ridge, normalised step, clamp (rules.md §1)
extern const fwa_rate_impl FWA_T(fwa_rate_none);   // attention: no weights

#endif
