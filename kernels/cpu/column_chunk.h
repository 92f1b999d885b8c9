// The chunk form of the column core (and, with one chunk, its parallel form), and the blocks of 16 steps it is made of.
//
// What stands in the state after step i of a chunk is kept as coefficients of the keys, per value column:
//
//   S_i = S diag(h_i) + sum_{s<=i} x_s (z_s^i)^T      z_s^i = (gamma_{s+1} o .. o gamma_i) o w_s o r_s
//
// and the gradient of S_i, from what comes after it, as coefficients of later queries and keys:
//
//   dS_i = dS diag(e_i) + sum_{t>=i} q_t (yo_t^i)^T - sum_{t>i} x_t (yr_t^i)^T
//
// with yo_t^i = (gamma_{i+1} o .. o gamma_t) o d_o_t and yr_t^i = (gamma_{i+1} o .. o gamma_{t-1}) o dr_t. Between
// blocks these coefficients are brought to the state at the block's edge, its reference, so that all columns share
// products with X X^T and Q X^T; inside a block every column is stepped. Only products of decays occur: nothing is
// exponentiated or divided, and long decays underflow to 0.
#ifndef FWA_KERNELS_CPU_COLUMN_CHUNK_H
#define FWA_KERNELS_CPU_COLUMN_CHUNK_H

#include "kernels/cpu/core.h"

#define FWA_COLUMN_BLOCK 16

// One block: c steps of V columns. G and P are rows of X X^T and Q X^T with stride ld, from the block's first column.
typedef struct fwa_column_block {
    int64_t c, V, ld;
    bool delta, before;
    const uint8_t *drop;     // [c]
    const real *G, *P;       // [c,c]
    const real *w, *gamma;   // [c,V]
    const real *seen, *read; // [c,V]: S^T x and S^T q of the state before the block; seen: delta only
} fwa_column_block;

// Gradients of a block.
typedef struct fwa_column_block_grads {
    const real *d_o;   // [c,V]
    real *a;           // [c,V]: x_s^T dS behind the block in; destroyed
    real *a_state;     // [V]: sum over k of dS behind the block o S before it in; destroyed
    real *dr;          // [c,V] overwritten
    real *dw, *dgamma; // [c,V] overwritten
    real *N, *M;       // [c,c], stride ld, lower: z_s^{i-1} . dr_i for s < i, and what o_i reads of z_s times d_o_i
} fwa_column_block_grads;

size_t FWA_T(fwa_column_block_scratch)(int64_t V, bool backward);
// r [c,V]: v in, residuals out (additive: stays); o [c,V] overwritten.
void FWA_T(fwa_column_block_forward)(const fwa_column_block *block, real *r, real *o, fwa_bump scratch);
void FWA_T(fwa_column_block_backward)(const fwa_column_block *block, const real *r, const fwa_column_block_grads *grads,
                                      fwa_bump scratch);

int64_t FWA_T(fwa_column_chunk_saved)(const fwa_core_task *task, bool delta);
size_t FWA_T(fwa_column_chunk_scratch)(const fwa_core_task *task, bool delta, bool backward);
void FWA_T(fwa_column_chunk_forward)(const fwa_core_task *task, bool delta);
void FWA_T(fwa_column_chunk_backward)(const fwa_core_task *task, const fwa_core_grads *grads, bool delta);

#endif
