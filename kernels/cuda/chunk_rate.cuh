// Gates of the chunk kernels, in tile order (chunk.cuh), out of a rule's scalars and keys, and their gradients: what
// rate.cuh is for the general kernels, for rules with one step a head. Of a step with one for every column the column
// kernels ask here what its columns share, sums of gates (rate_gates.cu) one column after another. Scalars are fp32:
// 1 - alpha is at least eps_gamma, and a decay below e^-128 counts as none left.
#ifndef FWA_KERNELS_CUDA_CHUNK_RATE_CUH
#define FWA_KERNELS_CUDA_CHUNK_RATE_CUH

#include "kernels/cuda/chunk.cuh"
#include "kernels/cuda/mixer_task.cuh"
#include "kernels/cuda/rate.cuh"

namespace fwa {

constexpr float log_least = -128.0f; // of a decay: e^-128 is 0 in fp32

// What gradients of gates need; parts of a launch.
struct chunk_rate {
    mixer_task task; // sizes, options, views of scalars; first and drop where documents end inside (else null)
    rate_kind kind;
    float *energy; // [B,Hq,chunks,64]
};

// Gates that are written, as in chunk_task; pairs, far and band where halo > 0.
struct chunk_gates {
    float *u, *w, *pairs, *far;
    band_row *band;
};

// The gates and the energies.
fwa_status chunk_rate_forward(cudaStream_t stream, const chunk_rate &rate, const chunk_task &task,
                              const chunk_gates &to);

// First pair of the window of step t; B_t.
__device__ inline int64_t window_first(const mixer_task &a, int64_t b, int64_t t) {
    if (a.first) return a.first[b * a.T + t];
    const int64_t start = a.shifted && !a.resumed ? a.n + 1 : 0;
    return max(start, a.n + t - a.halo);
}
__device__ inline int window_pairs(const mixer_task &a, int64_t b, int64_t t) {
    return static_cast<int>(a.n + t + 1 - window_first(a, b, t));
}

// What a step's gates are made of.
struct step_scalars {
    int pairs;
    float beta, lbar, log_decay;
};

__device__ inline step_scalars scalars_of_step(const mixer_task &a, int64_t b, int64_t h, int64_t t) {
    step_scalars s = {window_pairs(a, b, t), 1.0f, 0.0f, 0.0f};
    if (a.beta.present()) s.beta = a.beta.get(b, t, h);
    if (a.options.ridge != FWA_RIDGE_NONE && a.lambda.present()) s.lbar = a.lambda.get(b, t, h);
    if (a.log_decay.present()) s.log_decay = a.log_decay.get(b, t, h);
    return s;
}

struct step_gates {
    bool writes, cut, clamped; // has a pair and a denominator; eta was cut by eta_max, alpha by eps_gamma
    float pairs, lambda, denominator, eta, log_decay, w;
};

// The rates that gates_of_step and gates_backward compute.
constexpr bool chunk_knows_rate(rate_kind rate) {
    return rate == rate_kind::plain || rate == rate_kind::falcon;
}

// Equations (3.3), (4.16), (4.20) as in rate.cu; plain: w = beta or 1, the decay as it comes.
__device__ inline step_gates gates_of_step(const chunk_rate &rate, const step_scalars &s, float energy) {
    const fwa_mixer_options &options = rate.task.options;
    step_gates g = {};
    if (s.pairs <= 0) return g;
    g.pairs = static_cast<float>(s.pairs);
    g.denominator = 1.0f;
    if (rate.kind == rate_kind::plain) {
        g.writes = true;
        g.w = s.beta;
        g.log_decay = fmaxf(s.log_decay, log_least);
        return g;
    }
    g.lambda = options.ridge == FWA_RIDGE_COUPLED ? s.lbar * energy : s.lbar;
    if (options.step == FWA_STEP_NORMALIZED) g.denominator = energy + g.lambda + static_cast<float>(options.eps);
    g.writes = g.denominator > 0.0f;
    if (!g.writes) return g;
    const auto most = static_cast<float>(options.eta_max), least = static_cast<float>(options.eps_gamma);
    g.eta = s.beta * quick_reciprocal(g.denominator);
    g.cut = most > 0.0f && g.eta > most;
    if (g.cut) g.eta = most;
    const float alpha = g.eta * g.lambda;
    g.clamped = alpha >= 1.0f - least;
    g.log_decay = fmaxf(g.clamped ? logf(least) : log1pf(-alpha), log_least);
    g.w = g.eta * quick_reciprocal(g.pairs);
    return g;
}

// Sums of n values over `lanes` lanes, each value's sum in lanes / n of them: of value lane / (lanes / n).
template <int lanes, int n> __device__ inline float spread_sums(float (&s)[n], int lane) {
    int offset = lanes / 2;
#pragma unroll
    for (int half = n / 2; half > 0; half /= 2, offset /= 2) {
        const bool up = lane & offset;
#pragma unroll
        for (int i = 0; i < half; i++) {
            const float keep = up ? s[i + half] : s[i], give = up ? s[i] : s[i + half];
            s[i] = keep + __shfl_xor_sync(everyone, give, offset);
        }
    }
    for (; offset > 0; offset /= 2) s[0] += __shfl_xor_sync(everyone, s[0], offset);
    return s[0];
}

// |x_r|^2 of the rows of a tile, by `threads` threads, with up to `most` loads of each under way.
template <int K, int threads, int most = 4>
__device__ inline void key_norms(const chunk_task &a, int64_t b, int64_t hq, int c, int thread, float *norms) {
    constexpr int lanes = K / 8, rows = threads / lanes, batch = 64 / rows < most ? 64 / rows : most;
    const int lane = thread % lanes, first = thread / lanes;
    const int t0 = tile_step(a, c, 0), begin = a.shift - t0, end = a.T - t0;
    const __nv_bfloat16 *from = a.k.row(b, t0 - a.shift + first, hq) + lane * 8;
    const __nv_bfloat16 *head = a.first_x ? a.first_x + (b * a.Hq + hq) * ((a.halo + 1) * K) + lane * 8 : nullptr;
#pragma unroll 1
    for (int done = 0; done < 64; done += batch * rows) {
        uint4 x[batch];
        float sums[batch] = {};
#pragma unroll
        for (int i = 0; i < batch; i++, from += rows * a.k.time) {
            const int row = done + first + i * rows;
            const __nv_bfloat16 *at = row >= begin ? from : head ? head + row * K : nullptr;
            x[i] = make_uint4(0, 0, 0, 0);
            if (at && row < end) x[i] = *reinterpret_cast<const uint4 *>(at);
        }
#pragma unroll
        for (int i = 0; i < batch; i++) {
            const uint32_t words[4] = {x[i].x, x[i].y, x[i].z, x[i].w};
#pragma unroll
            for (uint32_t pair : words) {
                const float low = __uint_as_float(pair << 16), high = __uint_as_float(pair & 0xffff0000u);
                sums[i] += low * low, sums[i] += high * high;
            }
        }
        const float sum = spread_sums<lanes>(sums, lane);
        if (lane % (lanes / batch) == 0) norms[done + first + lane / (lanes / batch) * rows] = sum;
    }
}

// Into the first level of the cache; far: the second.
__device__ inline void prefetch_scalars(const mixer_task &a, int64_t b, int64_t h, int64_t t, bool far = false) {
    const view *const views[] = {&a.beta, &a.lambda, &a.log_decay};
#pragma unroll
    for (const view *v : views) {
        if (!v->present()) continue;
        const float *from = static_cast<const float *>(v->data) + v->offset(b, t, h, 0);
        far ? prefetch_far(from) : prefetch(from);
    }
}

// Writes dbeta, dlambda, dlog_decay of a step from the gradients of w and of the log of the decay; returns that of the
// energy over B_t.
__device__ inline float gates_backward(const chunk_rate &rate, int64_t b, int64_t h, int64_t t, float energy, float dw,
                                       float dlg) {
    const mixer_task &a = rate.task;
    const step_scalars s = scalars_of_step(a, b, h, t);
    const step_gates g = gates_of_step(rate, s, energy);
    if (rate.kind == rate_kind::plain) {
        if (a.dbeta.present()) a.dbeta.set(g.writes ? dw : 0.0f, b, t, h);
        if (a.dlog_decay.present()) a.dlog_decay.set(g.writes ? dlg : 0.0f, b, t, h);
        return 0.0f;
    }
    float dbeta = 0.0f, dlbar = 0.0f, d_energy = 0.0f;
    if (g.writes) {
        const float d_alpha = g.clamped ? 0.0f : -dlg * quick_reciprocal(1.0f - g.eta * g.lambda);
        const float share = quick_reciprocal(g.pairs), over = quick_reciprocal(g.denominator);
        const float d_eta = g.cut ? 0.0f : dw * share + g.lambda * d_alpha;
        dbeta = d_eta * over;
        if (a.options.step == FWA_STEP_NORMALIZED) d_energy = -s.beta * dbeta * over;
        const float d_lambda = g.eta * d_alpha + d_energy;
        if (a.options.ridge == FWA_RIDGE_COUPLED) {
            dlbar = energy * d_lambda;
            if (!a.options.detach_scale) d_energy += s.lbar * d_lambda;
        } else if (a.options.ridge == FWA_RIDGE_UNCOUPLED) {
            dlbar = d_lambda;
        }
        d_energy *= share;
    }
    if (a.dbeta.present()) a.dbeta.set(dbeta, b, t, h);
    if (a.dlambda.present()) a.dlambda.set(dlbar, b, t, h);
    return d_energy;
}

} // namespace fwa
#endif
