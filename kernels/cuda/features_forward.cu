// From a projection to the features of a mixing rule (contract: features_forward in ops.def, fwa_feature_options in
// ops.h).
//
//   u_t = sum_i w[:,i] x_{t-W+1+i},  s = silu(u),  n = s rstd over each head,  y = phi(n)
//   rstd = (mean s^2 + eps)^(-1/2) for rms, (sum s^2 + 1e-12)^(-1/2) for l2, 1 without norm
//
// Shapes: x [B,T,H*K] (B, T strided), halo [B,W-1,H*K] (strided) or absent, y [B,T,H,K] dense in T; w [H*K,W], rstd
// [B,T,H] fp32; reset [B,T] u8 or absent: a step sees nothing from before the last reset at or before it. Any sizes, W
// up to 16. Numerics: fp32 between load and store. Cost: bound by memory: x read once, y written once.
// Mapping: 4 to 32 lanes a head, a pack of 16 bytes each, with its taps in registers; a lane group walks a run of steps
// of one head, four at a time, keeps the W - 1 inputs before them, and loads the next four while it works. Heads wider
// than that, rows that are not aligned and W > 4 go through a general kernel: it reads the W inputs of a step anew
// (they are in the first-level cache), and computes heads wider than its lanes twice, once for the norm.
#include "kernels/cuda/features.cuh"

namespace {

using namespace fwa;

constexpr int block_threads = 256, steps_a_group = 8;
constexpr int walk_threads = 128, most_walk_taps = 4;

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

// Channels of a lane, and blocks that must fit a multiprocessor.
template <typename T> constexpr int walk_columns = pack_size<T>;
template <typename T> constexpr int walk_blocks = sizeof(T) == 2 ? 4 : 2;

// Steps t .. t + 3 before `end`, the last one again beyond it.
template <typename T, int N>
__device__ void load_batch(pieces<T, N> (&raw)[batch], const walk_column<const T> &from, int t, int end) {
    if (t + batch <= end) {
#pragma unroll
        for (int j = 0; j < batch; j++) raw[j] = load_words<N>(from.step(t + j));
        return;
    }
#pragma unroll
    for (int j = 0; j < batch; j++) raw[j] = load_words<N>(from.step(min(t + j, end - 1)));
}

// s of one step from the ring of inputs, x[i % 4] = x_i.
template <typename T, int N, int TAPS, walk_kind KIND>
__device__ void walk_activation(float (&s)[N], const float (&x)[batch][N], const taps<N, TAPS> &w, int j, int seen,
                                bool silu) {
#pragma unroll
    for (int i = 0; i < N; i++) {
        float u = 0.0f;
#pragma unroll
        for (int back = TAPS - 1; back >= 0; back--)
            if (KIND == WALK_LEAN || back <= seen) u += w.at[back][i] * x[(j - back) & (batch - 1)][i];
        if (KIND != WALK_GENERAL)
            s[i] = u * quick_reciprocal(1.0f + power2(u));
        else
            s[i] = silu ? u * sigmoid<T>(u) : u;
    }
}

// A lane group: a run of head h of sequence b.
template <typename T, int N, int TAPS, walk_kind KIND>
__global__ void __launch_bounds__(walk_threads, walk_blocks<T>)
    features_walk_kernel(T *y, float *rstd, conv_input<T> in, fwa_feature_options options, walk_norm norm,
                         walk_shape shape) {
    constexpr bool LEAN = KIND != WALK_GENERAL, resets = KIND != WALK_LEAN && TAPS > 1;
    const int lanes = shape.lanes, lane = static_cast<int>(threadIdx.x) % lanes, quarter = lanes / batch;
    const int64_t group = (static_cast<int64_t>(blockIdx.x) * walk_threads + threadIdx.x) / lanes;
    int64_t rest, run, b, h;
    divide(group, in.H, &rest, &h);
    divide(rest, shape.runs, &b, &run);
    const bool exists = b < in.B, active = exists && lane * N < in.K; // the others only take part in the sums
    if (!exists) b = 0;
    const int64_t c = active ? h * in.K + lane * N : 0, P = in.H * in.K;
    const int begin = static_cast<int>(run) * shape.run, end = min(begin + shape.run, static_cast<int>(in.steps));
    auto w = load_taps<N, TAPS>(in, c);
    float x[batch][N] = {};
#pragma unroll
    for (int back = 0; back < TAPS; back++) {
#pragma unroll
        for (int i = 0; i < N; i++) w.at[back][i] *= walk_scale<KIND>;
        if (back > 0 && active) unpack(x[batch - back], in.template words<N>(b, begin - back, c));
    }
    const auto from = walk_along(in.x.at(b, 0) + c, shape.x_bytes);
    const auto to = walk_along(y + b * in.steps * P + c, shape.row_bytes);
    pieces<T, N> raw[batch] = {};
    if (active) load_batch(raw, from, begin, end);
    const int steps = static_cast<int>(in.steps);
    unsigned flags = resets && in.reset ? reset_flags(in.reset + b * in.steps, begin + batch - 1, steps, lanes) : 0;
    float *own_rstd = rstd + (b * in.steps + begin + lane / quarter) * in.H + h;
    const int own_steps = norm.present && exists && lane % quarter == 0 ? end - lane / quarter : 0;
    for (int t = begin; t < begin + shape.run; t += batch) {
        float s[batch][N], square[batch];
        const unsigned bits = resets ? reset_bits(flags, lanes) : 0;
        if (resets && in.reset) flags = reset_flags(in.reset + b * in.steps, t + 2 * batch - 1, steps, lanes);
#pragma unroll
        for (int j = 0; j < batch; j++) {
            const int seen = resets ? reset_reach(bits >> (batch - 1 - j)) : TAPS - 1;
            unpack(x[j], raw[j]);
            walk_activation<T, N, TAPS, KIND>(s[j], x, w, j, seen, options.silu);
            square[j] = 0.0f;
#pragma unroll
            for (int i = 0; i < N; i++) square[j] += s[j][i] * s[j][i];
        }
        if (active && t + batch < end) load_batch(raw, from, t + batch, end);
        float scale[batch] = {1.0f, 1.0f, 1.0f, 1.0f};
        if (norm.present) {
            const float own = rsqrtf(lanes_sum4(square, lanes) * norm.scale + norm.bias);
            if (t < own_steps) *own_rstd = own;
            own_rstd += batch * in.H;
#pragma unroll
            for (int j = 0; j < batch; j++) scale[j] = lanes_get(own, j * quarter, lanes);
        }
#pragma unroll
        for (int j = 0; j < batch; j++) {
#pragma unroll
            for (int i = 0; i < N; i++) {
                const float n = s[j][i] * (LEAN ? -ln_2 * scale[j] : scale[j]);
                s[j][i] = LEAN ? n : phi_value(options.phi, n);
            }
            if (active && t + j < end) store(to.step(t + j), repack<T>(s[j]));
        }
    }
}

template <typename T, walk_kind KIND> auto *pick_walk(int W) {
    constexpr int N = walk_columns<T>;
    return W == 1 ? features_walk_kernel<T, N, 1, KIND> : features_walk_kernel<T, N, most_walk_taps, KIND>;
}

template <typename T> auto *pick_walk(int W, walk_kind kind) {
    if constexpr (sizeof(T) == 2) {
        if (kind == WALK_LEAN) return pick_walk<T, WALK_LEAN>(W);
        if (kind == WALK_LEAN_RESETS) return pick_walk<T, WALK_LEAN_RESETS>(W);
    }
    return pick_walk<T, WALK_GENERAL>(W);
}

template <typename T>
fwa_status walk(fwa_stream *stream, fwa_tensor y, fwa_tensor rstd, const conv_input<T> &in,
                const fwa_feature_options *options) {
    const walk_kind kind = walk_kind_of<T>(options, in.reset);
    const int lanes = fwa_max(batch, lanes_for(fwa_ceil_div(in.K, walk_columns<T>)));
    const int64_t resident = static_cast<int64_t>(stream->multiprocessors) * walk_blocks<T> * walk_threads;
    walk_shape shape = make_walk(in.B * in.H, in.steps, lanes, fwa_max(resident / lanes, 1), 8);
    shape.x_bytes = step_bytes<T>(in.x.t), shape.row_bytes = step_bytes<T>(in.H * in.K);
    const int64_t blocks = fwa_ceil_div(in.B * in.H * shape.runs * lanes, walk_threads);
    FWA_CHECK(blocks <= INT_MAX, FWA_UNSUPPORTED, "y: got [%lld, %lld, %lld, %lld], too large for one launch",
              static_cast<long long>(in.B), static_cast<long long>(in.steps), static_cast<long long>(in.H),
              static_cast<long long>(in.K));
    auto *kernel = pick_walk<T>(in.W, kind);
    kernel<<<static_cast<unsigned>(blocks), walk_threads, 0, stream->handle>>>(
        data_of<T>(y), data_of<float>(rstd), in, *options, walk_norm_of(*options, in.K, kind != WALK_GENERAL), shape);
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
    const sequences<T> to = {data_of<T>(y), in.steps * in.H * in.K, in.H * in.K};
    if (features_copy(options))
        return copy_features<T>(stream, to, in.x, in.B, in.steps, in.H * in.K, rows_aligned(x) && rows_aligned(y));
    const bool packed = in.W <= 4 && in.K % N == 0 && rows_aligned(x) && rows_aligned(y) && rows_aligned(halo);
    if (packed && in.K <= 32 * walk_columns<T> && walk_fits(in, 0)) {
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
