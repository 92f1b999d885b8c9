// A few steps of the window core, given the state S before them. In the block, with x_j the rows that its windows
// reach:
//
//   S_i = g_i S + sum_j x_j d_{i,j}^T                     g_i = gamma_i g_{i-1}, d_i = gamma_i d_{i-1} + w_i r_i on I_i
//   r_{i,j} = v_j - g_{i-1} S^T x_j - sum_l (x_j . x_l) d_{i-1,l}      for j in I_i: all residuals at S_{i-1}
//   o_i = g_i S^T q_i + sum_l (q_i . x_l) d_{i,l}                      before: with i-1 for i
//
// g_{-1} = 1, d_{-1} = 0; a dropped state sets both to 0 before the step. Only products of decays occur.
#ifndef FWA_KERNELS_CPU_WINDOW_BLOCK_H
#define FWA_KERNELS_CPU_WINDOW_BLOCK_H

#include "kernels/cpu/core.h"

typedef struct fwa_window_block {
    int64_t c, rows, own, V; // steps, rows, row of the first step's pair
    int64_t first_row;       // row 0 among the rows of the task
    const int64_t *first;    // [c], as in fwa_core_task; also drop, w, gamma
    const uint8_t *drop;
    const real *w, *gamma;
    bool before;
    const real *v;     // [rows,V]
    const real *G;     // [rows,rows] x_j . x_l, rows `ld` apart
    const real *P;     // [c,rows] q_i . x_l, rows `ld` apart
    int64_t ld;        // of G and P, and of their gradients
    real *base, *read; // [rows,V] S^T x_j, [c,V] S^T q_i
    real *g, *d, *r;   // [c+1] g_{i-1}, [c+1,rows,V] d_{i-1}, [c,rows,V]: written by the forward pass
} fwa_window_block;

typedef struct fwa_window_block_grads {
    const real *d_o;     // [c,V]
    real dg, *dd;        // of g and d [rows,V] behind the last step; destroyed
    real *dr;            // [rows,V] work
    real *dbase, *dread; // overwritten
    real *dG, *dP, *dv;  // +=
    real *dw, *dgamma;   // [c] overwritten
} fwa_window_block_grads;

// o [c,V], NULL: only g, d, r.
void FWA_T(fwa_window_block_forward)(const fwa_window_block *block, real *o);
// After a forward pass over the same block.
void FWA_T(fwa_window_block_backward)(const fwa_window_block *block, fwa_window_block_grads *grads);

#endif
