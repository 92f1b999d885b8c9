// The gradient of features_forward.cu (contract: features_backward in ops.def). With s = silu(u), n = s rstd,
// e = dy phi'(n), everything but x, dy and rstd recomputed:
//
//   ds = rstd (e - n c),  c = mean(e n) for rms, sum(e n) for l2, 0 without norm;   du = ds silu'(u)
//   dx_t = sum_{j} w[:,W-1-j] du_{t+j},   dw[:,W-1-j] += sum_t du_t x_{t-j},   dhalo the same as dx before step 0,
//   over the j for which step t + j (t) sees x_t (x_{t-j})
//
// Shapes: dy [B,T,H,K] dense, x, dx [B,T,H*K], halo, dhalo [B,W-1,H*K] in T (strided), dhalo or halo or reset may be
// absent; w, dw [H*K,W], rstd [B,T,H] fp32. Any sizes, W up to 16. dx may be dy's memory no more than x's. Numerics:
// fp32 between load and store. Sums in an order fixed by the sizes and the number of multiprocessors. Cost: bound by
// memory: x and dy read, dx written. Mapping: features_walk.cuh has the quick kernel for W <= 4, aligned rows and heads
// of up to 32 packs of 4. Here stands the general one, a channel a lane: c comes from a kernel of its own through the
// workspace; a warp walks runs of 32 steps backwards in time, beginning W - 1 steps after their end: du_t is added to
// the W sums that become dx_t .. dx_{t-W+1}; inputs slide through registers, loaded two steps ahead; dw sums stay in
// registers over all runs of a warp, then go to the workspace and are added in order.
#include "kernels/cuda/features_walk.cuh"

namespace {

using namespace fwa;

constexpr int block_threads = 128, run_steps = 32;
constexpr int ahead = 2; // steps whose inputs are loaded before their use
constexpr int warps_per_multiprocessor = 16;
constexpr size_t most_pull_bytes = FWA_CUDA_WORKSPACE_BYTES / 2;

// phi'(n) of N channels, in one loop for the identity.
template <int N> __device__ void slopes(float *slope, const float *n, fwa_phi phi) {
#pragma unroll
    for (int i = 0; i < N; i++) slope[i] = 1.0f;
    if (phi == FWA_PHI_IDENTITY) return;
#pragma unroll
    for (int i = 0; i < N; i++) slope[i] = phi_slope(phi, n[i]);
}

// N channels of a step: from u, which must be set, to what both the head's sum and du need.
template <typename T, int N> struct channels {
    float u[N], gate[N], n[N], e[N];
    __device__ float dot(const pack<T, N> &dy, float scale, const fwa_feature_options &options) {
        float sum = 0.0f;
#pragma unroll
        for (int i = 0; i < N; i++) {
            gate[i] = options.silu ? sigmoid<T>(u[i]) : 1.0f;
            n[i] = u[i] * gate[i] * scale;
        }
        slopes<N>(e, n, options.phi);
#pragma unroll
        for (int i = 0; i < N; i++) {
            e[i] *= to_float(dy.at[i]);
            sum += e[i] * n[i];
        }
        return sum;
    }
    __device__ void du(float *out, float scale, float pull, bool silu) const {
#pragma unroll
        for (int i = 0; i < N; i++) {
            const float ds = scale * (e[i] - n[i] * pull);
            out[i] = silu ? ds * silu_slope(u[i], gate[i]) : ds;
        }
    }
};

__device__ float pull_factor(const fwa_feature_options &options, int64_t K) {
    if (options.norm == FWA_NORM_NONE) return 0.0f;
    return options.norm == FWA_NORM_RMS ? 1.0f / static_cast<float>(K) : 1.0f;
}

// pull[b,t,h] = c of every head, for heads wider than a lane group; one warp a head.
template <typename T, int TAPS>
__global__ void __launch_bounds__(block_threads)
    features_pull_kernel(float *pull, const T *dy, const float *rstd, conv_input<T> in, fwa_feature_options options) {
    const int64_t heads = in.B * in.steps * in.H;
    for (int64_t row = static_cast<int64_t>(blockIdx.x) * (block_threads / 32) + threadIdx.x / 32; row < heads;
         row += static_cast<int64_t>(gridDim.x) * (block_threads / 32)) {
        int64_t at, b, t, h;
        divide(row, in.H, &at, &h);
        divide(at, in.steps, &b, &t);
        float sum = 0.0f;
        for (int64_t v = threadIdx.x % 32; v < in.K; v += 32) {
            const auto w = load_taps<1, TAPS>(in, h * in.K + v);
            channels<T, 1> one;
            one.u[0] = convolve<1, TAPS>(in, w, b, t, h * in.K + v).at[0];
            sum += one.dot(load<1>(dy + row * in.K + v), rstd[row], options);
        }
        sum = lanes_sum(sum, 32);
        if (threadIdx.x % 32 == 0) pull[row] = sum * pull_factor(options, in.K);
    }
}

// Where a lane group works: N channels from c of head h, runs slot, slot + slots, ...
struct place {
    int64_t c, h;
    bool active; // lanes beyond a head that is no power of two packs wide only take part in its sums
};

template <typename T> struct gradients {
    sequences<T> dx, dhalo;
    const T *dy;
    const float *rstd, *pull;
};

// du of N channels at step t from its inputs x_t, x_{t-1}, ...
template <typename T, int N, int TAPS>
__device__ void step_gradient(float *du, const pack<T, N> *x, const taps<N, TAPS> &w, const pack<T, N> &dy, float scale,
                              int seen, int64_t row, const place &at, const conv_input<T> &in, const gradients<T> &out,
                              const fwa_feature_options &options) {
    channels<T, N> all;
#pragma unroll
    for (int i = 0; i < N; i++) all.u[i] = 0.0f;
#pragma unroll
    for (int back = TAPS - 1; back >= 0; back--) {
        if (back > seen) continue;
#pragma unroll
        for (int i = 0; i < N; i++) all.u[i] += w.at[back][i] * to_float(x[back].at[i]);
    }
    all.dot(dy, scale, options);
    all.du(du, scale, options.norm == FWA_NORM_NONE ? 0.0f : out.pull[row], options.silu);
}

template <typename T, int N> __device__ void write_gradient(T *to, const float *sum) {
    pack<T, N> value;
#pragma unroll
    for (int i = 0; i < N; i++) value.at[i] = from_float<T>(sum[i]);
    store(to, value);
}

// Steps [begin, begin + run_steps) of sequence b, backwards; adds to dw[back][i].
template <typename T, int N, int TAPS>
__device__ void walk(float (*dw)[N], const taps<N, TAPS> &w, int64_t b, int64_t begin, const place &at,
                     const conv_input<T> &in, const gradients<T> &out, const fwa_feature_options &options) {
    const int64_t end = min(begin + run_steps, in.steps), top = min(end + in.W - 1, in.steps) - 1;
    pack<T, N> x[TAPS + ahead] = {}, dy[1 + ahead] = {}; // of steps t, t - 1, ...
    float dx[TAPS][N] = {}, scale[1 + ahead] = {};
    const T *gradient = out.dy + at.c;
    const int64_t P = in.H * in.K;
    if (at.active) {
#pragma unroll
        for (int back = 0; back < TAPS + ahead; back++) x[back] = in.template input<N>(b, top - back, at.c);
#pragma unroll
        for (int back = 0; back < 1 + ahead; back++)
            dy[back] = load<N>(gradient + (b * in.steps + max(top - back, begin)) * P);
    }
    const auto scale_at = [&](int64_t t) {
        return options.norm == FWA_NORM_NONE ? 1.0f : out.rstd[(b * in.steps + max(t, begin)) * in.H + at.h];
    };
#pragma unroll
    for (int back = 0; back < 1 + ahead; back++) scale[back] = scale_at(top - back);
    for (int64_t t = top; t >= begin; t--) {
        const float next_scale = scale_at(t - 1 - ahead);
        pack<T, N> next_x = {}, next_dy = {};
        if (at.active && t > begin) {
            next_x = in.template input<N>(b, t - TAPS - ahead, at.c);
            next_dy = load<N>(gradient + (b * in.steps + max(t - 1 - ahead, begin)) * P);
        }
        const int seen = in.reset ? in.reach(b, t) : in.W - 1;
        const int64_t row = (b * in.steps + t) * in.H + at.h;
        float du[N];
        step_gradient<T, N, TAPS>(du, x, w, dy[0], scale[0], seen, row, at, in, out, options);
#pragma unroll
        for (int back = 0; back < TAPS; back++) {
            if (back > seen) continue;
#pragma unroll
            for (int i = 0; i < N; i++) {
                dx[back][i] += w.at[back][i] * du[i];
                if (t < end) dw[back][i] += to_float(x[back].at[i]) * du[i];
            }
        }
        if (at.active && t < end) write_gradient<T, N>(out.dx.at(b, t) + at.c, dx[0]);
#pragma unroll
        for (int back = 0; back + 1 < TAPS + ahead; back++) x[back] = x[back + 1];
        x[TAPS + ahead - 1] = next_x;
#pragma unroll
        for (int back = 0; back < ahead; back++) dy[back] = dy[back + 1], scale[back] = scale[back + 1];
        dy[ahead] = next_dy;
        scale[ahead] = next_scale;
#pragma unroll
        for (int back = 0; back + 1 < TAPS; back++)
#pragma unroll
            for (int i = 0; i < N; i++) dx[back][i] = dx[back + 1][i];
#pragma unroll
        for (int i = 0; i < N; i++) dx[TAPS - 1][i] = 0.0f;
    }
    if (begin > 0 || !at.active || !out.dhalo.data) return;
#pragma unroll
    for (int back = 0; back + 1 < TAPS; back++)
        if (back < in.W - 1) write_gradient<T, N>(out.dhalo.at(b, in.W - 2 - back) + at.c, dx[back]);
}

// partial[slots][P*W]: a warp takes 32 channels of runs slot, slot + slots, ...
template <typename T, int N, int TAPS>
__global__ void __launch_bounds__(block_threads, 3)
    features_backward_kernel(gradients<T> out, float *partial, conv_input<T> in, fwa_feature_options options, int lanes,
                             int64_t slots, int64_t tiles) {
    const int64_t group = (static_cast<int64_t>(blockIdx.x) * block_threads + threadIdx.x) / lanes;
    const int lane = threadIdx.x % lanes;
    int64_t slot, tile_at;
    divide(group, tiles, &slot, &tile_at);
    if (slot >= slots) return;
    place at;
    at.c = tile_at * lanes + lane;
    at.active = at.c < in.H * in.K;
    at.h = at.active ? at.c / in.K : 0;
    taps<N, TAPS> w = {};
    if (at.active) w = load_taps<N, TAPS>(in, at.c);
    float dw[TAPS][N] = {};
    const int64_t runs_a_sequence = (in.steps + run_steps - 1) / run_steps, runs = in.B * runs_a_sequence;
    for (int64_t run = slot; run < runs; run += slots) {
        int64_t b, piece;
        divide(run, runs_a_sequence, &b, &piece);
        walk<T, N, TAPS>(dw, w, b, piece * run_steps, at, in, out, options);
    }
    if (!at.active || !partial) return;
    float *to = partial + slot * in.H * in.K * in.W + at.c * in.W;
#pragma unroll
    for (int back = 0; back < TAPS; back++)
#pragma unroll
        for (int j = 0; j < N; j++)
            if (back < in.W) to[j * in.W + in.W - 1 - back] = dw[back][j];
}

// How a launch is laid out: warps of one channel a lane.
struct plan {
    int64_t tiles, slots;
};

template <typename T> plan make_plan(const fwa_stream *stream, const conv_input<T> &in, size_t used) {
    plan p;
    p.tiles = fwa_ceil_div(in.H * in.K, 32);
    const int64_t warps = static_cast<int64_t>(stream->multiprocessors) * warps_per_multiprocessor;
    p.slots = fwa_min(in.B * fwa_ceil_div(in.steps, run_steps), fwa_ceil_div(warps, p.tiles));
    if (in.w) p.slots = partial_rows(p.slots, in.H * in.K * in.W, used);
    return p;
}

template <typename T>
fwa_status launch(fwa_stream *stream, const gradients<T> &out, float *dw, const conv_input<T> &in,
                  const fwa_feature_options *options) {
    const size_t pull_bytes = static_cast<size_t>(fwa_round_up(in.B * in.steps * in.H, 64)) * sizeof(float);
    const plan p = make_plan(stream, in, pull_bytes);
    FWA_CHECK(p.slots >= 1, FWA_UNSUPPORTED,
              "w: got [%lld, %d]; features_backward on CUDA has no room for its gradient",
              static_cast<long long>(in.H * in.K), in.W);
    auto *pull = static_cast<float *>(stream->workspace), *partial = pull + pull_bytes / sizeof(float);
    if (options->norm != FWA_NORM_NONE) {
        auto *kernel = in.W <= 4 ? features_pull_kernel<T, 4> : features_pull_kernel<T, most_taps>;
        const unsigned blocks = grid(stream, in.B * in.steps * in.H, block_threads / 32, 16);
        kernel<<<blocks, block_threads, 0, stream->handle>>>(pull, out.dy, out.rstd, in, *options);
        FWA_CUDA_LAUNCHED();
    }
    gradients<T> to = out;
    to.pull = pull;
    const int64_t blocks = fwa_ceil_div(p.slots * p.tiles * 32, block_threads);
    FWA_CHECK(blocks <= INT_MAX, FWA_UNSUPPORTED, "dx: got %lld channels, too many for one launch",
              static_cast<long long>(in.H * in.K));
    auto *kernel = in.W <= 4 ? features_backward_kernel<T, 1, 4> : features_backward_kernel<T, 1, most_taps>;
    kernel<<<static_cast<unsigned>(blocks), block_threads, 0, stream->handle>>>(to, in.w ? partial : nullptr, in,
                                                                                *options, 32, p.slots, p.tiles);
    FWA_CUDA_LAUNCHED();
    if (in.w) FWA_TRY(reduce_rows(stream, dw, partial, p.slots, in.H * in.K * in.W));
    return FWA_OK;
}

// Sequences [first, first + count) of a tensor; an absent one stays so.
fwa_tensor piece(fwa_tensor t, int64_t first, int64_t count) {
    return fwa_tensor_present(t) ? fwa_tensor_slice(t, 0, first, count) : t;
}

template <typename T>
fwa_status features_backward(fwa_stream *stream, fwa_tensor dx, fwa_tensor dw, fwa_tensor dhalo, fwa_tensor dy,
                             fwa_tensor rstd, fwa_tensor x, fwa_tensor w, fwa_tensor halo, fwa_tensor reset,
                             const fwa_feature_options *options) {
    conv_input<T> in;
    FWA_TRY(features_input<T>(dy, rstd, x, w, halo, reset, options, &in));
    const int64_t P = in.H * in.K, a_sequence = in.steps * in.H * static_cast<int64_t>(sizeof(float));
    FWA_EXPECT(dx, element<T>::dtype, 3, in.B, in.steps, P);
    if (options->width > 0) FWA_EXPECT_DENSE(dw, FWA_F32, 2, P, options->width);
    if (fwa_tensor_present(dhalo)) FWA_EXPECT(dhalo, element<T>::dtype, 3, in.B, static_cast<int64_t>(in.W - 1), P);
    const bool aligned =
        rows_aligned(x) && rows_aligned(dx) && rows_aligned(dy) && rows_aligned(halo) && rows_aligned(dhalo);
    if (features_copy(options))
        return copy_features<T>(stream, sequences_of<T>(dx), {data_of<const T>(dy), in.steps * P, P}, in.B, in.steps, P,
                                aligned);
    if (walks_back(in, dx.stride[1], aligned)) {
        const walk_gradients<T> to = {sequences_of<T>(dx), sequences_of<T>(dhalo), data_of<const T>(dy),
                                      data_of<const float>(rstd), nullptr};
        return walk_back<T>(stream, to, data_of<float>(dw), in, options);
    }
    const int64_t most = static_cast<int64_t>(most_pull_bytes) / a_sequence;
    FWA_CHECK(most >= 1, FWA_UNSUPPORTED, "dy: got %lld steps of %lld heads; features_backward on CUDA takes %zu MiB",
              static_cast<long long>(in.steps), static_cast<long long>(in.H), most_pull_bytes >> 20);
    for (int64_t b = 0, B = in.B; b < B; b += most) {
        const int64_t count = fwa_min(most, B - b);
        conv_input<T> some;
        FWA_TRY(features_input<T>(piece(dy, b, count), piece(rstd, b, count), piece(x, b, count), w,
                                  piece(halo, b, count), piece(reset, b, count), options, &some));
        const gradients<T> out = {sequences_of<T>(piece(dx, b, count)), sequences_of<T>(piece(dhalo, b, count)),
                                  data_of<const T>(piece(dy, b, count)), data_of<const float>(piece(rstd, b, count)),
                                  nullptr};
        FWA_TRY(launch<T>(stream, out, data_of<float>(dw), some, options));
    }
    return FWA_OK;
}

} // namespace

FWA_CUDA_ENTRIES(features_backward, features_backward,
                 (fwa_stream * stream, fwa_tensor dx, fwa_tensor dw, fwa_tensor dhalo, fwa_tensor dy, fwa_tensor rstd,
                  fwa_tensor x, fwa_tensor w, fwa_tensor halo, fwa_tensor reset, const fwa_feature_options *options),
                 (stream, dx, dw, dhalo, dy, rstd, x, w, halo, reset, options))
