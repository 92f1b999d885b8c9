// Chunk form of the cores with matrix state (docs/math/README.md §4, §5), forward and backward. A chunk has C steps and
// m columns of pairs, with mask rows M_i and h_i:
//
//   O = diag(h) Q S + ((Q X^T) o M) R          S' = h_C S + X^T diag(M_C) R
//
// Saved for the backward pass: S before every chunk, and R where it is solved for; the rest is computed again.
// Cost of a chunk, forward: 2 C (m K + K V + m V) + 2 m K V operations beside the solver's.
#include "kernels/cpu/chunk.h"

#include "core/shape.h"
#include "kernels/cpu/lanes.h"
#include "kernels/cpu/rounded.h"

typedef struct chunk_work {
    real *M, *h;              // mask
    real *P, *r;              // [C,m], [C,V]
    real *rows;               // [m, max(K,V)]: rows scaled before a product
    real *state;              // [K,V]: a rounded copy; where the task rounds
    real *dP, *dread;         // [C,m]
    real *dread_h, *leave;    // [C], [m]
    real *Y;                  // [m,K]
    real *dr;                 // [m,V]
    real *residual, *history; // [C,m], [C]
    fwa_bump rest;            // the solver's
} chunk_work;

static int64_t most_columns(const fwa_core_task *task) {
    int64_t c = fwa_core_chunk(task);
    return fwa_min(c + task->halo, task->n + task->T);
}

static chunk_work plan_work(const fwa_core_task *task, fwa_bump bump, bool backward) {
    const int64_t c = fwa_core_chunk(task), m = most_columns(task), K = task->K, V = task->V;
    chunk_work work = {0};
    work.M = FWA_TAKE(&bump, real, (c + 1) * m);
    work.h = FWA_TAKE(&bump, real, c + 1);
    work.P = FWA_TAKE(&bump, real, c * m);
    work.rows = FWA_TAKE(&bump, real, m * fwa_max(K, V));
    if (task->rounds) work.state = FWA_TAKE(&bump, real, K * V);
    if (!backward) {
        work.r = FWA_TAKE(&bump, real, c * V);
    } else {
        work.dP = FWA_TAKE(&bump, real, c * m);
        work.dread = FWA_TAKE(&bump, real, c * m);
        work.dread_h = FWA_TAKE(&bump, real, c);
        work.leave = FWA_TAKE(&bump, real, m);
        work.Y = FWA_TAKE(&bump, real, m * K);
        work.dr = FWA_TAKE(&bump, real, m * V);
        work.residual = FWA_TAKE(&bump, real, c * m);
        work.history = FWA_TAKE(&bump, real, c);
    }
    work.rest = bump;
    return work;
}

int64_t FWA_T(fwa_chunk_saved)(const fwa_core_task *task, const fwa_chunk_solver *solver) {
    int64_t chunks = fwa_ceil_div(task->T, fwa_core_chunk(task));
    return chunks * task->K * task->V + (solver ? task->T * task->V : 0);
}

size_t FWA_T(fwa_chunk_scratch)(const fwa_core_task *task, const fwa_chunk_solver *solver, bool backward) {
    fwa_bump none = {0};
    return plan_work(task, none, backward).rest.used + (solver ? solver->scratch(task, backward) : 0);
}

static fwa_tile make_tile(const fwa_core_task *task, int64_t t0, const chunk_work *work) {
    fwa_tile tile = {.c = fwa_min(fwa_core_chunk(task), task->T - t0), .K = task->K, .V = task->V};
    tile.rounds = task->rounds;
    const int64_t own = task->n + t0, row = fwa_min(task->first[t0], own);
    tile.m = own - row + tile.c;
    tile.q = task->q + t0 * task->K;
    tile.x = task->x + row * task->K;
    tile.v = task->v + row * task->V;
    tile.mask = (fwa_mask){.c = tile.c,
                           .m = tile.m,
                           .off = own - row,
                           .first_row = row,
                           .first = task->first + t0,
                           .drop = task->drop + t0,
                           .w = task->w + t0,
                           .gamma = task->gamma + t0,
                           .before = task->before,
                           .decay_first = task->decay_first,
                           .M = work->M,
                           .h = work->h};
    FWA_T(fwa_mask_build)(&tile.mask);
    return tile;
}

// masked = P o M with M as o reads it, beyond the live columns 0; may be P itself.
static void apply_mask(const fwa_mask *mask, const real *P, real *masked) {
    for (int64_t i = 0; i < mask->c; i++) {
        real h;
        const real *row = fwa_mask_read(mask, i, &h);
        const int64_t live = row ? mask->off + i + 1 : 0;
        const real *p = P + i * mask->m;
        real *to = masked + i * mask->m;
        for (int64_t j = 0; j < live; j++) to[j] = p[j] * row[j];
        fwa_zero(to + live, mask->m - live);
    }
}

// S as products have it.
static const real *operand_state(const fwa_core_task *task, const real *S, const chunk_work *work) {
    if (!task->rounds) return S;
    fwa_copy(work->state, S, task->K * task->V);
    fwa_round_where(true, work->state, task->K * task->V);
    return work->state;
}

// solved: r is not v; the product of masked reads and r is then one of two parts each, which is as good as whole.
static void read_state(const fwa_tile *tile, const real *r, bool solved, real *o, const chunk_work *work) {
    const int64_t c = tile->c, m = tile->m, K = tile->K, V = tile->V;
    fwa_tile_product(work->P, tile->q, false, tile->x, true, c, m, K, 1, 0);
    apply_mask(&tile->mask, work->P, work->P);
    fwa_round_where(tile->rounds && !solved, work->P, c * m);
    fwa_tile_product(o, tile->q, false, tile->S, false, c, V, K, 1, 0);
    for (int64_t i = 0; i < c; i++) {
        real h;
        fwa_mask_read(&tile->mask, i, &h);
        fwa_scale(o + i * V, h, V);
    }
    fwa_tile_product(o, work->P, false, r, false, c, V, m, 1, 1);
}

static void write_state(const fwa_tile *tile, const real *r, real *S, const chunk_work *work) {
    const real *leave = tile->mask.M + tile->c * tile->m;
    for (int64_t j = 0; j < tile->m; j++) fwa_scaled(work->rows + j * tile->V, leave[j], r + j * tile->V, tile->V);
    fwa_round_where(tile->rounds, work->rows, tile->m * tile->V);
    fwa_tile_product(S, tile->x, true, work->rows, false, tile->K, tile->V, tile->m, 1, tile->mask.h[tile->c]);
}

void FWA_T(fwa_chunk_forward)(const fwa_core_task *task, const fwa_chunk_solver *solver) {
    const int64_t KV = task->K * task->V, C = fwa_core_chunk(task);
    const chunk_work work = plan_work(task, task->scratch, false);
    const int64_t states = fwa_ceil_div(task->T, C) * KV;
    for (int64_t t0 = 0; t0 < task->T; t0 += C) {
        fwa_tile tile = make_tile(task, t0, &work);
        tile.S = operand_state(task, task->S, &work);
        if (task->save) fwa_copy(task->saved + t0 / C * KV, tile.S, KV);
        const real *r = tile.v;
        if (solver) {
            real *solved = task->save ? task->saved + states + t0 * task->V : work.r;
            solver->solve(&tile, solved, work.rest);
            r = solved;
        }
        read_state(&tile, r, solver != NULL, task->o + t0 * task->V, &work);
        write_state(&tile, r, task->S, &work);
        if (solver && task->save) fwa_round_where(task->rounds, task->saved + states + t0 * task->V, tile.c * task->V);
    }
}

// From d_o: dq, the read's share of dx, dr = (P o M)^T d_o, and the gradient of the mask as o reads it.
static void read_backward(const fwa_tile *tile, const real *r, bool solved, const real *d_o, real *dq, real *dx,
                          const chunk_work *work) {
    const int64_t c = tile->c, m = tile->m, K = tile->K, V = tile->V;
    fwa_tile_product(work->P, tile->q, false, tile->x, true, c, m, K, 1, 0);
    fwa_tile_product(work->dP, d_o, false, r, true, c, m, V, 1, 0);
    for (int64_t i = 0; i < c * m; i++) work->dread[i] = work->dP[i] * work->P[i];
    apply_mask(&tile->mask, work->P, work->P);
    apply_mask(&tile->mask, work->dP, work->dP);
    fwa_round_where(tile->rounds && !solved, work->P, c * m);
    fwa_round_where(tile->rounds, work->dP, c * m);
    fwa_tile_product(work->dr, work->P, true, d_o, false, m, V, c, 1, 0);
    fwa_tile_product(dq, work->dP, false, tile->x, false, c, K, m, 1, 1);
    fwa_tile_product(dx, work->dP, true, tile->q, false, m, K, c, 1, 1);
    fwa_tile_product(work->Y, d_o, false, tile->S, true, c, K, V, 1, 0);
    for (int64_t i = 0; i < c; i++) {
        real h;
        fwa_mask_read(&tile->mask, i, &h);
        work->dread_h[i] = fwa_dot(tile->q + i * K, work->Y + i * K, K);
        fwa_axpy(dq + i * K, h, work->Y + i * K, K);
    }
}

// From dS behind the chunk: the write's share of dx, dr += diag(M_C) X dS, and the gradient of M_C.
static void write_backward(const fwa_tile *tile, const real *r, const real *dS, real *dx, const chunk_work *work) {
    const int64_t m = tile->m, K = tile->K, V = tile->V;
    const real *leave = tile->mask.M + tile->c * m;
    fwa_tile_product(work->Y, r, false, dS, true, m, K, V, 1, 0);
    for (int64_t j = 0; j < m; j++) {
        work->leave[j] = fwa_dot(tile->x + j * K, work->Y + j * K, K);
        fwa_axpy(dx + j * K, leave[j], work->Y + j * K, K);
        fwa_scaled(work->rows + j * K, leave[j], tile->x + j * K, K);
    }
    fwa_tile_product(work->dr, work->rows, false, dS, false, m, V, K, 1, 1);
}

// dS = h_C dS + Q^T diag(h) d_o
static void state_backward(const fwa_tile *tile, const real *d_o, real *dS, const chunk_work *work) {
    const int64_t V = tile->V;
    for (int64_t i = 0; i < tile->c; i++) {
        real h;
        fwa_mask_read(&tile->mask, i, &h);
        fwa_scaled(work->rows + i * V, h, d_o + i * V, V);
    }
    fwa_round_where(tile->rounds, work->rows, tile->c * V);
    fwa_tile_product(dS, tile->q, true, work->rows, false, tile->K, V, tile->c, 1, tile->mask.h[tile->c]);
}

void FWA_T(fwa_chunk_backward)(const fwa_core_task *task, const fwa_core_grads *grads, const fwa_chunk_solver *solver) {
    const int64_t K = task->K, V = task->V, C = fwa_core_chunk(task), chunks = fwa_ceil_div(task->T, C);
    const chunk_work work = plan_work(task, task->scratch, true);
    for (int64_t chunk = chunks - 1; chunk >= 0; chunk--) {
        const int64_t t0 = chunk * C;
        fwa_tile tile = make_tile(task, t0, &work);
        tile.S = task->saved + chunk * K * V;
        const real *r = solver ? task->saved + chunks * K * V + t0 * V : tile.v;
        const real *d_o = grads->d_o + t0 * V;
        real *dx = grads->dx + (tile.x - task->x), *dv = grads->dv + (tile.v - task->v);
        fwa_mask_grads mask_grads = {.read = work.dread, .read_h = work.dread_h, .leave = work.leave};
        const real *dS = operand_state(task, grads->dS, &work);
        read_backward(&tile, r, solver != NULL, d_o, grads->dq + t0 * K, dx, &work);
        write_backward(&tile, r, dS, dx, &work);
        mask_grads.leave_h = fwa_dot(tile.S, dS, K * V);
        state_backward(&tile, d_o, grads->dS, &work);
        if (solver) {
            const fwa_tile_grads tile_grads = {dx, dv, work.dr, grads->dS, work.residual, work.history};
            solver->backward(&tile, r, &tile_grads, work.rest);
            mask_grads.residual = work.residual;
            mask_grads.history = work.history;
        } else {
            fwa_axpy(dv, 1, work.dr, tile.m * V);
        }
        FWA_T(fwa_mask_backward)(&tile.mask, &mask_grads, grads->dw + t0, grads->dgamma + t0);
    }
}
