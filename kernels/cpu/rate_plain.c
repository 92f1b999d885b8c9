// The plain rate, of rules whose inputs are the step and the decay themselves, and the rate of rules without either:
//
//   w = beta, 1 without one        gamma = e^{log_decay}, 1 without one
//
// A step without a pair writes nothing and keeps the state: w = 0, gamma = 1, and its gradients are 0. log_decay <= 0
// of any size is safe: gamma underflows to 0 and takes the gradient d_log_decay = gamma dgamma with it.
#include "kernels/cpu/rate.h"

static bool writes(const fwa_rate_task *task, int64_t t) {
    return task->first[t] <= task->n + t;
}

static void plain_forward(const fwa_rate_task *task) {
    for (int64_t t = 0; t < task->T; t++) {
        const bool pair = writes(task, t);
        task->w[t] = !pair ? 0 : task->beta ? task->beta[t] : 1;
        task->gamma[t] = pair && task->log_decay ? exp(task->log_decay[t]) : 1;
    }
}

static void plain_backward(const fwa_rate_task *task) {
    for (int64_t t = 0; t < task->T; t++) {
        const bool pair = writes(task, t);
        if (task->beta) task->dbeta[t] = pair ? task->dw[t] : 0;
        if (task->log_decay) task->dlog_decay[t] = pair ? task->gamma[t] * task->dgamma[t] : 0;
    }
}

const fwa_rate_impl FWA_T(fwa_rate_plain) = {.forward = plain_forward, .backward = plain_backward};

static void none_forward(const fwa_rate_task *task) {
    (void)task;
}

const fwa_rate_impl FWA_T(fwa_rate_none) = {.forward = none_forward, .backward = none_forward};
