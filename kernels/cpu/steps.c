// The recurrence as it stands in rules.md §1, and its reverse sweep. Saved: S before every step, T K V elements.
#include "kernels/cpu/steps.h"

#include "kernels/cpu/state.h"

int64_t FWA_T(fwa_steps_saved)(const fwa_core_task *task) {
    return task->T * task->K * task->V;
}

typedef struct steps_work {
    real *seen, *r, *dr; // [V]: S^T x, what is written, its gradient
    real *S;             // [K,V]
    size_t bytes;
} steps_work;

static steps_work plan_work(const fwa_core_task *task, fwa_bump bump, bool backward) {
    steps_work work = {0};
    work.seen = FWA_TAKE(&bump, real, task->V);
    work.r = FWA_TAKE(&bump, real, task->V);
    if (backward) {
        work.dr = FWA_TAKE(&bump, real, task->V);
        work.S = FWA_TAKE(&bump, real, task->K * task->V);
    }
    work.bytes = bump.used;
    return work;
}

size_t FWA_T(fwa_steps_scratch)(const fwa_core_task *task, bool backward) {
    fwa_bump none = {0};
    return plan_work(task, none, backward).bytes;
}

static real residual_factor(const fwa_core_task *task, int64_t t) {
    return task->decay_first ? task->gamma[t] : 1;
}

// r = v_t - factor S^T x_t; S is the state before step t. Leaves S^T x_t in `seen`.
static void residual(const fwa_core_task *task, int64_t t, const real *S, const steps_work *work) {
    const int64_t V = task->V, row = task->n + t;
    const real factor = residual_factor(task, t), *v = task->v + row * V;
    fwa_state_apply(S, task->x + row * task->K, work->seen, task->K, V);
    for (int64_t j = 0; j < V; j++) work->r[j] = v[j] - factor * work->seen[j];
}

// S = gamma_t S + w_t sum_{j in I_t} x_j r_j^T
static void write_step(const fwa_core_task *task, int64_t t, const real *r, real *S) {
    const int64_t K = task->K, V = task->V;
    fwa_scale(S, task->gamma[t], K * V);
    for (int64_t j = task->first[t]; j <= task->n + t; j++)
        fwa_state_add(S, task->w[t], task->x + j * K, r ? r : task->v + j * V, K, V);
}

void FWA_T(fwa_steps_forward)(const fwa_core_task *task, bool delta) {
    const int64_t K = task->K, V = task->V;
    const steps_work work = plan_work(task, task->scratch, false);
    for (int64_t t = 0; t < task->T; t++) {
        if (task->drop[t]) fwa_zero(task->S, K * V);
        if (task->save) fwa_copy(task->saved + t * K * V, task->S, K * V);
        if (task->before) fwa_state_apply(task->S, task->q + t * K, task->o + t * V, K, V);
        if (delta) residual(task, t, task->S, &work);
        write_step(task, t, delta ? work.r : NULL, task->S);
        if (!task->before) fwa_state_apply(task->S, task->q + t * K, task->o + t * V, K, V);
    }
}

// o_t = S^T q_t: dq and dS.
static void read_backward(const fwa_core_task *task, const fwa_core_grads *grads, int64_t t, const real *S) {
    const int64_t K = task->K, V = task->V;
    const real *d_o = grads->d_o + t * V;
    fwa_state_apply_transposed(S, d_o, 1, grads->dq + t * K, K, V);
    fwa_state_add(grads->dS, 1, task->q + t * K, d_o, K, V);
}

// The write of one pair: dx_j, its share of dw_t; dr = w_t dS^T x_j.
static void pair_backward(const fwa_core_task *task, const fwa_core_grads *grads, int64_t t, int64_t j, const real *r,
                          real *dr) {
    const int64_t K = task->K, V = task->V;
    fwa_state_apply(grads->dS, task->x + j * K, dr, K, V);
    grads->dw[t] += fwa_dot(dr, r, V);
    fwa_state_apply_transposed(grads->dS, r, task->w[t], grads->dx + j * K, K, V);
    fwa_scale(dr, task->w[t], V);
}

// r = v_t - factor S^T x_t, with work->seen = S^T x_t and work->dr; dS is by now that of S before the step.
static void residual_backward(const fwa_core_task *task, const fwa_core_grads *grads, int64_t t, const real *S,
                              const steps_work *work) {
    const int64_t K = task->K, V = task->V, row = task->n + t;
    const real factor = residual_factor(task, t);
    fwa_axpy(grads->dv + row * V, 1, work->dr, V);
    fwa_state_apply_transposed(S, work->dr, -factor, grads->dx + row * K, K, V);
    fwa_state_add(grads->dS, -factor, task->x + row * K, work->dr, K, V);
    if (task->decay_first) grads->dgamma[t] -= fwa_dot(work->seen, work->dr, V);
}

void FWA_T(fwa_steps_backward)(const fwa_core_task *task, const fwa_core_grads *grads, bool delta) {
    const int64_t K = task->K, V = task->V;
    const steps_work work = plan_work(task, task->scratch, true);
    for (int64_t t = task->T - 1; t >= 0; t--) {
        const real *S = task->saved + t * K * V;
        if (delta) residual(task, t, S, &work);
        if (!task->before) {
            fwa_copy(work.S, S, K * V);
            write_step(task, t, delta ? work.r : NULL, work.S);
            read_backward(task, grads, t, work.S);
        }
        grads->dw[t] = 0;
        if (delta) fwa_zero(work.dr, V);
        for (int64_t j = task->first[t]; j <= task->n + t; j++) {
            pair_backward(task, grads, t, j, delta ? work.r : task->v + j * V, work.dr);
            if (!delta) fwa_axpy(grads->dv + j * V, 1, work.dr, V);
        }
        grads->dgamma[t] = fwa_dot(grads->dS, S, K * V);
        fwa_scale(grads->dS, task->gamma[t], K * V);
        if (delta) residual_backward(task, grads, t, S, &work);
        if (task->before) read_backward(task, grads, t, S);
        if (task->drop[t]) fwa_zero(grads->dS, K * V);
    }
}
