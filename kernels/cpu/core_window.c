// The window core: S_t = gamma_t S_{t-1} + w_t sum_{j in I_t} x_j r_{t,j}^T, r_{t,j} = v_j - S_{t-1}^T x_j, all
// residuals of a step taken at S_{t-1}.
//
// In a chunk S_i = h_i S + X^T Z_i: the unknowns are the coefficients Z [m,V] of the chunk's m distinct rows of X,
// whatever the window, and every x_j . x_l is computed once. Blocks of a few steps need only the rows that their
// windows reach (window_block.h); between blocks, with S^T X = h X S + (X X^T) Z and S^T Q likewise, work is matrix
// products. Saved for the backward pass: S before every chunk. The backward pass computes Z before every block again.
#include "core/shape.h"
#include "kernels/cpu/lanes.h"
#include "kernels/cpu/steps.h"
#include "kernels/cpu/window_block.h"

#define BLOCK 16

typedef struct window_work {
    real *G, *P;   // [m,m] X X^T, [C,m] Q X^T
    real *XS, *QS; // [m,V], [C,V]
    real *Z, *h;   // [m,V], [1]; backward: before every block and behind the last
    // Of a block of b steps and p rows (window_block.h): [p,V], [b,V]; [b+1], [b+1,p,V], [b,p,V].
    real *base, *read, *g, *d, *r;
    // Backward.
    real *dG, *dP, *dXS, *dQS;     // as G, P, XS, QS
    real *dZ;                      // [m,V]
    real *dd, *dr, *dbase, *dread; // of a block: [p,V], but dread [b,V]
    size_t bytes;
} window_work;

// c steps; m rows of x and v, the last c of them their own.
typedef struct window_chunk {
    int64_t t0, c, m; // t0: first step
    int64_t off;      // rows before the chunk's own
    int64_t first_row;
    const real *q, *x, *v, *S; // [c,K], [m,K], [m,V]; [K,V] before the chunk
} window_chunk;

static window_work plan_work(const fwa_core_task *task, fwa_bump bump, bool backward) {
    const int64_t C = fwa_core_chunk(task), V = task->V, rows = task->n + task->T, m = fwa_min(C + task->halo, rows);
    const int64_t b = fwa_min(BLOCK, C), p = fwa_min(b + task->halo, rows);
    const int64_t states = backward ? fwa_ceil_div(C, BLOCK) + 1 : 1;
    window_work work = {0};
    work.G = FWA_TAKE(&bump, real, m * m);
    work.P = FWA_TAKE(&bump, real, C * m);
    work.XS = FWA_TAKE(&bump, real, m * V);
    work.QS = FWA_TAKE(&bump, real, C * V);
    work.Z = FWA_TAKE(&bump, real, states * m * V);
    work.h = FWA_TAKE(&bump, real, states);
    work.base = FWA_TAKE(&bump, real, p * V);
    work.read = FWA_TAKE(&bump, real, b * V);
    work.g = FWA_TAKE(&bump, real, b + 1);
    work.d = FWA_TAKE(&bump, real, (b + 1) * p * V);
    work.r = FWA_TAKE(&bump, real, b * p * V);
    if (backward) {
        work.dG = FWA_TAKE(&bump, real, m * m);
        work.dP = FWA_TAKE(&bump, real, C * m);
        work.dXS = FWA_TAKE(&bump, real, m * V);
        work.dQS = FWA_TAKE(&bump, real, C * V);
        work.dZ = FWA_TAKE(&bump, real, m * V);
        work.dd = FWA_TAKE(&bump, real, p * V);
        work.dr = FWA_TAKE(&bump, real, p * V);
        work.dbase = FWA_TAKE(&bump, real, p * V);
        work.dread = FWA_TAKE(&bump, real, b * V);
    }
    work.bytes = bump.used;
    return work;
}

static window_chunk make_chunk(const fwa_core_task *task, int64_t t0, const real *S, const window_work *work) {
    window_chunk chunk = {.t0 = t0, .c = fwa_min(fwa_core_chunk(task), task->T - t0), .S = S};
    const int64_t own = task->n + t0, K = task->K, V = task->V;
    chunk.first_row = fwa_min(task->first[t0], own);
    chunk.off = own - chunk.first_row;
    chunk.m = chunk.off + chunk.c;
    chunk.q = task->q + t0 * K;
    chunk.x = task->x + chunk.first_row * K;
    chunk.v = task->v + chunk.first_row * V;
    fwa_tile_product(work->G, chunk.x, false, chunk.x, true, chunk.m, chunk.m, K, 1, 0);
    fwa_tile_product(work->P, chunk.q, false, chunk.x, true, chunk.c, chunk.m, K, 1, 0);
    fwa_tile_product(work->XS, chunk.x, false, S, false, chunk.m, V, K, 1, 0);
    fwa_tile_product(work->QS, chunk.q, false, S, false, chunk.c, V, K, 1, 0);
    return chunk;
}

// Steps from i0 of the chunk, after h S + X^T Z; only the first off + i0 rows of Z are not 0.
static fwa_window_block make_block(const fwa_core_task *task, const window_chunk *chunk, const window_work *work,
                                   int64_t i0, const real *Z, real h) {
    const int64_t c = fwa_min(BLOCK, chunk->c - i0), t = chunk->t0 + i0, own = chunk->off + i0, m = chunk->m;
    const int64_t V = task->V, row = fwa_min(task->first[t] - chunk->first_row, own), rows = own + c - row;
    const real *G = work->G + row * m, *P = work->P + i0 * m;
    fwa_scaled(work->base, h, work->XS + row * V, rows * V);
    fwa_tile_gemm(work->base, V, G, m, false, Z, V, false, rows, V, own, 1, 1);
    fwa_scaled(work->read, h, work->QS + i0 * V, c * V);
    fwa_tile_gemm(work->read, V, P, m, false, Z, V, false, c, V, own, 1, 1);
    return (fwa_window_block){
        .c = c,
        .rows = rows,
        .own = own - row,
        .V = V,
        .first_row = chunk->first_row + row,
        .first = task->first + t,
        .drop = task->drop + t,
        .w = task->w + t,
        .gamma = task->gamma + t,
        .before = task->before,
        .v = chunk->v + row * V,
        .G = G + row,
        .P = P + row,
        .ld = m,
        .base = work->base,
        .read = work->read,
        .g = work->g,
        .d = work->d,
        .r = work->r,
    };
}

// Z = g Z + d behind the block, into `next`, which may be Z itself.
static void leave_block(const window_chunk *chunk, const fwa_window_block *block, int64_t i0, const real *Z,
                        real *next) {
    const int64_t V = block->V, own = chunk->off + i0;
    if (next != Z) memcpy(next, Z, (size_t)(own * V) * sizeof *next);
    fwa_scale(next, block->g[block->c], own * V);
    fwa_zero(next + own * V, block->c * V);
    fwa_axpy(next + (own - block->own) * V, 1, block->d + block->c * block->rows * V, block->rows * V);
}

// Runs the blocks of a chunk. o NULL: only Z and h, kept for every block. Returns the block count.
static int64_t run_blocks(const fwa_core_task *task, const window_chunk *chunk, const window_work *work, real *o) {
    const int64_t V = task->V, stride = o ? 0 : chunk->m * V;
    int64_t index = 0;
    fwa_zero(work->Z, chunk->off * V);
    work->h[0] = 1;
    for (int64_t i0 = 0; i0 < chunk->c; i0 += BLOCK, index++) {
        real *Z = work->Z + index * stride, *h = work->h + (o ? 0 : index);
        const fwa_window_block block = make_block(task, chunk, work, i0, Z, *h);
        FWA_T(fwa_window_block_forward)(&block, o ? o + i0 * V : NULL);
        leave_block(chunk, &block, i0, Z, Z + stride);
        h[o ? 0 : 1] = block.g[block.c] * *h;
    }
    return index;
}

static void chunks_forward(const fwa_core_task *task) {
    const int64_t K = task->K, V = task->V, C = fwa_core_chunk(task);
    const window_work work = plan_work(task, task->scratch, false);
    for (int64_t t0 = 0; t0 < task->T; t0 += C) {
        if (task->save) fwa_copy(task->saved + t0 / C * K * V, task->S, K * V);
        const window_chunk chunk = make_chunk(task, t0, task->S, &work);
        run_blocks(task, &chunk, &work, task->o + t0 * V);
        fwa_tile_product(task->S, chunk.x, true, work.Z, false, K, V, chunk.m, 1, work.h[0]);
    }
}

// From the gradients of Z and h behind a block to those before it; gathers dG, dP, dXS, dQS.
static void block_backward(const fwa_core_task *task, const window_chunk *chunk, const window_work *work,
                           const fwa_core_grads *grads, int64_t i0, const real *Z, real h, real *dh) {
    const fwa_window_block block = make_block(task, chunk, work, i0, Z, h);
    const int64_t V = task->V, m = chunk->m, c = block.c, rows = block.rows, own = chunk->off + i0;
    const int64_t row = own - block.own, t = chunk->t0 + i0;
    real *dG = work->dG + row * m, *dP = work->dP + i0 * m;
    FWA_T(fwa_window_block_forward)(&block, NULL);
    const real g = block.g[c];
    fwa_copy(work->dd, work->dZ + row * V, rows * V);
    fwa_window_block_grads of = {
        .d_o = grads->d_o + t * V,
        .dg = fwa_dot(work->dZ, Z, own * V) + *dh * h,
        .dd = work->dd,
        .dr = work->dr,
        .dbase = work->dbase,
        .dread = work->dread,
        .dG = dG + row,
        .dP = dP + row,
        .dv = grads->dv + block.first_row * V,
        .dw = grads->dw + t,
        .dgamma = grads->dgamma + t,
    };
    FWA_T(fwa_window_block_backward)(&block, &of);
    fwa_scale(work->dZ, g, own * V);
    fwa_tile_gemm(work->dZ, V, work->G + row * m, m, true, work->dbase, V, false, own, V, rows, 1, 1);
    fwa_tile_gemm(work->dZ, V, work->P + i0 * m, m, true, work->dread, V, false, own, V, c, 1, 1);
    fwa_tile_gemm(dG, m, work->dbase, V, false, Z, V, true, rows, own, V, 1, 1);
    fwa_tile_gemm(dP, m, work->dread, V, false, Z, V, true, c, own, V, 1, 1);
    fwa_axpy(work->dXS + row * V, h, work->dbase, rows * V);
    fwa_scaled(work->dQS + i0 * V, h, work->dread, c * V);
    *dh = g * *dh + fwa_dot(work->dbase, work->XS + row * V, rows * V) + fwa_dot(work->dread, work->QS + i0 * V, c * V);
}

// The products that made G, P, XS, QS; dS becomes that of S before the chunk. h: behind the last block.
static void products_backward(const fwa_core_task *task, const window_chunk *chunk, const window_work *work,
                              const fwa_core_grads *grads, real h) {
    const int64_t K = task->K, V = task->V, m = chunk->m, c = chunk->c;
    real *dx = grads->dx + chunk->first_row * K, *dq = grads->dq + chunk->t0 * K;
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j <= i; j++) {
            const real sum = work->dG[i * m + j] + work->dG[j * m + i];
            work->dG[i * m + j] = work->dG[j * m + i] = sum;
        }
    fwa_tile_product(dx, work->dG, false, chunk->x, false, m, K, m, 1, 1);
    fwa_tile_product(dx, work->dP, true, chunk->q, false, m, K, c, 1, 1);
    fwa_tile_product(dx, work->dXS, false, chunk->S, true, m, K, V, 1, 1);
    fwa_tile_product(dq, work->dP, false, chunk->x, false, c, K, m, 1, 1);
    fwa_tile_product(dq, work->dQS, false, chunk->S, true, c, K, V, 1, 1);
    fwa_tile_product(grads->dS, chunk->x, true, work->dXS, false, K, V, m, 1, h);
    fwa_tile_product(grads->dS, chunk->q, true, work->dQS, false, K, V, c, 1, 1);
}

static void chunks_backward(const fwa_core_task *task, const fwa_core_grads *grads) {
    const int64_t K = task->K, V = task->V, C = fwa_core_chunk(task), chunks = fwa_ceil_div(task->T, C);
    const window_work work = plan_work(task, task->scratch, true);
    for (int64_t i = chunks - 1; i >= 0; i--) {
        const window_chunk chunk = make_chunk(task, i * C, task->saved + i * K * V, &work);
        const int64_t m = chunk.m, blocks = run_blocks(task, &chunk, &work, NULL);
        real dh = fwa_dot(chunk.S, grads->dS, K * V);
        fwa_zero(work.dG, m * m);
        fwa_zero(work.dP, chunk.c * m);
        fwa_zero(work.dXS, m * V);
        fwa_tile_product(work.dZ, chunk.x, false, grads->dS, false, m, V, K, 1, 0);
        fwa_tile_product(grads->dx + chunk.first_row * K, work.Z + blocks * m * V, false, grads->dS, true, m, K, V, 1,
                         1);
        for (int64_t j = blocks - 1; j >= 0; j--)
            block_backward(task, &chunk, &work, grads, j * BLOCK, work.Z + j * m * V, work.h[j], &dh);
        products_backward(task, &chunk, &work, grads, work.h[blocks]);
    }
}

static int64_t window_saved(const fwa_core_task *task) {
    return task->form == FWA_FORM_RECURRENT ? FWA_T(fwa_steps_saved)(task)
                                            : fwa_ceil_div(task->T, fwa_core_chunk(task)) * task->K * task->V;
}

static size_t window_scratch(const fwa_core_task *task, bool backward) {
    fwa_bump none = {0};
    return task->form == FWA_FORM_RECURRENT ? FWA_T(fwa_steps_scratch)(task, backward)
                                            : plan_work(task, none, backward).bytes;
}

static void window_forward(const fwa_core_task *task) {
    if (task->form == FWA_FORM_RECURRENT)
        FWA_T(fwa_steps_forward)(task, true);
    else
        chunks_forward(task);
}

static void window_backward(const fwa_core_task *task, const fwa_core_grads *grads) {
    if (task->form == FWA_FORM_RECURRENT)
        FWA_T(fwa_steps_backward)(task, grads, true);
    else
        chunks_backward(task, grads);
}

const fwa_core_impl FWA_T(fwa_core_window) = {
    .core = FWA_CORE_WINDOW,
    .saved = window_saved,
    .scratch = window_scratch,
    .forward = window_forward,
    .backward = window_backward,
};
