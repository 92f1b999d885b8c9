// The recurrence of docs/math/README.md §1 with a step and a decay for every value column, and its reverse sweep:
//
//   r_t = v_t - S_{t-1}^T x_t | v_t      S_t = S_{t-1} diag(gamma_t) + x_t (w_t o r_t)^T
//
// Saved: S before every step, T K V elements.
#include "kernels/cpu/column_steps.h"

#include "kernels/cpu/state.h"
#include "kernels/cpu/steps.h"

int64_t FWA_T(fwa_column_steps_saved)(const fwa_core_task *task) {
    return task->T * task->K * task->V;
}

typedef struct steps_work {
    real *r, *written, *dr; // [V]: residual or v, w o r, gradient of r
    real *S;                // [K,V]
    size_t bytes;
} steps_work;

static steps_work plan_work(const fwa_core_task *task, fwa_bump bump, bool backward) {
    steps_work work = {0};
    work.r = FWA_TAKE(&bump, real, task->V);
    work.written = FWA_TAKE(&bump, real, task->V);
    if (backward) {
        work.dr = FWA_TAKE(&bump, real, task->V);
        work.S = FWA_TAKE(&bump, real, task->K * task->V);
    }
    work.bytes = bump.used;
    return work;
}

size_t FWA_T(fwa_column_steps_scratch)(const fwa_core_task *task, bool backward) {
    fwa_bump none = {0};
    return plan_work(task, none, backward).bytes;
}

// r and w o r of step t; S is the state before it.
static void what_is_written(const fwa_core_task *task, int64_t t, const real *S, bool delta, const steps_work *work) {
    const int64_t K = task->K, V = task->V, row = task->n + t;
    fwa_zero(work->r, V);
    if (delta) fwa_state_read(S, task->x + row * K, work->r, K, V);
    for (int64_t j = 0; j < V; j++) work->r[j] = task->v[row * V + j] - work->r[j];
    fwa_multiplied(work->written, task->w + t * V, work->r, V);
}

static void scale_columns(real *S, const real *gamma, int64_t K, int64_t V) {
    for (int64_t k = 0; k < K; k++) fwa_multiply(S + k * V, gamma, V);
}

static void write_step(const fwa_core_task *task, int64_t t, const real *written, real *S) {
    scale_columns(S, task->gamma + t * task->V, task->K, task->V);
    fwa_state_add(S, 1, task->x + (task->n + t) * task->K, written, task->K, task->V);
}

void FWA_T(fwa_column_steps_forward)(const fwa_core_task *task, bool delta) {
    const int64_t K = task->K, V = task->V;
    const steps_work work = plan_work(task, task->scratch, false);
    for (int64_t t = 0; t < task->T; t++) {
        if (task->drop[t]) fwa_zero(task->S, K * V);
        if (task->save) fwa_copy(task->saved + t * K * V, task->S, K * V);
        if (task->before) fwa_state_read(task->S, task->q + t * K, task->o + t * V, K, V);
        what_is_written(task, t, task->S, delta, &work);
        write_step(task, t, work.written, task->S);
        if (!task->before) fwa_state_read(task->S, task->q + t * K, task->o + t * V, K, V);
    }
}

// S_t = S_{t-1} diag(gamma) + x (w o r)^T: dw, dgamma, dr, its share of dx; dS becomes that of S_{t-1}.
static void write_backward(const fwa_core_task *task, const fwa_core_grads *grads, int64_t t, const real *S,
                           const steps_work *work) {
    const int64_t K = task->K, V = task->V, row = task->n + t;
    real *dgamma = grads->dgamma + t * V;
    fwa_state_read(grads->dS, task->x + row * K, work->dr, K, V);
    fwa_multiplied(grads->dw + t * V, work->dr, work->r, V);
    fwa_multiply(work->dr, task->w + t * V, V);
    fwa_state_read_transposed(grads->dS, work->written, 1, grads->dx + row * K, K, V);
    fwa_zero(dgamma, V);
    for (int64_t k = 0; k < K; k++) fwa_multiply_add(dgamma, grads->dS + k * V, S + k * V, V);
    scale_columns(grads->dS, task->gamma + t * V, K, V);
}

void FWA_T(fwa_column_steps_backward)(const fwa_core_task *task, const fwa_core_grads *grads, bool delta) {
    const int64_t K = task->K, V = task->V;
    const steps_work work = plan_work(task, task->scratch, true);
    for (int64_t t = task->T - 1; t >= 0; t--) {
        const int64_t row = task->n + t;
        const real *S = task->saved + t * K * V;
        what_is_written(task, t, S, delta, &work);
        if (!task->before) {
            fwa_copy(work.S, S, K * V);
            write_step(task, t, work.written, work.S);
            FWA_T(fwa_steps_read_backward)(task, grads, t, work.S);
        }
        write_backward(task, grads, t, S, &work);
        fwa_axpy(grads->dv + row * V, 1, work.dr, V);
        if (delta) {
            fwa_state_read_transposed(S, work.dr, -1, grads->dx + row * K, K, V);
            fwa_state_add(grads->dS, -1, task->x + row * K, work.dr, K, V);
        }
        if (task->before) FWA_T(fwa_steps_read_backward)(task, grads, t, S);
        if (task->drop[t]) fwa_zero(grads->dS, K * V);
    }
}
