// The recurrence as it stands in docs/math/README.md §1, and its reverse sweep. Saved: S before every step, T K V
// elements.
#include "kernels/cpu/steps.h"

#include "core/shape.h"
#include "kernels/cpu/state.h"

int64_t FWA_T(fwa_steps_saved)(const fwa_core_task *task) {
    return task->T * task->K * task->V;
}

typedef struct steps_work {
    real *seen, *r, *dr; // [B,V], a row for each pair of the window: S^T x, what is written, its gradient
    real *S;             // [K,V]
    size_t bytes;
} steps_work;

static steps_work plan_work(const fwa_core_task *task, fwa_bump bump, bool backward) {
    const int64_t pairs = fwa_min(task->halo + 1, task->n + task->T);
    steps_work work = {0};
    work.seen = FWA_TAKE(&bump, real, pairs * task->V);
    work.r = FWA_TAKE(&bump, real, pairs * task->V);
    if (backward) {
        work.dr = FWA_TAKE(&bump, real, pairs * task->V);
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

// r_j = v_j - factor S^T x_j over the window; S is the state before step t. Leaves S^T x_j in `seen`.
static void residuals(const fwa_core_task *task, int64_t t, const real *S, const steps_work *work) {
    const int64_t V = task->V;
    const real factor = residual_factor(task, t);
    for (int64_t j = task->first[t]; j <= task->n + t; j++) {
        const int64_t at = (j - task->first[t]) * V;
        fwa_state_read(S, task->x + j * task->K, work->seen + at, task->K, V);
        for (int64_t i = 0; i < V; i++) work->r[at + i] = task->v[j * V + i] - factor * work->seen[at + i];
    }
}

// S = gamma_t S + w_t sum_{j in I_t} x_j r_j^T; r NULL: v
static void write_step(const fwa_core_task *task, int64_t t, const real *r, real *S) {
    const int64_t K = task->K, V = task->V;
    fwa_scale(S, task->gamma[t], K * V);
    for (int64_t j = task->first[t]; j <= task->n + t; j++)
        fwa_state_add(S, task->w[t], task->x + j * K, r ? r + (j - task->first[t]) * V : task->v + j * V, K, V);
}

void FWA_T(fwa_steps_forward)(const fwa_core_task *task, bool delta) {
    const int64_t K = task->K, V = task->V;
    const steps_work work = plan_work(task, task->scratch, false);
    for (int64_t t = 0; t < task->T; t++) {
        if (task->drop[t]) fwa_zero(task->S, K * V);
        if (task->save) fwa_copy(task->saved + t * K * V, task->S, K * V);
        if (task->before) fwa_state_read(task->S, task->q + t * K, task->o + t * V, K, V);
        if (delta) residuals(task, t, task->S, &work);
        write_step(task, t, delta ? work.r : NULL, task->S);
        if (!task->before) fwa_state_read(task->S, task->q + t * K, task->o + t * V, K, V);
    }
}

void FWA_T(fwa_steps_read_backward)(const fwa_core_task *task, const fwa_core_grads *grads, int64_t t, const real *S) {
    const int64_t K = task->K, V = task->V;
    const real *d_o = grads->d_o + t * V;
    fwa_state_read_transposed(S, d_o, 1, grads->dq + t * K, K, V);
    fwa_state_add(grads->dS, 1, task->q + t * K, d_o, K, V);
}

// The write of one pair: dx_j, its share of dw_t; dr = w_t dS^T x_j.
static void pair_backward(const fwa_core_task *task, const fwa_core_grads *grads, int64_t t, int64_t j, const real *r,
                          real *dr) {
    const int64_t K = task->K, V = task->V;
    fwa_state_read(grads->dS, task->x + j * K, dr, K, V);
    grads->dw[t] += fwa_dot(dr, r, V);
    fwa_state_read_transposed(grads->dS, r, task->w[t], grads->dx + j * K, K, V);
    fwa_scale(dr, task->w[t], V);
}

// r_j = v_j - factor S^T x_j, with work->seen = S^T x_j and work->dr; dS is by now that of S before the step.
static void residuals_backward(const fwa_core_task *task, const fwa_core_grads *grads, int64_t t, const real *S,
                               const steps_work *work) {
    const int64_t K = task->K, V = task->V;
    const real factor = residual_factor(task, t);
    for (int64_t j = task->first[t]; j <= task->n + t; j++) {
        const int64_t at = (j - task->first[t]) * V;
        const real *dr = work->dr + at;
        fwa_axpy(grads->dv + j * V, 1, dr, V);
        fwa_state_read_transposed(S, dr, -factor, grads->dx + j * K, K, V);
        fwa_state_add(grads->dS, -factor, task->x + j * K, dr, K, V);
        if (task->decay_first) grads->dgamma[t] -= fwa_dot(work->seen + at, dr, V);
    }
}

void FWA_T(fwa_steps_backward)(const fwa_core_task *task, const fwa_core_grads *grads, bool delta) {
    const int64_t K = task->K, V = task->V;
    const steps_work work = plan_work(task, task->scratch, true);
    for (int64_t t = task->T - 1; t >= 0; t--) {
        const real *S = task->saved + t * K * V;
        if (delta) residuals(task, t, S, &work);
        if (!task->before) {
            fwa_copy(work.S, S, K * V);
            write_step(task, t, delta ? work.r : NULL, work.S);
            FWA_T(fwa_steps_read_backward)(task, grads, t, work.S);
        }
        grads->dw[t] = 0;
        for (int64_t j = task->first[t]; j <= task->n + t; j++) {
            const int64_t at = delta ? (j - task->first[t]) * V : 0;
            pair_backward(task, grads, t, j, delta ? work.r + at : task->v + j * V, work.dr + at);
            if (!delta) fwa_axpy(grads->dv + j * V, 1, work.dr, V);
        }
        grads->dgamma[t] = fwa_dot(grads->dS, S, K * V);
        fwa_scale(grads->dS, task->gamma[t], K * V);
        if (delta) residuals_backward(task, grads, t, S, &work);
        if (task->before) FWA_T(fwa_steps_read_backward)(task, grads, t, S);
        if (task->drop[t]) fwa_zero(grads->dS, K * V);
    }
}
