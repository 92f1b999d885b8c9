// From a projection to the features of a mixing rule (contract: features_forward in ops.def, fwa_feature_options in
// ops.h).
//
//   u_t = sum_i w[:,i] x_{t-W+1+i},  s = silu(u),  n = s rstd over each head,  y = phi(n)
//   rstd = (mean s^2 + eps)^(-1/2) for rms, (sum s^2 + 1e-12)^(-1/2) for l2, 1 without norm
//
// Shapes: x [B,T,H*K] (B, T strided), halo [B,W-1,H*K] (strided) or absent, y [B,T,H,K] dense in T; w [H*K,W], rstd
// [B,T,H] fp32; reset [B,T] u8 or absent: a step sees nothing from before the last reset at or before it. Any sizes, W
// up to 16. Numerics: fp32 between load and store. Cost: bound by memory: x read once, y written once.
// Mapping: 2^n <= 32 lanes a head, a pack of 16 bytes each, with its taps in registers; a lane group walks a run of
// steps of one head, four at a time, and keeps the W - 1 inputs before them. Heads wider than that, rows that are not
// aligned and W > 4 go through a general kernel: it reads the W inputs of a step anew (they are in the first-level
// cache), and computes heads wider than its lanes twice, once for the norm.
#include "kernels/cuda/features.cuh"

namespace {

using namespace fwa;

constexpr int block_threads = 256, steps_a_group = 8;
constexpr int most_walk_taps = 4, ahead = 4, run_steps = 32; // steps loaded at once, steps of a run

template <typename T, int N, int TAPS>
__device__ pack<float, N> activation(const conv_input<T> &in, const taps<N, TAPS> &w, int64_t b, int64_t t, int64_t c,
                                     bool silu) {
    auto s = convolve<N, TAPS>(in, w, b, t, c);
    for (int i = 0; i < N && silu; i++) s.at[i] *= sigmoid<T>(s.at[i]);
    return s;
}

template <typename T, int N> __device__ void write_features(T *y, const pack<float, N> &s, float scale, fwa_phi phi) {
    pack<T, N> out;
    if (phi == FWA_PHI_IDENTITY) {
        for (int i = 0; i < N; i++) out.at[i] = from_float<T>(s.at[i] * scale);
    } else {
        for (int i = 0; i < N; i++) out.at[i] = from_float<T>(phi_value(phi, s.at[i] * scale));
    }
    store(y, out);
}

__device__ float norm_scale(float square, int64_t K, const fwa_feature_options &options) {
    if (options.norm == FWA_NORM_RMS)
        return 1.0f / sqrtf(square / static_cast<float>(K) + static_cast<float>(options.eps));
    return options.norm == FWA_NORM_L2 ? 1.0f / sqrtf(square + eps_l2) : 1.0f;
}

// A block: a run of steps of head h of sequence b.
template <typename T, int N, int TAPS>
__global__ void __launch_bounds__(block_threads)
    features_forward_kernel(T *y, float *rstd, conv_input<T> in, fwa_feature_options options, int lanes, int64_t runs) {
    const int lane = threadIdx.x % lanes, group = threadIdx.x / lanes, groups = block_threads / lanes;
    int64_t rest, run, b, h;
    divide(blockIdx.x, runs, &rest, &run);
    divide(rest, in.H, &b, &h);
    const int64_t first = h * in.K, own = lane * N, width = static_cast<int64_t>(lanes) * N;
    const bool single = in.K <= width;
    taps<N, TAPS> w = {};
    if (own < in.K) w = load_taps<N, TAPS>(in, first + own);
    for (int j = 0; j < steps_a_group; j++) {
        const int64_t t = (run * steps_a_group + j) * groups + group;
        if (t >= in.steps) break;
        pack<float, N> s = {};
        float square = 0.0f;
        for (int64_t v = own; v < in.K; v += width) {
            if (!single) w = load_taps<N, TAPS>(in, first + v);
            s = activation<T, N, TAPS>(in, w, b, t, first + v, options.silu);
            for (int i = 0; i < N; i++) square += s.at[i] * s.at[i];
        }
        const float scale = norm_scale(lanes_sum(square, lanes), in.K, options);
        const int64_t row = (b * in.steps + t) * in.H + h;
        if (options.norm != FWA_NORM_NONE && lane == 0) rstd[row] = scale;
        for (int64_t v = own; v < in.K; v += width) {
            if (!single) {
                w = load_taps<N, TAPS>(in, first + v);
                s = activation<T, N, TAPS>(in, w, b, t, first + v, options.silu);
            }
            write_features<T, N>(y + row * in.K + v, s, scale, options.phi);
        }
    }
}

// u, then s, of step t from the inputs x[0] = x_t, x[-1] = x_{t-1}, ...
template <typename T, int N, int TAPS>
__device__ pack<float, N> activation_of(const pack<T, N> *x, const taps<N, TAPS> &w, int seen, bool silu) {
    pack<float, N> s = {};
#pragma unroll
    for (int back = TAPS - 1; back >= 0; back--) {
        if (back > seen) continue;
#pragma unroll
        for (int i = 0; i < N; i++) s.at[i] += w.at[back][i] * to_float(x[-back].at[i]);
    }
    if (!silu) return s;
#pragma unroll
    for (int i = 0; i < N; i++) s.at[i] *= sigmoid<T>(s.at[i]);
    return s;
}

// A lane group: run_steps steps of head h of sequence b; neighbouring groups take neighbouring heads.
template <typename T, int N, int TAPS>
__global__ void __launch_bounds__(block_threads, 2)
    features_walk_kernel(T *y, float *rstd, conv_input<T> in, fwa_feature_options options, int lanes, int64_t runs) {
    const int64_t group = (static_cast<int64_t>(blockIdx.x) * block_threads + threadIdx.x) / lanes;
    const int lane = threadIdx.x % lanes;
    int64_t rest, run, b, h;
    divide(group, in.H, &rest, &h);
    divide(rest, runs, &b, &run);
    if (b >= in.B) return;
    const bool active = lane * N < in.K; // the others only take part in the sums
    const int64_t c = active ? h * in.K + lane * N : 0, begin = run * run_steps, end = min(begin + run_steps, in.steps);
    const auto w = load_taps<N, TAPS>(in, c);
    pack<T, N> x[TAPS - 1 + ahead];
#pragma unroll
    for (int i = 0; i < TAPS - 1; i++) x[i] = in.template input<N>(b, begin - (TAPS - 1) + i, c);
    for (int64_t t = begin; t < end; t += ahead) {
#pragma unroll
        for (int j = 0; j < ahead; j++) x[TAPS - 1 + j] = load<N>(in.x.at(b, min(t + j, end - 1)) + c);
        pack<float, N> s[ahead];
        float square[ahead];
#pragma unroll
        for (int j = 0; j < ahead; j++) {
            const int seen = in.reset ? in.reach(b, min(t + j, end - 1)) : in.W - 1;
            s[j] = activation_of<T, N, TAPS>(x + TAPS - 1 + j, w, seen, options.silu);
            square[j] = 0.0f;
#pragma unroll
            for (int i = 0; i < N; i++) square[j] += active ? s[j].at[i] * s[j].at[i] : 0.0f;
        }
#pragma unroll
        for (int j = 0; j < ahead; j++) square[j] = lanes_sum(square[j], lanes);
#pragma unroll
        for (int j = 0; j < ahead; j++) {
            if (t + j >= end) continue;
            const float scale = norm_scale(square[j], in.K, options);
            const int64_t row = (b * in.steps + t + j) * in.H + h;
            if (options.norm != FWA_NORM_NONE && lane == 0) rstd[row] = scale;
            if (active) write_features<T, N>(y + row * in.K + lane * N, s[j], scale, options.phi);
        }
#pragma unroll
        for (int i = 0; i < TAPS - 1; i++) x[i] = x[ahead + i];
    }
}

template <typename T>
fwa_status walk(fwa_stream *stream, fwa_tensor y, fwa_tensor rstd, const conv_input<T> &in,
                const fwa_feature_options *options) {
    constexpr int N = pack_size<T>;
    const int lanes = lanes_for(fwa_ceil_div(in.K, N));
    const int64_t runs = fwa_ceil_div(in.steps, run_steps);
    const int64_t blocks = fwa_ceil_div(in.B * in.H * runs, block_threads / lanes);
    FWA_CHECK(blocks <= INT_MAX, FWA_UNSUPPORTED, "y: got [%lld, %lld, %lld, %lld], too large for one launch",
              static_cast<long long>(in.B), static_cast<long long>(in.steps), static_cast<long long>(in.H),
              static_cast<long long>(in.K));
    auto *kernel = in.W == 1 ? features_walk_kernel<T, N, 1> : features_walk_kernel<T, N, most_walk_taps>;
    kernel<<<static_cast<unsigned>(blocks), block_threads, 0, stream->handle>>>(data_of<T>(y), data_of<float>(rstd), in,
                                                                                *options, lanes, runs);
    FWA_CUDA_LAUNCHED();
    return FWA_OK;
}

template <typename T> auto *pick_kernel(bool packed, int W) {
    constexpr int N = pack_size<T>;
    if (packed) return W == 1 ? features_forward_kernel<T, N, 1> : features_forward_kernel<T, N, 4>;
    return W <= 4 ? features_forward_kernel<T, 1, 4> : features_forward_kernel<T, 1, most_taps>;
}

template <typename T>
fwa_status features_forward(fwa_stream *stream, fwa_tensor y, fwa_tensor rstd, fwa_tensor x, fwa_tensor w,
                            fwa_tensor halo, fwa_tensor reset, const fwa_feature_options *options) {
    conv_input<T> in;
    FWA_TRY(features_input<T>(y, rstd, x, w, halo, reset, options, &in));
    constexpr int N = pack_size<T>;
    const bool packed = in.W <= 4 && in.K % N == 0 && rows_aligned(x) && rows_aligned(y) && rows_aligned(halo);
    if (packed && in.K <= 32 * N) {
        FWA_TRY(walk<T>(stream, y, rstd, in, options));
        return FWA_OK;
    }
    const int lanes = lanes_for(fwa_ceil_div(in.K, packed ? N : 1));
    const int64_t runs = fwa_ceil_div(in.steps, steps_a_group * (block_threads / lanes)), blocks = in.B * in.H * runs;
    FWA_CHECK(blocks <= INT_MAX, FWA_UNSUPPORTED, "y: got [%lld, %lld, %lld, %lld], too large for one launch",
              static_cast<long long>(in.B), static_cast<long long>(in.steps), static_cast<long long>(in.H),
              static_cast<long long>(in.K));
    auto *kernel = pick_kernel<T>(packed, in.W);
    kernel<<<static_cast<unsigned>(blocks), block_threads, 0, stream->handle>>>(data_of<T>(y), data_of<float>(rstd), in,
                                                                                *options, lanes, runs);
    FWA_CUDA_LAUNCHED();
    return FWA_OK;
}

} // namespace

FWA_CUDA_ENTRIES(features_forward, features_forward,
                 (fwa_stream * stream, fwa_tensor y, fwa_tensor rstd, fwa_tensor x, fwa_tensor w, fwa_tensor halo,
                  fwa_tensor reset, const fwa_feature_options *options),
                 (stream, y, rstd, x, w, halo, reset, options))
