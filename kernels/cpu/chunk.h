// The chunk form of cores with matrix state (and, with one chunk, their parallel form). Additive and delta differ in
// one place: what is written, r, is v itself or the solution of a triangular system. That place is a fwa_chunk_solver.
#ifndef FWA_KERNELS_CPU_CHUNK_H
#define FWA_KERNELS_CPU_CHUNK_H

#include "kernels/cpu/mask.h"

// One chunk. c steps; m >= c rows of x and v, the last c of them its own.
typedef struct fwa_tile {
    int64_t c, m, K, V;
    bool rounds;
    const real *q, *x, *v; // [c,K], [m,K], [m,V]
    const real *S;         // [K,V] before the chunk
    fwa_mask mask;
} fwa_tile;

// Gradients of one chunk; all of tile size, dx and dv accumulate.
typedef struct fwa_tile_grads {
    real *dx, *dv;
    real *dr;                 // [c,V] in; destroyed
    real *dS;                 // [K,V] of S before the chunk, accumulates
    real *residual, *history; // [c,m], [c]: for the mask
} fwa_tile_grads;

typedef struct fwa_chunk_solver {
    // Bytes that solve (or its backward pass) needs for chunks of C steps.
    size_t (*scratch)(const fwa_core_task *task, bool backward);
    void (*solve)(const fwa_tile *tile, real *r, fwa_bump scratch);
    void (*backward)(const fwa_tile *tile, const real *r, const fwa_tile_grads *grads, fwa_bump scratch);
} fwa_chunk_solver;

// solver NULL: r = v.
int64_t FWA_T(fwa_chunk_saved)(const fwa_core_task *task, const fwa_chunk_solver *solver);
size_t FWA_T(fwa_chunk_scratch)(const fwa_core_task *task, const fwa_chunk_solver *solver, bool backward);
void FWA_T(fwa_chunk_forward)(const fwa_core_task *task, const fwa_chunk_solver *solver);
void FWA_T(fwa_chunk_backward)(const fwa_core_task *task, const fwa_core_grads *grads, const fwa_chunk_solver *solver);

#endif
