// The Falcon rate, equations (3.3), (4.16), (4.20): with B_t pairs in the window I_t,
//
//   E: energy.c      lambda = lbar E | lbar | 0      eta = beta / (E + lambda + eps) | beta
//   alpha = min(eta lambda, 1 - eps_gamma)       gamma = 1 - alpha            w = eta / B_t
//
// for every column of beta: falcon2 and falcon2a have V of them, (4.4), (4.7), (4.9); E and lambda are shared.
//
// Scalars are computed in double in both precisions: 1 - alpha cancels where the decay is strong. Where a step has no
// pair or a zero denominator, w = 0, gamma = 1 and every gradient is 0, never 0/0.
#include "kernels/cpu/lanes.h"
#include "kernels/cpu/rate.h"

// What the columns of a step share.
typedef struct falcon_step {
    int64_t pairs; // B_t; 0: nothing is written
    double energy, lbar, lambda, denominator;
} falcon_step;

typedef struct falcon_eta {
    double eta, alpha;
    bool cut, clamped; // by eta_max, by eps_gamma
} falcon_eta;

static falcon_step compute_step(const fwa_rate_task *task, int64_t t) {
    const fwa_mixer_options *options = task->options;
    falcon_step step = {.pairs = task->n + t + 1 - task->first[t], .energy = task->energy[t]};
    if (step.pairs <= 0) return (falcon_step){0};
    if (options->ridge != FWA_RIDGE_NONE) {
        step.lbar = (double)task->lambda[t];
        step.lambda = options->ridge == FWA_RIDGE_COUPLED ? step.lbar * step.energy : step.lbar;
    }
    step.denominator = 1;
    if (options->step == FWA_STEP_NORMALIZED) step.denominator = step.energy + step.lambda + options->eps;
    return step.denominator > 0 ? step : (falcon_step){0};
}

static falcon_eta compute_eta(const fwa_mixer_options *options, const falcon_step *step, double beta) {
    falcon_eta column = {.eta = beta / step->denominator};
    column.cut = options->eta_max > 0 && column.eta > options->eta_max;
    if (column.cut) column.eta = options->eta_max;
    column.alpha = column.eta * step->lambda;
    column.clamped = column.alpha >= 1 - options->eps_gamma;
    return column;
}

static void falcon_forward(const fwa_rate_task *task) {
    const int64_t W = task->columns;
    for (int64_t t = 0; t < task->T; t++) {
        const falcon_step step = compute_step(task, t);
        real *w = task->w + t * W, *gamma = task->gamma + t * W;
        for (int64_t j = 0; !step.pairs && j < W; j++) {
            w[j] = 0;
            gamma[j] = 1;
        }
        for (int64_t j = 0; step.pairs && j < W; j++) {
            const falcon_eta column = compute_eta(task->options, &step, (double)task->beta[t * W + j]);
            w[j] = (real)(column.eta / (double)step.pairs);
            gamma[j] = (real)(column.clamped ? task->options->eps_gamma : 1 - column.alpha);
        }
    }
}

// Gradients of one step that wrote; returns that of E. d_lambda and d_denominator are sums over the columns.
static double step_backward(const fwa_rate_task *task, int64_t t, const falcon_step *step) {
    const fwa_mixer_options *options = task->options;
    const int64_t W = task->columns;
    double d_lambda = 0, d_denominator = 0;
    for (int64_t j = t * W; j < (t + 1) * W; j++) {
        const double beta = (double)task->beta[j];
        const falcon_eta column = compute_eta(options, step, beta);
        const double d_alpha = column.clamped ? 0 : -(double)task->dgamma[j];
        double d_eta = (double)task->dw[j] / (double)step->pairs + step->lambda * d_alpha;
        if (column.cut) d_eta = 0;
        d_lambda += column.eta * d_alpha;
        d_denominator -= beta * d_eta / (step->denominator * step->denominator);
        task->dbeta[j] = (real)(d_eta / step->denominator);
    }
    if (options->step == FWA_STEP_DIRECT) d_denominator = 0;
    d_lambda += d_denominator;
    double d_energy = d_denominator; // the denominator is E + lambda + eps
    if (options->ridge == FWA_RIDGE_NONE) return d_energy;
    const bool coupled = options->ridge == FWA_RIDGE_COUPLED;
    task->dlambda[t] = (real)(coupled ? step->energy * d_lambda : d_lambda);
    if (coupled && !options->detach_scale) d_energy += step->lbar * d_lambda;
    return d_energy;
}

static void falcon_backward(const fwa_rate_task *task) {
    const int64_t W = task->columns;
    for (int64_t t = 0; t < task->T; t++) {
        const falcon_step step = compute_step(task, t);
        if (task->dlambda) task->dlambda[t] = 0;
        if (!step.pairs) {
            fwa_zero(task->dbeta + t * W, W);
            continue;
        }
        task->denergy[t] += step_backward(task, t, &step);
    }
}

static void falcon_gates(const fwa_rate_task *task, fwa_gate_sums *sums) {
    const int64_t W = task->columns;
    const double most = 1 - task->options->eps_gamma; // of alpha
    for (int64_t t = 0; t < task->T; t++) {
        const falcon_step step = compute_step(task, t);
        for (int64_t j = 0; step.pairs && j < W; j++) {
            const falcon_eta column = compute_eta(task->options, &step, (double)task->beta[t * W + j]);
            if (!(column.eta > 0)) continue;
            sums->steps += 1;
            sums->eta += column.eta;
            sums->alpha += column.clamped ? most : column.alpha;
            sums->ridge += column.clamped ? most / column.eta : step.lambda;
            sums->clamped += column.clamped;
        }
    }
}

const fwa_rate_impl FWA_T(fwa_rate_falcon) = {
    .energy = &FWA_T(fwa_energy_mean),
    .forward = falcon_forward,
    .backward = falcon_backward,
    .gates = falcon_gates,
};
const fwa_rate_impl FWA_T(fwa_rate_falcon_top) = {
    .energy = &FWA_T(fwa_energy_top),
    .forward = falcon_forward,
    .backward = falcon_backward,
    .gates = falcon_gates,
};
