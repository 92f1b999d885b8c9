// RMSNorm and its gradient, for f32 and bf16 activations (contract: rmsnorm_forward, rmsnorm_backward in ops.def).
//
//   y[r,d]   = x[r,d] rstd[r] w[d],   rstd[r] = (mean_d x[r,d]^2 + eps)^(-1/2)
//   dx[r,d] (+)= rstd (dy w - x rstd^2 mean_d(dy w x)),   dw[d] += sum_r dy x rstd
//
// Shapes: x, y, dy, dx [R,D] in T, rows may be strided; w, dw [D], rstd [R] in fp32. Any R, D >= 1, where D fp32 sums
// must fit the workspace once. y, rstd overwritten; dw accumulated; dx as told; dx may be dy. Numerics: everything
// between load and store is fp32; one rounding to T a result. No atomics, all sums in a fixed order that depends on R,
// D and the GPU's number of multiprocessors only: same bits every time. Cost: bound by memory. Forward reads x and
// writes y; backward reads x, dy (and dx) and writes dx; a row's second reading hits the first-level cache. dw: one row
// of D partial sums a block, at most 8 blocks a multiprocessor. Mapping: one block a row at a time, a thread holds
// every blockDim-th pack of 16 bytes (single elements where rows are not aligned or D is no multiple of the pack).
// Aligned rows of up to 512 packs are held in registers by teams (rows.cuh), and so are the dw sums of a thread's
// columns. For other rows a thread keeps these in shared memory (in the partial sums themselves for wide rows). No two
// threads meet; a second kernel adds the partial sums.
#include "kernels/cuda/rows.cuh"

namespace {

using namespace fwa;

constexpr int64_t shared_columns = 8192; // dw sums of a row that fit the shared memory of a block
constexpr int blocks_per_multiprocessor = 8, forward_blocks = 8; // of the general kernels; of teams, forward

template <typename T, int N>
__global__ void __launch_bounds__(256)
    rmsnorm_forward_kernel(rows<T> y, float *rstd, rows<const T> x, const float *w, int64_t R, int64_t D, float eps) {
    __shared__ float space[32];
    const int64_t first = static_cast<int64_t>(threadIdx.x) * N, step = static_cast<int64_t>(blockDim.x) * N;
    for (int64_t r = blockIdx.x; r < R; r += gridDim.x) {
        const T *xr = x.row(r);
        T *yr = y.row(r);
        float square = 0.0f;
        for (int64_t d = first; d < D; d += step) {
            const auto xs = load<N>(xr + d);
            float part = 0.0f; // packs first: shorter chains of additions for wide rows
            for (int i = 0; i < N; i++) part += to_float(xs.at[i]) * to_float(xs.at[i]);
            square += part;
        }
        const float scale = 1.0f / sqrtf(block_sum(square, space) / static_cast<float>(D) + eps);
        if (threadIdx.x == 0) rstd[r] = scale;
        for (int64_t d = first; d < D; d += step) {
            const auto xs = load<N>(xr + d);
            const auto ws = load<N>(w + d);
            pack<T, N> ys;
            for (int i = 0; i < N; i++) ys.at[i] = from_float<T>(to_float(xs.at[i]) * scale * ws.at[i]);
            store(yr + d, ys);
        }
    }
}

// mean_d(dy w x) of one row, on every thread of the block.
template <typename T, int N>
__device__ float row_projection(const T *dyr, const T *xr, const float *w, int64_t D, float *space) {
    float dot = 0.0f;
    for (int64_t d = static_cast<int64_t>(threadIdx.x) * N; d < D; d += static_cast<int64_t>(blockDim.x) * N) {
        const auto dys = load<N>(dyr + d), xs = load<N>(xr + d);
        const auto ws = load<N>(w + d);
        float part = 0.0f;
        for (int i = 0; i < N; i++) part += to_float(dys.at[i]) * ws.at[i] * to_float(xs.at[i]);
        dot += part;
    }
    return block_sum(dot, space) / static_cast<float>(D);
}

// partial[gridDim, D]: block b's sum of dy x rstd over its rows b, b + gridDim, ...
template <typename T, int N>
__global__ void __launch_bounds__(256)
    rmsnorm_backward_kernel(rows<T> dx, float *partial, rows<const T> dy, rows<const T> x, const float *w,
                            const float *rstd, int64_t R, int64_t D, bool accumulate) {
    __shared__ float space[32];
    extern __shared__ __align__(16) float shared[];
    float *out = partial + blockIdx.x * D;
    float *sums = D <= shared_columns ? shared : out;
    const int64_t first = static_cast<int64_t>(threadIdx.x) * N, step = static_cast<int64_t>(blockDim.x) * N;
    for (int64_t d = first; d < D; d += step) store(sums + d, pack<float, N>{});
    for (int64_t r = blockIdx.x; r < R; r += gridDim.x) {
        const T *dyr = dy.row(r), *xr = x.row(r);
        T *dxr = dx.row(r);
        const float scale = rstd[r];
        const float pull = row_projection<T, N>(dyr, xr, w, D, space) * scale * scale;
        for (int64_t d = first; d < D; d += step) {
            const auto dys = load<N>(dyr + d), xs = load<N>(xr + d);
            const auto ws = load<N>(w + d);
            auto own = load<N>(sums + d);
            pack<T, N> old = {}, dxs;
            if (accumulate) old = load<N>(dxr + d);
            for (int i = 0; i < N; i++) {
                const float g = to_float(dys.at[i]), u = to_float(xs.at[i]);
                const float gradient = scale * (g * ws.at[i] - u * pull);
                dxs.at[i] = from_float<T>(accumulate ? to_float(old.at[i]) + gradient : gradient);
                own.at[i] += g * u * scale;
            }
            store(dxr + d, dxs);
            store(sums + d, own);
        }
    }
    if (sums == out) return;
    for (int64_t d = first; d < D; d += step) store(out + d, load<N>(sums + d));
}

// One pack of every row for each p: of a row of one matrix.
template <typename T, int N, int PACKS>
__device__ void load_row(pieces<T, N> (&to)[PACKS], const T *row, const team &t, int D) {
#pragma unroll
    for (int p = 0; p < PACKS; p++)
        if (t.column<N>(p) < D) to[p] = load_words<N>(row + t.column<N>(p));
}

template <int N, int PACKS> __device__ void load_weight(float (&to)[PACKS][N], const float *w, const team &t, int D) {
#pragma unroll
    for (int p = 0; p < PACKS; p++) {
        pieces<float, N> raw = {};
        if (t.column<N>(p) < D) raw = load_words<N>(w + t.column<N>(p));
        unpack(to[p], raw);
    }
}

template <typename T, int N, int PACKS>
__global__ void __launch_bounds__(team_threads, forward_blocks)
    rmsnorm_team_forward_kernel(rows<T> y, float *rstd, rows<const T> x, const float *w, int64_t R, int D, float eps,
                                int threads) {
    __shared__ float space[2 * team_threads / 32];
    const team t(threads);
    const float mean = 1.0f / static_cast<float>(D);
    pieces<T, N> next[PACKS] = {};
    if (t.first < R) load_row(next, x.row(t.first), t, D);
    int turn = 0;
    for (int64_t r = t.first; r < R; r += t.step, turn ^= 1) {
        float values[PACKS][N], square = 0.0f;
#pragma unroll
        for (int p = 0; p < PACKS; p++) unpack(values[p], next[p]);
        if (r + t.step < R) load_row(next, x.row(r + t.step), t, D);
#pragma unroll
        for (int p = 0; p < PACKS; p++) {
            float part = 0.0f; // packs first: shorter chains of additions
#pragma unroll
            for (int i = 0; i < N; i++) part += values[p][i] * values[p][i];
            square += part;
        }
        const float scale = rsqrtf(team_sum(square, t, space, turn) * mean + eps);
        if (t.lane == 0) rstd[r] = scale;
        T *out = y.row(r);
#pragma unroll
        for (int p = 0; p < PACKS; p++) {
            const int d = t.column<N>(p);
            if (d >= D) continue;
            float weight[N];
            unpack(weight, load_words<N>(w + d));
#pragma unroll
            for (int i = 0; i < N; i++) values[p][i] *= scale * weight[i];
            store(out + d, repack<T>(values[p]));
        }
    }
}

// What the backward pass reads of one row.
template <typename T, int N, int PACKS> struct row_inputs {
    pieces<T, N> dy[PACKS], x[PACKS], old[PACKS];
    float scale;
    __device__ void read(const rows<T> &dx, const rows<const T> &from_dy, const rows<const T> &from_x,
                         const float *rstd, int64_t r, const team &t, int D, bool accumulate) {
        scale = rstd[r];
        load_row(dy, from_dy.row(r), t, D);
        load_row(x, from_x.row(r), t, D);
        if (accumulate) load_row(old, static_cast<const T *>(dx.row(r)), t, D);
    }
};

// partial[gridDim,D]: block b's sum of dy x rstd over its rows.
template <typename T, int N, int PACKS>
__global__ void __launch_bounds__(team_threads, PACKS == 4 ? 2 : 3)
    rmsnorm_team_backward_kernel(rows<T> dx, float *partial, rows<const T> dy, rows<const T> x, const float *w,
                                 const float *rstd, int64_t R, int D, bool accumulate, int threads) {
    __shared__ float space[team_space];
    const team t(threads);
    const float mean = 1.0f / static_cast<float>(D);
    float weight[PACKS][N], dw[PACKS][N] = {};
    load_weight(weight, w, t, D);
    row_inputs<T, N, PACKS> next = {};
    if (t.first < R) next.read(dx, dy, x, rstd, t.first, t, D, accumulate);
    int turn = 0;
    for (int64_t r = t.first; r - t.at < R; r += t.step, turn ^= 1) { // teams of a block meet equally often
        const row_inputs<T, N, PACKS> now = r < R ? next : row_inputs<T, N, PACKS>{};
        if (r + t.step < R) next.read(dx, dy, x, rstd, r + t.step, t, D, accumulate);
        float dot = 0.0f;
#pragma unroll
        for (int p = 0; p < PACKS; p++) {
            float g[N], u[N], part = 0.0f;
            unpack(g, now.dy[p]), unpack(u, now.x[p]);
#pragma unroll
            for (int i = 0; i < N; i++) part += g[i] * weight[p][i] * u[i], dw[p][i] += g[i] * (u[i] * now.scale);
            dot += part;
        }
        const float scale = now.scale;
        const float pull = team_sum(dot, t, space, turn) * mean * scale * scale;
        T *out = dx.row(r);
#pragma unroll
        for (int p = 0; p < PACKS; p++) {
            float g[N], u[N], sum[N] = {};
            unpack(g, now.dy[p]), unpack(u, now.x[p]);
            if (accumulate) unpack(sum, now.old[p]);
#pragma unroll
            for (int i = 0; i < N; i++) sum[i] += scale * (g[i] * weight[p][i] - u[i] * pull);
            if (r < R && t.column<N>(p) < D) store(out + t.column<N>(p), repack<T>(sum));
        }
    }
    add_teams<N, PACKS>(partial + static_cast<int64_t>(blockIdx.x) * D, dw, t, D, space);
}

// Whole warps, as many as the packs of a row keep busy, 256 at most.
int threads_for(int64_t D, int size) {
    const int64_t packs = fwa_ceil_div(D, size);
    return static_cast<int>(fwa_min(fwa_round_up(packs, 32), 256));
}

fwa_status expect_size(fwa_tensor x) {
    FWA_CHECK(x.ndim == 2 && x.shape[0] >= 1 && x.shape[1] >= 1, FWA_ERROR,
              "x has %d dimensions; expected [R,D], R, D >= 1", x.ndim);
    return FWA_OK;
}

template <typename T>
fwa_status forward(fwa_stream *stream, fwa_tensor y, fwa_tensor rstd, fwa_tensor x, fwa_tensor w, double eps) {
    FWA_TRY(expect_size(x));
    const int64_t R = x.shape[0], D = x.shape[1];
    FWA_TRY(fwa_tensor_expect(x, "x", element<T>::dtype, 2, R, D));
    FWA_TRY(fwa_tensor_expect(y, "y", element<T>::dtype, 2, R, D));
    FWA_TRY(fwa_tensor_expect(rstd, "rstd", FWA_F32, 1, R));
    FWA_TRY(fwa_tensor_expect(w, "w", FWA_F32, 1, D));
    constexpr int N = pack_size<T>;
    const bool packed = D % N == 0 && rows_aligned(x) && rows_aligned(y) && rows_aligned(w);
    if (packed && D / N <= most_team_row) {
        const team_plan plan = plan_team(D / N);
        auto *kernel = FWA_TEAM_KERNEL(rmsnorm_team_forward_kernel, plan.each, T, N);
        kernel<<<grid(stream, R, team_threads / plan.size, forward_blocks), team_threads, 0, stream->handle>>>(
            rows_of<T>(y), static_cast<float *>(rstd.data), rows_of<const T>(x), static_cast<const float *>(w.data), R,
            static_cast<int>(D), static_cast<float>(eps), plan.size);
        FWA_CUDA_LAUNCHED();
        return FWA_OK;
    }
    auto *kernel = packed ? rmsnorm_forward_kernel<T, N> : rmsnorm_forward_kernel<T, 1>;
    const auto blocks = static_cast<unsigned>(fwa_min(R, INT_MAX));
    kernel<<<blocks, threads_for(D, packed ? N : 1), 0, stream->handle>>>(
        rows_of<T>(y), static_cast<float *>(rstd.data), rows_of<const T>(x), static_cast<const float *>(w.data), R, D,
        static_cast<float>(eps));
    FWA_CUDA_LAUNCHED();
    return FWA_OK;
}

template <typename T>
fwa_status backward(fwa_stream *stream, fwa_tensor dx, fwa_tensor dw, fwa_tensor dy, fwa_tensor x, fwa_tensor w,
                    fwa_tensor rstd, bool accumulate) {
    FWA_TRY(expect_size(x));
    const int64_t R = x.shape[0], D = x.shape[1];
    FWA_TRY(fwa_tensor_expect(x, "x", element<T>::dtype, 2, R, D));
    FWA_TRY(fwa_tensor_expect(dx, "dx", element<T>::dtype, 2, R, D));
    FWA_TRY(fwa_tensor_expect(dy, "dy", element<T>::dtype, 2, R, D));
    FWA_TRY(fwa_tensor_expect(dw, "dw", FWA_F32, 1, D));
    FWA_TRY(fwa_tensor_expect(w, "w", FWA_F32, 1, D));
    FWA_TRY(fwa_tensor_expect(rstd, "rstd", FWA_F32, 1, R));
    const int64_t fill = static_cast<int64_t>(stream->multiprocessors) * blocks_per_multiprocessor;
    const int64_t partials = partial_rows(fwa_min(R, fill), D);
    FWA_CHECK(partials >= 1, FWA_UNSUPPORTED, "D = %lld; rmsnorm_backward on CUDA takes at most %zu columns",
              static_cast<long long>(D), FWA_CUDA_WORKSPACE_BYTES / sizeof(float));
    constexpr int N = pack_size<T>;
    const bool packed = D % N == 0 && rows_aligned(x) && rows_aligned(dy) && rows_aligned(dx) && rows_aligned(w);
    auto *partial = static_cast<float *>(stream->workspace);
    if (packed && D / N <= most_team_row) {
        const team_plan plan = plan_team(D / N);
        const unsigned blocks = grid(stream, R, team_threads / plan.size, plan.each == 4 ? 2 : 3);
        auto *kernel = FWA_TEAM_KERNEL(rmsnorm_team_backward_kernel, plan.each, T, N);
        kernel<<<blocks, team_threads, 0, stream->handle>>>(
            rows_of<T>(dx), partial, rows_of<const T>(dy), rows_of<const T>(x), static_cast<const float *>(w.data),
            static_cast<const float *>(rstd.data), R, static_cast<int>(D), accumulate, plan.size);
        FWA_CUDA_LAUNCHED();
        FWA_TRY(reduce_rows(stream, data_of<float>(dw), partial, blocks, D));
        return FWA_OK;
    }
    auto *kernel = packed ? rmsnorm_backward_kernel<T, N> : rmsnorm_backward_kernel<T, 1>;
    const size_t shared = D <= shared_columns ? static_cast<size_t>(D) * sizeof(float) : 0;
    kernel<<<static_cast<unsigned>(partials), threads_for(D, packed ? N : 1), shared, stream->handle>>>(
        rows_of<T>(dx), partial, rows_of<const T>(dy), rows_of<const T>(x), static_cast<const float *>(w.data),
        static_cast<const float *>(rstd.data), R, D, accumulate);
    FWA_CUDA_LAUNCHED();
    FWA_TRY(reduce_rows(stream, data_of<float>(dw), partial, partials, D));
    return FWA_OK;
}

} // namespace

FWA_CUDA_ENTRIES(rmsnorm_forward, forward,
                 (fwa_stream * stream, fwa_tensor y, fwa_tensor rstd, fwa_tensor x, fwa_tensor w, double eps),
                 (stream, y, rstd, x, w, eps))
FWA_CUDA_ENTRIES(rmsnorm_backward, backward,
                 (fwa_stream * stream, fwa_tensor dx, fwa_tensor dw, fwa_tensor dy, fwa_tensor x, fwa_tensor w,
                  fwa_tensor rstd, bool accumulate),
                 (stream, dx, dw, dy, x, w, rstd, accumulate))
