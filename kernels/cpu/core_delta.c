// The delta core: S_t = gamma_t S_{t-1} + w_t x_t r_t^T, r_t = v_t - S_{t-1}^T x_t, where the decay acts first
// v_t - gamma_t S_{t-1}^T x_t. Recurrent form: steps.c; chunk and parallel form: chunk.c, around the system that is
// solved here.
//
// In a chunk, with N_i the mask row that step i's residual sees and g_i the history factor (mask.h):
//
//   (I + A) R = V - diag(g) X S,   A = N o (X X^T), strictly lower
//
// solved by substitution: rows inside a block of 16, products between blocks. I + A is never inverted.
#include "core/shape.h"
#include "kernels/cpu/chunk.h"
#include "kernels/cpu/lanes.h"
#include "kernels/cpu/rounded.h"
#include "kernels/cpu/steps.h"

#define BLOCK 16

typedef struct solver_work {
    real *G, *A; // [c,c]; forward has A only
    real *Y;     // [c,K]
    real *d;     // [c,V]
    size_t bytes;
} solver_work;

static solver_work plan_work(int64_t c, int64_t K, int64_t V, fwa_bump bump, bool backward) {
    solver_work work = {0};
    work.A = FWA_TAKE(&bump, real, c * c);
    if (backward) {
        work.G = FWA_TAKE(&bump, real, c * c);
        work.Y = FWA_TAKE(&bump, real, c * K);
        work.d = FWA_TAKE(&bump, real, c * V);
    }
    work.bytes = bump.used;
    return work;
}

static size_t solver_scratch(const fwa_core_task *task, bool backward) {
    fwa_bump none = {0};
    return plan_work(fwa_core_chunk(task), task->K, task->V, none, backward).bytes;
}

// A = N o G below the diagonal; the rest is not read. A may be G.
static void system_matrix(const fwa_tile *tile, const real *G, real *A) {
    const int64_t c = tile->c;
    for (int64_t i = 0; i < c; i++) {
        real factor, g;
        const real *N = fwa_mask_residual(&tile->mask, i, &factor, &g);
        for (int64_t s = 0; s < i; s++) A[i * c + s] = factor * N[s] * G[i * c + s];
    }
}

// R = (I + A)^{-1} R, in place
static void solve_lower(const real *A, real *R, int64_t c, int64_t V) {
    for (int64_t begin = 0; begin < c; begin += BLOCK) {
        const int64_t end = fwa_min(begin + BLOCK, c);
        fwa_tile_gemm(R + begin * V, V, A + begin * c, c, false, R, V, false, end - begin, V, begin, -1, 1);
        for (int64_t i = begin + 1; i < end; i++)
            for (int64_t s = begin; s < i; s++) fwa_axpy(R + i * V, -A[i * c + s], R + s * V, V);
    }
}

// D = (I + A)^{-T} D, in place
static void solve_lower_transposed(const real *A, real *D, int64_t c, int64_t V) {
    for (int64_t begin = (c - 1) / BLOCK * BLOCK; begin >= 0; begin -= BLOCK) {
        const int64_t end = fwa_min(begin + BLOCK, c);
        if (end < c)
            fwa_tile_gemm(D + begin * V, V, A + end * c + begin, c, true, D + end * V, V, false, end - begin, V,
                          c - end, -1, 1);
        for (int64_t i = end - 1; i > begin; i--)
            for (int64_t s = begin; s < i; s++) fwa_axpy(D + s * V, -A[i * c + s], D + i * V, V);
    }
}

static void solve(const fwa_tile *tile, real *r, fwa_bump scratch) {
    const int64_t c = tile->c, K = tile->K, V = tile->V;
    const solver_work work = plan_work(c, K, V, scratch, false);
    fwa_tile_product(work.A, tile->x, false, tile->x, true, c, c, K, 1, 0);
    system_matrix(tile, work.A, work.A);
    fwa_tile_product(r, tile->x, false, tile->S, false, c, V, K, 1, 0);
    for (int64_t i = 0; i < c; i++) {
        real factor, g;
        fwa_mask_residual(&tile->mask, i, &factor, &g);
        const real *v = tile->v + i * V;
        real *to = r + i * V;
        for (int64_t j = 0; j < V; j++) to[j] = v[j] - g * to[j];
    }
    solve_lower(work.A, r, c, V);
}

// From dA (strictly lower, overwritten by dG + dG^T): the gradient of N.
static void system_backward(const fwa_tile *tile, const real *G, real *dA, real *dN) {
    const int64_t c = tile->c;
    for (int64_t i = 0; i < c; i++) {
        real factor, g;
        const real *N = fwa_mask_residual(&tile->mask, i, &factor, &g);
        for (int64_t s = 0; s < i; s++) {
            dN[i * c + s] = dA[i * c + s] * G[i * c + s];
            dA[i * c + s] *= factor * N[s];
        }
        dA[i * c + i] = 0;
        for (int64_t s = 0; s < i; s++) dA[s * c + i] = dA[i * c + s];
    }
}

// dR -> dV = dRHS = (I + A)^{-T} dR; dA = -dRHS R^T below the diagonal; the history term -diag(g) X S.
static void solve_backward(const fwa_tile *tile, const real *r, const fwa_tile_grads *grads, fwa_bump scratch) {
    const int64_t c = tile->c, K = tile->K, V = tile->V;
    const solver_work work = plan_work(c, K, V, scratch, true);
    real *d = grads->dr, *dA = work.A;
    fwa_tile_product(work.G, tile->x, false, tile->x, true, c, c, K, 1, 0);
    system_matrix(tile, work.G, work.A);
    solve_lower_transposed(work.A, d, c, V);
    fwa_round_where(tile->rounds, d, c * V);
    fwa_axpy(grads->dv, 1, d, c * V);
    fwa_tile_product(dA, d, false, r, true, c, c, V, -1, 0);
    system_backward(tile, work.G, dA, grads->residual);
    fwa_round_where(tile->rounds, dA, c * c);
    fwa_tile_product(grads->dx, dA, false, tile->x, false, c, K, c, 1, 1);
    fwa_tile_product(work.Y, d, false, tile->S, true, c, K, V, 1, 0);
    for (int64_t i = 0; i < c; i++) {
        real factor, g;
        fwa_mask_residual(&tile->mask, i, &factor, &g);
        grads->history[i] = -fwa_dot(tile->x + i * K, work.Y + i * K, K);
        fwa_axpy(grads->dx + i * K, -g, work.Y + i * K, K);
        fwa_scaled(work.d + i * V, g, d + i * V, V);
    }
    fwa_round_where(tile->rounds, work.d, c * V);
    fwa_tile_product(grads->dS, tile->x, true, work.d, false, K, V, c, -1, 1);
}

static const fwa_chunk_solver solver = {.scratch = solver_scratch, .solve = solve, .backward = solve_backward};

static int64_t delta_saved(const fwa_core_task *task) {
    return task->form == FWA_FORM_RECURRENT ? FWA_T(fwa_steps_saved)(task) : FWA_T(fwa_chunk_saved)(task, &solver);
}

static size_t delta_scratch(const fwa_core_task *task, bool backward) {
    return task->form == FWA_FORM_RECURRENT ? FWA_T(fwa_steps_scratch)(task, backward)
                                            : FWA_T(fwa_chunk_scratch)(task, &solver, backward);
}

static void delta_forward(const fwa_core_task *task) {
    if (task->form == FWA_FORM_RECURRENT)
        FWA_T(fwa_steps_forward)(task, true);
    else
        FWA_T(fwa_chunk_forward)(task, &solver);
}

static void delta_backward(const fwa_core_task *task, const fwa_core_grads *grads) {
    if (task->form == FWA_FORM_RECURRENT)
        FWA_T(fwa_steps_backward)(task, grads, true);
    else
        FWA_T(fwa_chunk_backward)(task, grads, &solver);
}

const fwa_core_impl FWA_T(fwa_core_delta) = {
    .core = FWA_CORE_DELTA,
    .rounds = true,
    .saved = delta_saved,
    .scratch = delta_scratch,
    .forward = delta_forward,
    .backward = delta_backward,
};
