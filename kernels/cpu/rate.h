// What a rate is: how a rule makes the write weight w_t and the decay gamma_t of every step out of its scalars (and of
// x), and how gradients go back. One sequence, one value head. The cores know nothing of beta and lambda. Rules with a
// beta for every value channel have V columns of beta, w and gamma, the others one.
#ifndef FWA_KERNELS_CPU_RATE_H
#define FWA_KERNELS_CPU_RATE_H

#include "kernels/cpu/real.h"
#include "kernels/rule.h"

typedef struct fwa_rate_task {
    const fwa_mixer_options *options;
    int64_t T, n, K;
    int64_t columns;                       // W of beta, w, gamma: 1, or V
    const int64_t *first;                  // [T] first pair of the window (core.h); n+t+1: no pair, nothing is written
    const real *x;                         // [n+T,K]
    const real *beta, *lambda, *log_decay; // [T,W], [T], [T]; NULL where the rule has no such input
    bool backward;                         // a backward pass follows this forward pass
    double *energy, *denergy;              // [T] E_t (0 without a pair) and its gradient, summed over value heads
    void *work;                            // of the energy, kept between its forward and its backward pass
    real *w, *gamma;                       // [T,W] forward: overwritten
    const real *dw, *dgamma;               // [T,W] backward
    real *dbeta, *dlambda, *dlog_decay;    // [T,W], [T], [T] overwritten where the input is present
    real *dx;                              // [n+T,K] +=
} fwa_rate_task;

// The energy of a rate: a function of x alone, so it runs once for all value heads of a query/key head, before the
// rate's forward pass and after its backward pass of each of them.
typedef struct fwa_rate_energy {
    size_t (*work)(const fwa_rate_task *task); // bytes
    void (*forward)(const fwa_rate_task *task);
    void (*backward)(const fwa_rate_task *task);
} fwa_rate_energy;

extern const fwa_rate_energy FWA_T(fwa_energy_mean), FWA_T(fwa_energy_top); // energy.c

typedef struct fwa_rate_impl {
    const fwa_rate_energy *energy; // NULL: none
    void (*forward)(const fwa_rate_task *task);
    void (*backward)(const fwa_rate_task *task);
    void (*gates)(const fwa_rate_task *task, fwa_gate_sums *sums); // adds, after the energy's forward pass; NULL: none
} fwa_rate_impl;

// rate_falcon.c: energy, ridge, normalised step, clamp (docs/math/README.md §6), with the mean energy or the largest
// eigenvalue.
extern const fwa_rate_impl FWA_T(fwa_rate_falcon), FWA_T(fwa_rate_falcon_top);
// rate_plain.c: beta and log_decay as they come (docs/math/README.md §7); attention has no weights.
extern const fwa_rate_impl FWA_T(fwa_rate_plain), FWA_T(fwa_rate_none);

#endif
