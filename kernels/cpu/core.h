// What a core is: the part of a rule that moves information between tokens, for one sequence and one value head.
//
//   S_t = gamma_t S_{t-1} + w_t sum_{j in I_t} x_j r_j^T      o_t = S_t^T q_t
//   additive: r_j = v_j      delta: r_t = v_t - S_{t-1}^T x_t (or against gamma_t S_{t-1}), I_t = {t}
//   window: r_j = v_j - S_{t-1}^T x_j for every j in I_t
//   column: as additive or delta with w and gamma for every value column, I_t = {t}
//   attention: o_t = sum_j softmax_j(scale q_t . x_j) v_j over j in I_t; no S
//
// Pairs (x_j, v_j) are rows: n rows of the tail, then one a step, so that step t (from 0) owns row n + t. I_t is the
// rows first[t] .. n+t. The driver (mixer_common.h) gathers heads into these arrays and scatters the results.
#ifndef FWA_KERNELS_CPU_CORE_H
#define FWA_KERNELS_CPU_CORE_H

#include "core/shape.h"
#include "kernels/cpu/bump.h"
#include "kernels/cpu/real.h"
#include "kernels/rule.h"

typedef struct fwa_core_task {
    int64_t T, n, K, V;
    int64_t halo;  // no window reaches further back than this many rows
    int64_t chunk; // C; in the parallel form n + T, which is all rows
    fwa_form form;
    bool save;             // forward: write `saved`
    bool before;           // o_t reads S_{t-1}
    bool rounds;           // rounded.h; chunk form
    bool decay_first;      // delta: the residual is taken against gamma_t S_{t-1}
    real scale;            // attention
    const int64_t *first;  // [T], never decreasing; n+t+1 where step t has no pair
    const uint8_t *drop;   // [T], 1 where S is emptied before step t
    const real *q, *x, *v; // [T,K], [n+T,K], [n+T,V]
    const real *w, *gamma; // [T]; column: [T,V]
    real *o;               // [T,V], overwritten
    real *S;               // [K,V]: before the first step, then after the last
    real *saved;           // of the core: forward to backward
    fwa_bump scratch;      // of the core: within one pass
} fwa_core_task;

// Steps of a whole chunk.
static inline int64_t fwa_core_chunk(const fwa_core_task *task) {
    return fwa_min(task->chunk, task->T);
}

typedef struct fwa_core_grads {
    const real *d_o;    // [T,V]
    real *dq, *dx, *dv; // +=
    real *dw, *dgamma;  // as w and gamma; overwritten; not by attention
    real *dS;           // of S after the last step, then of S before the first
} fwa_core_grads;

typedef struct fwa_core_impl {
    fwa_core core;                                               // what descriptors of its rules name
    bool rounds;                                                 // can round as a GPU does (rounded.h)
    int64_t (*saved)(const fwa_core_task *task);                 // elements
    size_t (*scratch)(const fwa_core_task *task, bool backward); // bytes
    void (*forward)(const fwa_core_task *task);
    void (*backward)(const fwa_core_task *task, const fwa_core_grads *grads);
} fwa_core_impl;

// Each in core_<core>.c, which says where its forms stand.
extern const fwa_core_impl FWA_T(fwa_core_additive), FWA_T(fwa_core_delta), FWA_T(fwa_core_window),
    FWA_T(fwa_core_attention);
extern const fwa_core_impl FWA_T(fwa_core_column_additive), FWA_T(fwa_core_column_delta);

#endif
