// The attention core: o_t = sum_j p_tj v_j, p_t = softmax over j in I_t of scale q_t . x_j (causal, one document).
//
// Recurrent: one token after another against all rows before it. Chunk: blocks of C queries against blocks of C rows
// with a running maximum m and sum l, so that every exponent is <= 0; the parallel form is one block. Saved: the
// log-sum-exp of each step [T] and o [T,V]; the backward pass computes p again:
//   D_t = d_o_t . o_t   dp = d_o V^T   ds = scale p o (dp - D)   dq = ds X   dx = ds^T Q   dv = p^T d_o
#include "core/shape.h"
#include "kernels/cpu/core.h"
#include "kernels/cpu/lanes.h"
#include "kernels/cpu/vexp.h"

static bool one_by_one(const fwa_core_task *task) {
    return task->form == FWA_FORM_RECURRENT;
}

static int64_t attention_saved(const fwa_core_task *task) {
    return task->T * (task->V + 1);
}

typedef struct attention_work {
    real *p, *dp; // [queries, rows of a block]
    real *m, *l;  // [queries]; backward: m is D
    size_t bytes;
} attention_work;

static attention_work plan_work(const fwa_core_task *task, fwa_bump bump, bool backward) {
    const int64_t C = fwa_min(task->chunk, task->n + task->T);
    const int64_t queries = one_by_one(task) ? 1 : C, rows = one_by_one(task) ? task->n + task->T : C;
    attention_work work = {0};
    work.p = FWA_TAKE(&bump, real, queries * rows);
    if (backward) work.dp = FWA_TAKE(&bump, real, queries * rows);
    work.m = FWA_TAKE(&bump, real, queries);
    work.l = FWA_TAKE(&bump, real, queries);
    work.bytes = bump.used;
    return work;
}

static size_t attention_scratch(const fwa_core_task *task, bool backward) {
    fwa_bump none = {0};
    return plan_work(task, none, backward).bytes;
}

// p = exp(p - top), returns the sum
static real exponentiate(real *p, real top, int64_t n) {
    for (int64_t j = 0; j < n; j++) p[j] = fwa_exp(p[j] - top);
    return fwa_sum(p, n);
}

static real largest(const real *p, int64_t n) {
    real top = p[0];
    for (int64_t j = 1; j < n; j++) top = p[j] > top ? p[j] : top;
    return top;
}

// Columns of a block of rows [j0, j0 + rows) that step t may see.
static void visible(const fwa_core_task *task, int64_t t, int64_t j0, int64_t rows, int64_t *begin, int64_t *end) {
    *begin = fwa_max(task->first[t] - j0, 0);
    *end = fwa_max(*begin, fwa_min(task->n + t + 1 - j0, rows));
}

// Steps, one by one.

static void step_forward(const fwa_core_task *task, int64_t t, real *p) {
    const int64_t K = task->K, V = task->V, first = task->first[t], rows = task->n + t + 1 - first;
    real *o = task->o + t * V;
    for (int64_t j = 0; j < rows; j++) p[j] = task->scale * fwa_dot(task->q + t * K, task->x + (first + j) * K, K);
    const real top = largest(p, rows), sum = exponentiate(p, top, rows);
    fwa_zero(o, V);
    for (int64_t j = 0; j < rows; j++) fwa_axpy(o, p[j] / sum, task->v + (first + j) * V, V);
    if (task->save) task->saved[t] = top + log(sum);
}

static void step_backward(const fwa_core_task *task, const fwa_core_grads *grads, int64_t t) {
    const int64_t K = task->K, V = task->V;
    const real *q = task->q + t * K, *d_o = grads->d_o + t * V;
    const real D = fwa_dot(d_o, task->saved + task->T + t * V, V);
    for (int64_t j = task->first[t]; j <= task->n + t; j++) {
        const real *x = task->x + j * K;
        const real p = fwa_exp(task->scale * fwa_dot(q, x, K) - task->saved[t]);
        const real ds = task->scale * p * (fwa_dot(d_o, task->v + j * V, V) - D);
        fwa_axpy(grads->dv + j * V, p, d_o, V);
        fwa_axpy(grads->dq + t * K, ds, x, K);
        fwa_axpy(grads->dx + j * K, ds, q, K);
    }
}

// Blocks of c steps from t0 and `rows` rows from j0.

typedef struct block {
    int64_t t0, c, j0, rows;
} block;

static void block_scores(const fwa_core_task *task, block b, real *p) {
    fwa_tile_product(p, task->q + b.t0 * task->K, false, task->x + b.j0 * task->K, true, b.c, b.rows, task->K,
                     task->scale, 0);
}

static void block_forward(const fwa_core_task *task, block b, const attention_work *work) {
    const int64_t V = task->V;
    real *o = task->o + b.t0 * V;
    block_scores(task, b, work->p);
    for (int64_t i = 0; i < b.c; i++) {
        int64_t begin, end;
        visible(task, b.t0 + i, b.j0, b.rows, &begin, &end);
        real *p = work->p + i * b.rows;
        if (begin < end) {
            const real top = fmax(work->m[i], largest(p + begin, end - begin)), shrink = exp(work->m[i] - top);
            work->l[i] = shrink * work->l[i] + exponentiate(p + begin, top, end - begin);
            work->m[i] = top;
            fwa_scale(o + i * V, shrink, V);
        }
        fwa_zero(p, fwa_min(begin, b.rows));
        if (end < b.rows) fwa_zero(p + end, b.rows - end);
    }
    fwa_tile_product(o, work->p, false, task->v + b.j0 * V, false, b.c, V, b.rows, 1, 1);
}

static void queries_forward(const fwa_core_task *task, int64_t t0, int64_t c, const attention_work *work) {
    const int64_t V = task->V, stop = task->n + t0 + c;
    fwa_zero(task->o + t0 * V, c * V);
    for (int64_t i = 0; i < c; i++) {
        work->m[i] = -(real)INFINITY;
        work->l[i] = 0;
    }
    for (int64_t j0 = task->first[t0]; j0 < stop; j0 += task->chunk)
        block_forward(task, (block){t0, c, j0, fwa_min(task->chunk, stop - j0)}, work);
    for (int64_t i = 0; i < c; i++) {
        fwa_scale(task->o + (t0 + i) * V, 1 / work->l[i], V);
        if (task->save) task->saved[t0 + i] = work->m[i] + log(work->l[i]);
    }
}

static void block_backward(const fwa_core_task *task, const fwa_core_grads *grads, block b,
                           const attention_work *work) {
    const int64_t K = task->K, V = task->V;
    const real *d_o = grads->d_o + b.t0 * V, *q = task->q + b.t0 * K, *x = task->x + b.j0 * K;
    block_scores(task, b, work->p);
    fwa_tile_product(work->dp, d_o, false, task->v + b.j0 * V, true, b.c, b.rows, V, 1, 0);
    for (int64_t i = 0; i < b.c; i++) {
        int64_t begin, end;
        visible(task, b.t0 + i, b.j0, b.rows, &begin, &end);
        real *p = work->p + i * b.rows, *dp = work->dp + i * b.rows;
        const real lse = task->saved[b.t0 + i];
        for (int64_t j = 0; j < b.rows; j++) p[j] = j >= begin && j < end ? p[j] - lse : -(real)INFINITY;
        for (int64_t j = 0; j < b.rows; j++) p[j] = fwa_exp(p[j]);
        for (int64_t j = 0; j < b.rows; j++) dp[j] = task->scale * p[j] * (dp[j] - work->m[i]);
    }
    fwa_tile_product(grads->dv + b.j0 * V, work->p, true, d_o, false, b.rows, V, b.c, 1, 1);
    fwa_tile_product(grads->dq + b.t0 * K, work->dp, false, x, false, b.c, K, b.rows, 1, 1);
    fwa_tile_product(grads->dx + b.j0 * K, work->dp, true, q, false, b.rows, K, b.c, 1, 1);
}

static void queries_backward(const fwa_core_task *task, const fwa_core_grads *grads, int64_t t0, int64_t c,
                             const attention_work *work) {
    const int64_t V = task->V, stop = task->n + t0 + c;
    const real *o = task->saved + task->T;
    for (int64_t i = 0; i < c; i++) work->m[i] = fwa_dot(grads->d_o + (t0 + i) * V, o + (t0 + i) * V, V);
    for (int64_t j0 = task->first[t0]; j0 < stop; j0 += task->chunk)
        block_backward(task, grads, (block){t0, c, j0, fwa_min(task->chunk, stop - j0)}, work);
}

static void attention_forward(const fwa_core_task *task) {
    const attention_work work = plan_work(task, task->scratch, false);
    if (one_by_one(task)) {
        for (int64_t t = 0; t < task->T; t++) step_forward(task, t, work.p);
    } else {
        for (int64_t t0 = 0; t0 < task->T; t0 += task->chunk)
            queries_forward(task, t0, fwa_min(task->chunk, task->T - t0), &work);
    }
    if (task->save) fwa_copy(task->saved + task->T, task->o, task->T * task->V);
}

static void attention_backward(const fwa_core_task *task, const fwa_core_grads *grads) {
    const attention_work work = plan_work(task, task->scratch, true);
    if (one_by_one(task)) {
        for (int64_t t = 0; t < task->T; t++) step_backward(task, grads, t);
    } else {
        for (int64_t t0 = 0; t0 < task->T; t0 += task->chunk)
            queries_backward(task, grads, t0, fwa_min(task->chunk, task->T - t0), &work);
    }
}

const fwa_core_impl FWA_T(fwa_core_attention) = {
    .core = FWA_CORE_ATTENTION,
    .saved = attention_saved,
    .scratch = attention_scratch,
    .forward = attention_forward,
    .backward = attention_backward,
};
