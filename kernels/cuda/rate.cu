// The Falcon rate, equations (3.3), (4.16), (4.20), and the plain rate of the baselines (rate.cuh). With B_t pairs:
//
//   lambda = lbar E | lbar | 0      eta = beta / (E + lambda + eps) | beta, at most eta_max
//   alpha = min(eta lambda, 1 - eps_gamma)      gamma = 1 - alpha      w = eta / B_t
//   plain: w = beta or 1      gamma = e^log_decay or 1
//
// for every column of beta; E and lambda are shared by the columns. Where a step has no pair or a zero denominator,
// w = 0, gamma = 1 and every gradient is 0, never 0/0. Shapes: w, gamma [B,H,T,columns]. Results are overwritten, the
// same bits every time. Mapping: forward a thread an element; backward a thread a step, or with columns a warp.
#include "kernels/cuda/rate.cuh"

namespace {

using namespace fwa;

// What the columns of a step share.
struct falcon_step {
    int64_t pairs; // B_t; 0: nothing is written
    double energy, lbar, lambda, denominator;
};

struct falcon_eta {
    double eta, alpha;
    bool cut, clamped; // by eta_max, by eps_gamma
};

__device__ falcon_step compute_step(const mixer_task &a, int64_t b, int64_t h, int64_t t) {
    falcon_step step = {};
    const int64_t pairs = a.pairs(b, t);
    if (pairs <= 0) return step;
    step.energy = a.energy[(b * a.Hq + h / a.group) * a.T + t];
    if (a.options.ridge != FWA_RIDGE_NONE) {
        step.lbar = a.lambda.get(b, t, h);
        step.lambda = a.options.ridge == FWA_RIDGE_COUPLED ? step.lbar * step.energy : step.lbar;
    }
    step.denominator = 1;
    if (a.options.step == FWA_STEP_NORMALIZED) step.denominator = step.energy + step.lambda + a.options.eps;
    step.pairs = step.denominator > 0 ? pairs : 0;
    return step;
}

__device__ falcon_eta compute_eta(const mixer_task &a, const falcon_step &step, double beta) {
    falcon_eta column = {};
    column.eta = beta / step.denominator;
    column.cut = a.options.eta_max > 0 && column.eta > a.options.eta_max;
    if (column.cut) column.eta = a.options.eta_max;
    column.alpha = column.eta * step.lambda;
    column.clamped = column.alpha >= 1 - a.options.eps_gamma;
    return column;
}

// w and gamma [i] of column c of step (b, h, t); padding columns of V write nothing.
__device__ void falcon_element(const mixer_task &a, int64_t i, int64_t b, int64_t h, int64_t t, int64_t c) {
    const falcon_step step = compute_step(a, b, h, t);
    a.w[i] = 0.0f;
    a.gamma[i] = 1.0f;
    if (!step.pairs || (a.columns > 1 && c >= a.V)) return;
    const falcon_eta column = compute_eta(a, step, a.beta.get(b, t, h, c));
    a.w[i] = static_cast<float>(column.eta / static_cast<double>(step.pairs));
    a.gamma[i] = static_cast<float>(column.clamped ? a.options.eps_gamma : 1 - column.alpha);
}

__global__ void __launch_bounds__(map_threads) falcon_forward_kernel(const __grid_constant__ mixer_task a) {
    each_element(a.B * a.H * a.T * a.columns, [&](int64_t i) {
        const int64_t step = i / a.columns, t = step % a.T, h = step / a.T % a.H, b = step / a.T / a.H;
        falcon_element(a, i, b, h, t, i % a.columns);
    });
}

__global__ void __launch_bounds__(map_threads) plain_forward_kernel(const __grid_constant__ mixer_task a) {
    each_element(a.B * a.H * a.T, [&](int64_t i) {
        const int64_t t = i % a.T, h = i / a.T % a.H, b = i / a.T / a.H;
        const bool pair = a.pairs(b, t) > 0;
        a.w[i] = !pair ? 0.0f : a.beta.present() ? a.beta.get(b, t, h) : 1.0f;
        a.gamma[i] = pair && a.log_decay.present() ? expf(a.log_decay.get(b, t, h)) : 1.0f;
    });
}

// Sum of d [B,H,slices,T] over the slices of V.
__device__ float slice_sum(const mixer_task &a, const float *d, int64_t b, int64_t h, int64_t t) {
    float sum = 0.0f;
    for (int64_t s = 0; s < a.slices; s++) sum += d[((b * a.H + h) * a.slices + s) * a.T + t];
    return sum;
}

__global__ void __launch_bounds__(map_threads) plain_backward_kernel(const __grid_constant__ mixer_task a) {
    each_element(a.B * a.H * a.T, [&](int64_t i) {
        const int64_t t = i % a.T, h = i / a.T % a.H, b = i / a.T / a.H;
        const bool pair = a.pairs(b, t) > 0;
        if (a.dbeta.present()) a.dbeta.set(pair ? slice_sum(a, a.dw, b, h, t) : 0.0f, b, t, h);
        if (a.dlog_decay.present())
            a.dlog_decay.set(pair ? a.gamma[i] * slice_sum(a, a.dgamma, b, h, t) : 0.0f, b, t, h);
    });
}

// Gradients of one column: adds to those of lambda and E (through the denominator), returns that of beta.
__device__ double column_backward(const mixer_task &a, const falcon_step &step, double beta, double dw, double dgamma,
                                  double *d_lambda, double *d_energy) {
    const falcon_eta column = compute_eta(a, step, beta);
    const double d_alpha = column.clamped ? 0 : -dgamma;
    double d_eta = dw / static_cast<double>(step.pairs) + step.lambda * d_alpha;
    if (column.cut) d_eta = 0;
    *d_lambda += column.eta * d_alpha;
    *d_energy -= beta * d_eta / (step.denominator * step.denominator);
    return d_eta / step.denominator;
}

// From the sums over columns: dlambda, and the gradient of E.
__device__ double step_backward(const mixer_task &a, const falcon_step &step, double d_lambda, double d_energy,
                                double *dlbar) {
    if (a.options.step == FWA_STEP_DIRECT) d_energy = 0;
    d_lambda += d_energy;
    if (a.options.ridge == FWA_RIDGE_NONE) return d_energy;
    const bool coupled = a.options.ridge == FWA_RIDGE_COUPLED;
    *dlbar = coupled ? step.energy * d_lambda : d_lambda;
    return d_energy + (coupled && !a.options.detach_scale ? step.lbar * d_lambda : 0);
}

// A lane of `lanes` lanes takes every `lanes`-th column of a step.
template <int lanes>
__device__ void falcon_backward_step(const mixer_task &a, int64_t i, int64_t b, int64_t h, int64_t t, int lane) {
    const falcon_step step = compute_step(a, b, h, t);
    const int64_t columns = lanes > 1 ? a.V : 1;
    double d_lambda = 0, d_energy = 0, dlbar = 0;
    for (int64_t c = lane; c < columns; c += lanes) {
        double dbeta = 0;
        if (step.pairs) {
            const double dw = lanes > 1 ? a.dw[i * a.columns + c] : slice_sum(a, a.dw, b, h, t);
            const double dgamma = lanes > 1 ? a.dgamma[i * a.columns + c] : slice_sum(a, a.dgamma, b, h, t);
            dbeta = column_backward(a, step, a.beta.get(b, t, h, c), dw, dgamma, &d_lambda, &d_energy);
        }
        if (a.dbeta.present()) a.dbeta.set(static_cast<float>(dbeta), b, t, h, c);
    }
    if (lanes > 1) {
        d_lambda = warp_sum(d_lambda);
        d_energy = warp_sum(d_energy);
    }
    if (lane > 0) return;
    a.denergy[i] = step.pairs ? step_backward(a, step, d_lambda, d_energy, &dlbar) : 0;
    if (a.dlambda.present()) a.dlambda.set(static_cast<float>(dlbar), b, t, h);
}

template <int lanes>
__global__ void __launch_bounds__(map_threads) falcon_backward_kernel(const __grid_constant__ mixer_task a) {
    const auto visit = [&](int64_t i) {
        const int lane = lanes > 1 ? static_cast<int>(threadIdx.x % 32) : 0;
        falcon_backward_step<lanes>(a, i, i / a.T / a.H, i / a.T % a.H, i % a.T, lane);
    };
    if constexpr (lanes > 1)
        each_row(a.B * a.H * a.T, visit);
    else
        each_element(a.B * a.H * a.T, visit);
}

// pulls = sum over the value heads of dE_t, divided by B_t
__global__ void __launch_bounds__(map_threads) pulls_kernel(const __grid_constant__ mixer_task a) {
    each_element(a.B * a.Hq * a.T, [&](int64_t i) {
        const int64_t t = i % a.T, hq = i / a.T % a.Hq, b = i / a.T / a.Hq, pairs = a.pairs(b, t);
        double sum = 0;
        for (int64_t h = hq * a.group; h < (hq + 1) * a.group; h++) sum += a.denergy[(b * a.H + h) * a.T + t];
        a.pulls[i] = pairs > 0 ? sum / static_cast<double>(pairs) : 0;
    });
}

} // namespace

namespace fwa {

fwa_status rate_forward(cudaStream_t stream, rate_kind kind, const mixer_task &task) {
    const unsigned blocks = element_blocks(task.B * task.H * task.T * task.columns);
    switch (kind) {
    case rate_kind::none:
        return FWA_OK;
    case rate_kind::plain:
        FWA_LAUNCH(plain_forward_kernel, blocks, map_threads, 0, stream, task);
        return FWA_OK;
    case rate_kind::falcon:
    case rate_kind::falcon_top:
        FWA_TRY(energy_forward(stream, task));
        FWA_LAUNCH(falcon_forward_kernel, blocks, map_threads, 0, stream, task);
        return FWA_OK;
    }
    FWA_FAIL(FWA_UNSUPPORTED, "the cuda backend has no forward pass of rate kind %d", static_cast<int>(kind));
}

fwa_status rate_backward(cudaStream_t stream, rate_kind kind, const mixer_task &task) {
    const int64_t steps = task.B * task.H * task.T;
    switch (kind) {
    case rate_kind::none:
        return FWA_OK;
    case rate_kind::plain:
        FWA_LAUNCH(plain_backward_kernel, element_blocks(steps), map_threads, 0, stream, task);
        return FWA_OK;
    case rate_kind::falcon:
    case rate_kind::falcon_top:
        if (task.columns > 1)
            FWA_LAUNCH(falcon_backward_kernel<32>, row_blocks(steps), map_threads, 0, stream, task);
        else
            FWA_LAUNCH(falcon_backward_kernel<1>, element_blocks(steps), map_threads, 0, stream, task);
        FWA_LAUNCH(pulls_kernel, element_blocks(task.B * task.Hq * task.T), map_threads, 0, stream, task);
        return FWA_OK;
    }
    FWA_FAIL(FWA_UNSUPPORTED, "the cuda backend has no backward pass of rate kind %d", static_cast<int>(kind));
}

} // namespace fwa
