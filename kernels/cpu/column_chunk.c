// Chunk form of the column core, forward and backward (column_chunk.h). Blocks of 16 steps, first to last; with the
// state before the chunk S, h and Z at the block's first step b as reference, and e, YO, YR behind its last step:
//
//   S^T x_i = h o (X S)_i + (G Z)_i      S^T q_i = h o (Q S)_i + (P Z)_i          G = X X^T, P = Q X^T
//   x_s^T dS = e o (X dS)_s + (P^T YO - G^T YR)_s
//
// Then over the chunk, M and N lower (fwa_column_block_grads), Z behind its end, YO and YR before its beginning:
//
//   dQ = M X + YO S^T      dX = M^T Q - (N + N^T) X + Z dS^T - YR S^T      dS' = e o dS + Q^T YO - X^T YR
//
// Saved for the backward pass: S before every chunk, and R where it is solved for; the rest is computed again.
// Cost of a chunk, forward: 6 C K V + 4 C^2 K + 2 C^2 V operations.
#include "kernels/cpu/column_chunk.h"

#include "core/shape.h"
#include "kernels/cpu/lanes.h"

#define BLOCK FWA_COLUMN_BLOCK

typedef struct chunk_work {
    real *G, *P;              // [C,C]
    real *XS, *QS;            // [C,V]
    real *Z, *h;              // [C,V], [V]
    real *r;                  // [C,V] forward
    real *seen, *read;        // [BLOCK,V] backward
    real *XD, *A;             // [C,V]: X dS, and x_s^T dS at a block's reference
    real *dr, *YO, *YR;       // [C,V]
    real *e, *both, *a_state; // [V]; both: sum over k of S o dS
    real *M, *N;              // [C,C]
    fwa_bump rest;            // the block's
} chunk_work;

// One chunk: c steps and the state before it.
typedef struct column_chunk {
    int64_t c, K, V;
    bool delta, before;
    const uint8_t *drop;   // [c]
    const real *q, *x;     // [c,K]
    const real *w, *gamma; // [c,V]
    const real *S;         // [K,V]
    const chunk_work *work;
} column_chunk;

static chunk_work plan_work(const fwa_core_task *task, fwa_bump bump, bool delta, bool backward) {
    const int64_t C = fwa_core_chunk(task), V = task->V;
    chunk_work work = {0};
    work.P = FWA_TAKE(&bump, real, C * C);
    work.QS = FWA_TAKE(&bump, real, C * V);
    work.Z = FWA_TAKE(&bump, real, C * V);
    work.h = FWA_TAKE(&bump, real, V);
    if (delta) {
        work.G = FWA_TAKE(&bump, real, C * C);
        work.XS = FWA_TAKE(&bump, real, C * V);
    }
    if (!backward) {
        work.r = FWA_TAKE(&bump, real, C * V);
    } else {
        real **rows[] = {&work.XD, &work.A, &work.dr, &work.YO, delta ? &work.YR : NULL};
        real **columns[] = {&work.e, &work.both, &work.a_state};
        for (int i = 0; i < 5; i++)
            if (rows[i]) *rows[i] = FWA_TAKE(&bump, real, C * V);
        for (int i = 0; i < 3; i++) *columns[i] = FWA_TAKE(&bump, real, V);
        work.read = FWA_TAKE(&bump, real, BLOCK * V);
        work.M = FWA_TAKE(&bump, real, C * C);
        if (delta) {
            work.seen = FWA_TAKE(&bump, real, BLOCK * V);
            work.N = FWA_TAKE(&bump, real, C * C);
        }
    }
    work.rest = bump;
    return work;
}

int64_t FWA_T(fwa_column_chunk_saved)(const fwa_core_task *task, bool delta) {
    const int64_t chunks = fwa_ceil_div(task->T, fwa_core_chunk(task));
    return chunks * task->K * task->V + (delta ? task->T * task->V : 0);
}

size_t FWA_T(fwa_column_chunk_scratch)(const fwa_core_task *task, bool delta, bool backward) {
    fwa_bump none = {0};
    return plan_work(task, none, delta, backward).rest.used + FWA_T(fwa_column_block_scratch)(task->V, backward);
}

static column_chunk make_chunk(const fwa_core_task *task, int64_t t0, bool delta, const real *S,
                               const chunk_work *work) {
    const int64_t C = fwa_core_chunk(task), K = task->K, V = task->V;
    return (column_chunk){.c = fwa_min(C, task->T - t0),
                          .K = K,
                          .V = V,
                          .delta = delta,
                          .before = task->before,
                          .drop = task->drop + t0,
                          .q = task->q + t0 * K,
                          .x = task->x + (task->n + t0) * K,
                          .w = task->w + t0 * V,
                          .gamma = task->gamma + t0 * V,
                          .S = S,
                          .work = work};
}

static fwa_column_block make_block(const column_chunk *chunk, int64_t begin, const real *seen, const real *read) {
    const int64_t c = chunk->c, V = chunk->V;
    return (fwa_column_block){.c = fwa_min(BLOCK, c - begin),
                              .V = V,
                              .ld = c,
                              .delta = chunk->delta,
                              .before = chunk->before,
                              .drop = chunk->drop + begin,
                              .G = chunk->delta ? chunk->work->G + begin * c + begin : NULL,
                              .P = chunk->work->P + begin * c + begin,
                              .w = chunk->w + begin * V,
                              .gamma = chunk->gamma + begin * V,
                              .seen = seen,
                              .read = read};
}

// G, P, XS, QS.
static void shared_products(const column_chunk *chunk) {
    const int64_t c = chunk->c, K = chunk->K, V = chunk->V;
    const chunk_work *work = chunk->work;
    fwa_tile_product(work->P, chunk->q, false, chunk->x, true, c, c, K, 1, 0);
    fwa_tile_product(work->QS, chunk->q, false, chunk->S, false, c, V, K, 1, 0);
    if (!chunk->delta) return;
    fwa_tile_product(work->G, chunk->x, false, chunk->x, true, c, c, K, 1, 0);
    fwa_tile_product(work->XS, chunk->x, false, chunk->S, false, c, V, K, 1, 0);
}

// Z_s, s < ref, and h as they stand before step ref.
static void bring_writes(const column_chunk *chunk, int64_t ref, const real *r) {
    const int64_t V = chunk->V;
    real *h = chunk->work->h;
    fwa_fill(h, 1, V);
    for (int64_t s = ref - 1; s >= 0; s--) {
        real *z = chunk->work->Z + s * V;
        const real *w = chunk->w + s * V, *rs = r + s * V, *gamma = chunk->gamma + s * V;
        for (int64_t j = 0; j < V; j++) {
            z[j] = h[j] * w[j] * rs[j];
            h[j] *= gamma[j];
        }
        if (chunk->drop[s]) fwa_zero(h, V);
    }
}

// YO_t, YR_t, t >= ref, and e as seen from the state before step ref.
static void bring_reads(const column_chunk *chunk, int64_t ref, const real *d_o) {
    const int64_t V = chunk->V;
    const chunk_work *work = chunk->work;
    real *e = work->e;
    fwa_fill(e, 1, V);
    for (int64_t t = ref; t < chunk->c; t++) {
        const int64_t at = t * V;
        if (chunk->drop[t]) fwa_zero(e, V);
        if (chunk->before) fwa_multiplied(work->YO + at, e, d_o + at, V);
        if (chunk->delta) fwa_multiplied(work->YR + at, e, work->dr + at, V);
        fwa_multiply(e, chunk->gamma + at, V);
        if (!chunk->before) fwa_multiplied(work->YO + at, e, d_o + at, V);
    }
}

// rows [begin, begin + count) of (X or Q) S brought to the state before step `begin`: h o base + products Z. May be in
// place.
static void rows_at_block(const column_chunk *chunk, int64_t begin, int64_t count, const real *products,
                          const real *base, real *rows) {
    const int64_t c = chunk->c, V = chunk->V;
    for (int64_t i = 0; i < count; i++)
        for (int64_t j = 0; j < V; j++) rows[i * V + j] = chunk->work->h[j] * base[(begin + i) * V + j];
    fwa_tile_gemm(rows, V, products + begin * c, c, false, chunk->work->Z, V, false, count, V, begin, 1, 1);
}

static void chunk_forward(const column_chunk *chunk, real *r, real *o, real *S) {
    const int64_t c = chunk->c, K = chunk->K, V = chunk->V;
    const chunk_work *work = chunk->work;
    shared_products(chunk);
    for (int64_t begin = 0; begin < c; begin += BLOCK) {
        const int64_t count = fwa_min(BLOCK, c - begin), at = begin * V;
        real *seen = chunk->delta ? work->XS + at : NULL;
        bring_writes(chunk, begin, r);
        rows_at_block(chunk, begin, count, work->P, work->QS, work->QS + at);
        if (chunk->delta) rows_at_block(chunk, begin, count, work->G, work->XS, seen);
        const fwa_column_block block = make_block(chunk, begin, seen, work->QS + at);
        FWA_T(fwa_column_block_forward)(&block, r + at, o + at, work->rest);
    }
    bring_writes(chunk, c, r);
    for (int64_t k = 0; k < K; k++) fwa_multiply(S + k * V, work->h, V);
    fwa_tile_product(S, chunk->x, true, work->Z, false, K, V, c, 1, 1);
}

void FWA_T(fwa_column_chunk_forward)(const fwa_core_task *task, bool delta) {
    const int64_t V = task->V, KV = task->K * V, C = fwa_core_chunk(task);
    const chunk_work work = plan_work(task, task->scratch, delta, false);
    real *residuals = task->save && delta ? task->saved + fwa_ceil_div(task->T, C) * KV : NULL;
    for (int64_t t0 = 0; t0 < task->T; t0 += C) {
        const column_chunk chunk = make_chunk(task, t0, delta, task->S, &work);
        real *r = residuals ? residuals + t0 * V : work.r;
        if (task->save) fwa_copy(task->saved + t0 / C * KV, task->S, KV);
        fwa_copy(r, task->v + (task->n + t0) * V, chunk.c * V);
        chunk_forward(&chunk, r, task->o + t0 * V, task->S);
    }
}

// A_s = x_s^T dS, s < end, where dS is that of the state behind step end - 1, without what o_{end-1} itself reads.
static void keys_at_block(const column_chunk *chunk, int64_t end) {
    const int64_t c = chunk->c, V = chunk->V, later = c - end;
    const chunk_work *work = chunk->work;
    for (int64_t s = 0; s < end; s++) fwa_multiplied(work->A + s * V, work->e, work->XD + s * V, V);
    fwa_tile_gemm(work->A, V, work->P + end * c, c, true, work->YO + end * V, V, false, end, V, later, 1, 1);
    if (chunk->delta)
        fwa_tile_gemm(work->A, V, work->G + end * c, c, true, work->YR + end * V, V, false, end, V, later, -1, 1);
}

// sum over k of the state before step `begin` times the gradient of the state behind step end - 1.
static void state_products(const column_chunk *chunk, int64_t begin, int64_t end) {
    const int64_t V = chunk->V;
    const chunk_work *work = chunk->work;
    real *sum = work->a_state;
    fwa_multiplied(sum, work->e, work->both, V);
    for (int64_t t = end; t < chunk->c; t++) {
        const int64_t at = t * V;
        fwa_multiply_add(sum, work->YO + at, work->QS + at, V);
        if (!chunk->delta) continue;
        for (int64_t j = 0; j < V; j++) sum[j] -= work->YR[at + j] * work->XS[at + j];
    }
    fwa_multiply(sum, work->h, V);
    for (int64_t s = 0; s < begin; s++) fwa_multiply_add(sum, work->Z + s * V, work->A + s * V, V);
}

// One block: dr, dw, dgamma, and its rows of M and N.
static void block_backward(const column_chunk *chunk, int64_t begin, const real *r, const real *d_o, real *dw,
                           real *dgamma) {
    const int64_t c = chunk->c, V = chunk->V, count = fwa_min(BLOCK, c - begin), at = begin * V;
    const int64_t corner = begin * c + begin;
    const chunk_work *work = chunk->work;
    bring_writes(chunk, begin, r);
    rows_at_block(chunk, begin, count, work->P, work->QS, work->read);
    if (chunk->delta) rows_at_block(chunk, begin, count, work->G, work->XS, work->seen);
    keys_at_block(chunk, begin + count);
    state_products(chunk, begin, begin + count);
    const fwa_column_block block = make_block(chunk, begin, work->seen, work->read);
    const fwa_column_block_grads grads = {.d_o = d_o + at,
                                          .a = work->A + at,
                                          .a_state = work->a_state,
                                          .dr = work->dr + at,
                                          .dw = dw + at,
                                          .dgamma = dgamma + at,
                                          .M = work->M + corner,
                                          .N = chunk->delta ? work->N + corner : NULL};
    FWA_T(fwa_column_block_backward)(&block, r + at, &grads, work->rest);
    bring_reads(chunk, begin, d_o);
    fwa_tile_gemm(work->M + begin * c, c, work->YO + at, V, false, work->Z, V, true, count, begin, V, 1, 0);
    if (chunk->delta)
        fwa_tile_gemm(work->N + begin * c, c, work->YR + at, V, false, work->Z, V, true, count, begin, V, 1, 0);
}

// Clears what lies above the diagonal of M, and turns N, 0 on its diagonal, into N + N^T.
static void complete_matrices(const column_chunk *chunk) {
    const int64_t c = chunk->c;
    real *M = chunk->work->M, *N = chunk->work->N;
    for (int64_t i = 0; i < c; i++) {
        fwa_zero(M + i * c + i + 1, c - i - 1);
        for (int64_t s = 0; chunk->delta && s < i; s++) N[s * c + i] = N[i * c + s];
    }
}

// dq, dx, and dS of the state before the chunk, from M, N, Z, YO, YR.
static void products_backward(const column_chunk *chunk, real *dq, real *dx, real *dS) {
    const int64_t c = chunk->c, K = chunk->K, V = chunk->V;
    const chunk_work *work = chunk->work;
    complete_matrices(chunk);
    fwa_tile_product(dq, work->M, false, chunk->x, false, c, K, c, 1, 1);
    fwa_tile_product(dq, work->YO, false, chunk->S, true, c, K, V, 1, 1);
    fwa_tile_product(dx, work->M, true, chunk->q, false, c, K, c, 1, 1);
    fwa_tile_product(dx, work->Z, false, dS, true, c, K, V, 1, 1);
    for (int64_t k = 0; k < K; k++) fwa_multiply(dS + k * V, work->e, V);
    fwa_tile_product(dS, chunk->q, true, work->YO, false, K, V, c, 1, 1);
    if (!chunk->delta) return;
    fwa_tile_product(dx, work->N, false, chunk->x, false, c, K, c, -1, 1);
    fwa_tile_product(dx, work->YR, false, chunk->S, true, c, K, V, -1, 1);
    fwa_tile_product(dS, chunk->x, true, work->YR, false, K, V, c, -1, 1);
}

static void chunk_backward(const column_chunk *chunk, const real *r, const real *d_o, real *dw, real *dgamma,
                           const real *dS) {
    const int64_t c = chunk->c, K = chunk->K, V = chunk->V;
    const chunk_work *work = chunk->work;
    shared_products(chunk);
    fwa_tile_product(work->XD, chunk->x, false, dS, false, c, V, K, 1, 0);
    fwa_zero(work->both, V);
    for (int64_t k = 0; k < K; k++) fwa_multiply_add(work->both, dS + k * V, chunk->S + k * V, V);
    fwa_fill(work->e, 1, V);
    for (int64_t begin = (c - 1) / BLOCK * BLOCK; begin >= 0; begin -= BLOCK)
        block_backward(chunk, begin, r, d_o, dw, dgamma);
    bring_writes(chunk, c, r);
}

void FWA_T(fwa_column_chunk_backward)(const fwa_core_task *task, const fwa_core_grads *grads, bool delta) {
    const int64_t K = task->K, V = task->V, C = fwa_core_chunk(task), chunks = fwa_ceil_div(task->T, C);
    const chunk_work work = plan_work(task, task->scratch, delta, true);
    for (int64_t i = chunks - 1; i >= 0; i--) {
        const int64_t t0 = i * C, row = task->n + t0;
        const column_chunk chunk = make_chunk(task, t0, delta, task->saved + i * K * V, &work);
        const real *r = delta ? task->saved + chunks * K * V + t0 * V : task->v + row * V;
        chunk_backward(&chunk, r, grads->d_o + t0 * V, grads->dw + t0 * V, grads->dgamma + t0 * V, grads->dS);
        fwa_axpy(grads->dv + row * V, 1, work.dr, chunk.c * V);
        products_backward(&chunk, grads->dq + t0 * K, grads->dx + row * K, grads->dS);
    }
}
