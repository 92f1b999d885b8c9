// The Falcon rate, equations (3.3), (4.16), (4.20): with B_t pairs in the window I_t,
//
//   E = (1/B_t) sum_{j in I_t} |x_j|^2     lambda = lbar E | lbar | 0      eta = beta / (E + lambda + eps) | beta
//   alpha = min(eta lambda, 1 - eps_gamma)       gamma = 1 - alpha            w = eta / B_t
//
// Scalars are computed in double in both precisions: 1 - alpha cancels where the decay is strong. Where a step has no
// pair or a zero denominator, w = 0, gamma = 1 and every gradient is 0, never 0/0.
#include "kernels/cpu/lanes.h"
#include "kernels/cpu/rate.h"

typedef struct falcon_step {
    int64_t pairs; // B_t; 0: nothing is written
    double energy, lbar, lambda, denominator, beta, eta, alpha;
    bool cut, clamped; // by eta_max, by eps_gamma
} falcon_step;

static void pair_norms(const fwa_rate_task *task) {
    for (int64_t j = 0; j < task->n + task->T; j++) {
        const real *x = task->x + j * task->K;
        task->norms[j] = (double)fwa_dot(x, x, task->K);
    }
}

static falcon_step compute_step(const fwa_rate_task *task, int64_t t) {
    const fwa_mixer_options *options = task->options;
    falcon_step step = {.pairs = task->n + t + 1 - task->first[t], .beta = (double)task->beta[t]};
    if (step.pairs <= 0) return (falcon_step){0};
    for (int64_t j = task->first[t]; j <= task->n + t; j++) step.energy += task->norms[j];
    step.energy /= (double)step.pairs;
    if (options->ridge != FWA_RIDGE_NONE) {
        step.lbar = (double)task->lambda[t];
        step.lambda = options->ridge == FWA_RIDGE_COUPLED ? step.lbar * step.energy : step.lbar;
    }
    step.denominator = 1;
    if (options->step == FWA_STEP_NORMALIZED) step.denominator = step.energy + step.lambda + options->eps;
    if (step.denominator <= 0) return (falcon_step){0};
    step.eta = step.beta / step.denominator;
    step.cut = options->eta_max > 0 && step.eta > options->eta_max;
    if (step.cut) step.eta = options->eta_max;
    step.alpha = step.eta * step.lambda;
    step.clamped = step.alpha >= 1 - options->eps_gamma;
    return step;
}

static void falcon_forward(const fwa_rate_task *task) {
    pair_norms(task);
    for (int64_t t = 0; t < task->T; t++) {
        const falcon_step step = compute_step(task, t);
        task->w[t] = step.pairs ? (real)(step.eta / (double)step.pairs) : 0;
        task->gamma[t] = step.clamped ? (real)task->options->eps_gamma : (real)(1 - step.alpha);
    }
}

// Gradients of one step that wrote; returns that of E.
static double step_backward(const fwa_rate_task *task, int64_t t, const falcon_step *step) {
    const fwa_mixer_options *options = task->options;
    double d_alpha = step->clamped ? 0 : -(double)task->dgamma[t], d_energy = 0;
    double d_lambda = step->eta * d_alpha;
    double d_eta = (double)task->dw[t] / (double)step->pairs + step->lambda * d_alpha;
    if (step->cut) d_eta = 0;
    task->dbeta[t] = (real)(d_eta / step->denominator);
    if (options->step == FWA_STEP_NORMALIZED) {
        d_energy = -step->beta * d_eta / (step->denominator * step->denominator);
        d_lambda += d_energy;
    }
    if (options->ridge == FWA_RIDGE_NONE) return d_energy;
    const bool coupled = options->ridge == FWA_RIDGE_COUPLED;
    task->dlambda[t] = (real)(coupled ? step->energy * d_lambda : d_lambda);
    if (coupled && !options->detach_scale) d_energy += step->lbar * d_lambda;
    return d_energy;
}

static void falcon_backward(const fwa_rate_task *task) {
    const int64_t rows = task->n + task->T;
    pair_norms(task);
    memset(task->dnorms, 0, (size_t)rows * sizeof *task->dnorms);
    for (int64_t t = 0; t < task->T; t++) {
        const falcon_step step = compute_step(task, t);
        task->dbeta[t] = 0;
        if (task->dlambda) task->dlambda[t] = 0;
        if (!step.pairs) continue;
        const double d_norm = step_backward(task, t, &step) / (double)step.pairs;
        for (int64_t j = task->first[t]; j <= task->n + t; j++) task->dnorms[j] += d_norm;
    }
    for (int64_t j = 0; j < rows; j++)
        fwa_axpy(task->dx + j * task->K, (real)(2 * task->dnorms[j]), task->x + j * task->K, task->K);
}

const fwa_rate_impl FWA_T(fwa_rate_falcon) = {.forward = falcon_forward, .backward = falcon_backward};

static void none_forward(const fwa_rate_task *task) {
    (void)task;
}

const fwa_rate_impl FWA_T(fwa_rate_none) = {.forward = none_forward, .backward = none_forward};
