// One head of one sequence as contiguous arrays: the layout of a thread's scratch memory, and the moves between it and
// the tensors of a call. Value head h reads query/key head hq = h / (H/Hq).
//
// Rows of x and v: n rows of the tail, then one a step. Under next_latent row n + t is k_{t-1}; a row without a pair
// (the first of a fresh sequence or document) is 0. With a normalised read V counts one more column, of ones, whose
// state is z.
#ifndef FWA_KERNELS_CPU_HEAD_H
#define FWA_KERNELS_CPU_HEAD_H

#include "kernels/cpu/core.h"
#include "kernels/cpu/rate.h"

typedef struct fwa_head {
    const fwa_rule *rule;
    const fwa_mixer_call *call;
    int64_t rows;                        // n + T
    bool shifted;                        // x_t = k_{t-1}
    int64_t columns;                     // of beta, w, gamma: V where beta is given per value channel, else 1
    fwa_core_task task;                  // sizes; pointers are set for each head
    real *q, *x, *v, *o, *S, *w, *gamma; // shapes of fwa_core_task, and below of fwa_core_grads
    real *scalars[3];                    // beta [T,columns], lambda, log_decay [T]
    int64_t *first;
    uint8_t *drop;
    // Backward only.
    real *d_o, *dq, *dx, *dv, *dS, *dw, *dgamma;
    real *dscalars[3];
    double *energy, *denergy; // [T] of the rate; energy: forward too
    size_t bytes;             // of the layout, without the scratch of rate and core
} fwa_head;

// Lays a head out in `memory` (NULL: sizes only); what is left of it is the rate's and the core's
// (task.scratch).
fwa_head FWA_T(fwa_head_plan)(const fwa_rule *rule, const fwa_mixer_call *call, bool decay_first, bool backward,
                              char *memory);
// Windows and document starts of sequence b.
void FWA_T(fwa_head_windows)(fwa_head *head, int64_t b);
// q, x of query/key head hq; then v, scalars, S of value head h.
void FWA_T(fwa_head_gather_keys)(const fwa_head *head, int64_t b, int64_t hq);
void FWA_T(fwa_head_gather_values)(const fwa_head *head, int64_t b, int64_t h);
// o and the states that leave. `raw` [T,V], NULL or where o is kept before the normalised read divides it.
void FWA_T(fwa_head_scatter_values)(const fwa_head *head, int64_t b, int64_t h, real *raw);
void FWA_T(fwa_head_scatter_keys)(const fwa_head *head, int64_t b, int64_t hq);
// The same for gradients.
void FWA_T(fwa_head_gather_grads)(const fwa_head *head, const fwa_mixer_grads *grads, int64_t b, int64_t h,
                                  const real *raw);
void FWA_T(fwa_head_scatter_value_grads)(const fwa_head *head, const fwa_mixer_grads *grads, int64_t b, int64_t h);
void FWA_T(fwa_head_scatter_key_grads)(const fwa_head *head, const fwa_mixer_grads *grads, int64_t b, int64_t hq);

#endif
