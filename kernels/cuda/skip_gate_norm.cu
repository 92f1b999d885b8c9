// A skip around the memory, a gate and a norm over all heads together (contract: skip_gate_norm_forward,
// skip_gate_norm_backward in ops.def).
//
//   y = n w,  n = u rstd,  u = s silu(g),  s = o + skip x,  rstd[r] = (mean_d u^2 + eps)^(-1/2);  without g: silu(g) ->
//   1 du = rstd (dy w - n mean_d(dy w n)),  dw[d] += sum_r dy n,  ds = du silu(g),  dg = du s silu'(g), d_o = ds,  dx =
//   skip ds,  dskip[h] += sum_{r,v} ds x
//
// Shapes: o, x, d_o, dx [R,H,V] dense, y, dy, g, dg [R,D] in T (rows strided), D = H V; skip, dskip [H], w, dw [D],
// rstd [R] fp32. Any sizes >= 1, where 3 D fp32 sums fit the workspace once. Numerics: fp32 between load and store,
// sums in a fixed order. Cost: bound by memory: 4 R D elements forward, 7 backward. Mapping: aligned rows of up to 512
// packs of 16 bytes are held in registers: forward by teams (rows.cuh), backward by blocks of a thread a pack (two
// packs above 256), which copy ahead to shared memory and keep the sums of a thread's columns in registers. Otherwise
// one block a row at a time, a thread holds every blockDim-th pack (single elements where not aligned), second readings
// of a row hit the first-level cache, and in the backward pass a thread keeps the sums of its own columns in shared
// memory (in the workspace for wide rows). A block adds the columns of a head, and kernels of their own add the blocks.
#include "kernels/cuda/mma.cuh"
#include "kernels/cuda/rows.cuh"

namespace {

using namespace fwa;

constexpr int64_t shared_columns = 6144; // two sums a column fit the shared memory of a block
constexpr int blocks_per_multiprocessor = 8;

// Of the backward kernel that copies ahead: threads of a block at most, packs that a thread has slots for, blocks of a
// multiprocessor at most, and warps of a multiprocessor where a thread has one pack of a row or two.
constexpr int backward_threads = 256, slots = 2, most_blocks = 12;
constexpr int backward_warps(int packs) {
    return packs == 1 ? 24 : 16;
}

// Inputs of both passes, and N neighbouring elements of a row.
template <typename T> struct inputs {
    const T *o, *x;
    const float *skip, *w;
    rows<const T> g;
    int64_t R, D, V;
};

template <typename T, int N> struct piece {
    float s[N], gate[N], x[N], factor; // s = o + skip x, gate = g, factor = skip
    __device__ piece(const inputs<T> &in, int64_t r, int64_t d) {
        int64_t h, rest;
        divide(d, in.V, &h, &rest);
        factor = in.skip[h];
        const auto os = load<N>(in.o + r * in.D + d), xs = load<N>(in.x + r * in.D + d);
        pack<T, N> gs = {};
        if (in.g.data) gs = load<N>(in.g.row(r) + d);
        for (int i = 0; i < N; i++) {
            x[i] = to_float(xs.at[i]);
            s[i] = to_float(os.at[i]) + factor * x[i];
            gate[i] = to_float(gs.at[i]);
        }
    }
    __device__ float weight(const inputs<T> &in, int i) const {
        return in.g.data ? gate[i] * sigmoid<T>(gate[i]) : 1.0f;
    }
};

template <typename T, int N>
__global__ void __launch_bounds__(256) skip_gate_norm_forward_kernel(rows<T> y, float *rstd, inputs<T> in, float eps) {
    __shared__ float space[32];
    const int64_t first = static_cast<int64_t>(threadIdx.x) * N, step = static_cast<int64_t>(blockDim.x) * N;
    for (int64_t r = blockIdx.x; r < in.R; r += gridDim.x) {
        float square = 0.0f;
        for (int64_t d = first; d < in.D; d += step) {
            const piece<T, N> p(in, r, d);
            for (int i = 0; i < N; i++) {
                const float u = p.s[i] * p.weight(in, i);
                square += u * u;
            }
        }
        const float scale = 1.0f / sqrtf(block_sum(square, space) / static_cast<float>(in.D) + eps);
        if (threadIdx.x == 0) rstd[r] = scale;
        for (int64_t d = first; d < in.D; d += step) {
            const piece<T, N> p(in, r, d);
            const auto ws = load<N>(in.w + d);
            pack<T, N> out;
            for (int i = 0; i < N; i++) out.at[i] = from_float<T>(p.s[i] * p.weight(in, i) * scale * ws.at[i]);
            store(y.row(r) + d, out);
        }
    }
}

template <typename T> struct gradients {
    T *d_o, *dx;
    rows<T> dg;
    rows<const T> dy;
    const float *rstd;
};

// mean_d(dy w n) of a row, on every thread.
template <typename T, int N>
__device__ float row_pull(const inputs<T> &in, const gradients<T> &out, int64_t r, float scale, float *space) {
    float dot = 0.0f;
    for (int64_t d = static_cast<int64_t>(threadIdx.x) * N; d < in.D; d += static_cast<int64_t>(blockDim.x) * N) {
        const piece<T, N> p(in, r, d);
        const auto ds = load<N>(out.dy.row(r) + d);
        const auto ws = load<N>(in.w + d);
        for (int i = 0; i < N; i++) dot += to_float(ds.at[i]) * ws.at[i] * p.s[i] * p.weight(in, i) * scale;
    }
    return block_sum(dot, space) / static_cast<float>(in.D);
}

// The gradients of one pack of a row; adds to the sums of dw and of ds x.
template <typename T, int N>
__device__ void pack_gradients(const inputs<T> &in, const gradients<T> &out, int64_t r, int64_t d, float scale,
                               float pull, float *dw, float *dskip) {
    const piece<T, N> p(in, r, d);
    const auto dys = load<N>(out.dy.row(r) + d);
    const auto ws = load<N>(in.w + d);
    auto own_w = load<N>(dw + d), own_skip = load<N>(dskip + d);
    pack<T, N> d_o, dx, dg;
    for (int i = 0; i < N; i++) {
        const float weight = p.weight(in, i), n = p.s[i] * weight * scale, dy = to_float(dys.at[i]);
        const float du = scale * (dy * ws.at[i] - n * pull), ds = du * weight;
        own_w.at[i] += dy * n;
        own_skip.at[i] += ds * p.x[i];
        d_o.at[i] = from_float<T>(ds);
        dx.at[i] = from_float<T>(p.factor * ds);
        dg.at[i] = from_float<T>(du * p.s[i] * silu_slope(p.gate[i], sigmoid<T>(p.gate[i])));
    }
    store(dw + d, own_w), store(dskip + d, own_skip);
    store(out.d_o + r * in.D + d, d_o), store(out.dx + r * in.D + d, dx);
    if (in.g.data) store(out.dg.row(r) + d, dg);
}

// partial: block b's sums over its rows, of dy n in [gridDim,D], of ds x in [gridDim,D] (wide rows only), and of ds x
// over heads in [gridDim,H].
template <typename T, int N>
__global__ void __launch_bounds__(256) skip_gate_norm_backward_kernel(gradients<T> out, float *partial, inputs<T> in) {
    __shared__ float space[32];
    extern __shared__ __align__(16) float shared[];
    float *dw = partial + blockIdx.x * in.D, *dskip = partial + (gridDim.x + static_cast<int64_t>(blockIdx.x)) * in.D;
    float *sum_w = in.D <= shared_columns ? shared : dw, *sum_skip = in.D <= shared_columns ? shared + in.D : dskip;
    const int64_t first = static_cast<int64_t>(threadIdx.x) * N, step = static_cast<int64_t>(blockDim.x) * N;
    for (int64_t d = first; d < in.D; d += step)
        store(sum_w + d, pack<float, N>{}), store(sum_skip + d, pack<float, N>{});
    for (int64_t r = blockIdx.x; r < in.R; r += gridDim.x) {
        const float scale = out.rstd[r], pull = row_pull<T, N>(in, out, r, scale, space);
        for (int64_t d = first; d < in.D; d += step) pack_gradients<T, N>(in, out, r, d, scale, pull, sum_w, sum_skip);
    }
    for (int64_t d = first; d < in.D && sum_w != dw; d += step) store(dw + d, load<N>(sum_w + d));
    __syncthreads();
    const int64_t H = in.D / in.V;
    float *heads = partial + 2 * gridDim.x * in.D + blockIdx.x * H;
    for (int64_t h = threadIdx.x; h < H; h += blockDim.x) {
        float sum = 0.0f;
        for (int64_t v = 0; v < in.V; v++) sum += sum_skip[h * in.V + v];
        heads[h] = sum;
    }
}

// What the forward pass reads of a row, a pack for each p.
template <typename T, int N, int PACKS> struct row_words {
    pieces<T, N> o[PACKS], x[PACKS], g[PACKS];
    __device__ void read(const inputs<T> &in, int64_t r, const team &t) {
#pragma unroll
        for (int p = 0; p < PACKS; p++) {
            const int d = t.column<N>(p);
            if (d >= in.D) continue;
            o[p] = load_words<N>(in.o + r * in.D + d), x[p] = load_words<N>(in.x + r * in.D + d);
            if (in.g.data) g[p] = load_words<N>(in.g.row(r) + d);
        }
    }
};

// Head of every pack, and its factor; zeros beyond the row.
template <typename T, int N, int PACKS>
__device__ void load_skip(float (&factor)[PACKS], const inputs<T> &in, const team &t) {
#pragma unroll
    for (int p = 0; p < PACKS; p++) {
        const int d = t.column<N>(p);
        factor[p] = d < in.D ? in.skip[d / static_cast<int>(in.V)] : 0.0f;
    }
}

template <typename T, int N, int PACKS>
__global__ void __launch_bounds__(team_threads, PACKS == 4 ? 3 : 4)
    skip_gate_norm_team_forward_kernel(rows<T> y, float *rstd, inputs<T> in, float eps, int threads) {
    __shared__ float space[2 * team_threads / 32];
    const team t(threads);
    const float mean = 1.0f / static_cast<float>(in.D);
    float factor[PACKS];
    load_skip<T, N>(factor, in, t);
    row_words<T, N, PACKS> next = {};
    if (t.first < in.R) next.read(in, t.first, t);
    int turn = 0;
    for (int64_t r = t.first; r < in.R; r += t.step, turn ^= 1) {
        float u[PACKS][N], square = 0.0f;
#pragma unroll
        for (int p = 0; p < PACKS; p++) {
            float x[N], gate[N];
            unpack(u[p], next.o[p]), unpack(x, next.x[p]), unpack(gate, next.g[p]);
#pragma unroll
            for (int i = 0; i < N; i++) {
                u[p][i] += factor[p] * x[i];
                if (in.g.data) u[p][i] *= gate[i] * sigmoid<T>(gate[i]);
                square += u[p][i] * u[p][i];
            }
        }
        if (r + t.step < in.R) next.read(in, r + t.step, t);
        const float scale = rsqrtf(team_sum(square, t, space, turn) * mean + eps);
        if (t.lane == 0) rstd[r] = scale;
#pragma unroll
        for (int p = 0; p < PACKS; p++) {
            const int d = t.column<N>(p);
            if (d >= in.D) continue;
            float w[N];
            unpack(w, load_words<N>(in.w + d));
#pragma unroll
            for (int i = 0; i < N; i++) u[p][i] *= scale * w[i];
            store(y.row(r) + d, repack<T>(u[p]));
        }
    }
}

// What the backward pass takes of one pack from the sums of a row to its gradients.
template <typename T, int N> struct held {
    float s[N], gate[N], slope[N], pull[N]; // silu(g), silu'(g), rstd dy w
    pieces<T, N> x;
};

// A block takes one row at a time, a thread PACKS packs of it. Copies bring the next rows to slots in shared memory
// that are the thread's own: it takes what lies there to registers, asks for a later row and goes on, so that no thread
// waits for another's copies. partial: block b's sums over its rows, of dy n in [gridDim,D], behind them of ds x over
// heads in [gridDim,H].
template <typename T, int N, int PACKS, bool GATED>
__global__ void __launch_bounds__(backward_threads, backward_warps(PACKS) * 32 / backward_threads)
    skip_gate_norm_slots_kernel(gradients<T> out, float *partial, inputs<T> in) {
    constexpr int stages = slots / PACKS;
    extern __shared__ uint4 copied[]; // [stages][PACKS] of o, x, g, dy, each a piece a thread
    __shared__ __align__(16) float space[2][backward_threads / 32];
    const int thread = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
    const int D = static_cast<int>(in.D), packs = D / N, H = D / static_cast<int>(in.V);
    const float mean = 1.0f / static_cast<float>(D);
    if (thread < 2 * backward_threads / 32) space[0][thread] = 0.0f; // a row's sums of absent warps
    int column[PACKS];
    float factor[PACKS], w[PACKS][N], dw[PACKS][N] = {}, dskip[PACKS] = {};
#pragma unroll
    for (int p = 0; p < PACKS; p++) {
        column[p] = min((p * threads + thread) * N, D - N);
        factor[p] = in.skip[column[p] / static_cast<int>(in.V)];
        unpack(w[p], load_words<N>(in.w + column[p]));
    }
    const auto fetch = [&](int stage, int64_t r) {
#pragma unroll
        for (int p = 0; p < PACKS; p++) {
            uint4 *to = copied + (stage * PACKS + p) * 4 * threads + thread;
            const bool valid = p * threads + thread < packs;
            if (r >= in.R) continue;
            copy_async(to, in.o + r * D + column[p], valid);
            copy_async(to + threads, in.x + r * D + column[p], valid);
            if (GATED) copy_async(to + 2 * threads, in.g.row(r) + column[p], valid);
            copy_async(to + 3 * threads, out.dy.row(r) + column[p], valid);
        }
        copy_commit();
    };
#pragma unroll
    for (int i = 0; i < stages; i++) fetch(i, blockIdx.x + static_cast<int64_t>(i) * gridDim.x);
    __syncthreads();
    float scales = 0.0f; // rstd of the block's next 32 rows, one a lane
    int stage = 0, turn = 0;
    for (int64_t r = blockIdx.x; r < in.R; r += gridDim.x, turn++) {
        if (turn % 32 == 0) scales = out.rstd[min(r + thread % 32 * static_cast<int64_t>(gridDim.x), in.R - 1)];
        const float scale = __shfl_sync(everyone, scales, turn % 32);
        held<T, N> h[PACKS];
        float dot = 0.0f;
        copy_wait<stages - 1>();
#pragma unroll
        for (int p = 0; p < PACKS; p++) {
            const uint4 *from = copied + (stage * PACKS + p) * 4 * threads + thread;
            float x[N], gate[N], dy[N];
            unpack(h[p].s, __builtin_bit_cast(pieces<T, N>, from[0]));
            h[p].x = __builtin_bit_cast(pieces<T, N>, from[threads]);
            unpack(x, h[p].x);
            if (GATED) unpack(gate, __builtin_bit_cast(pieces<T, N>, from[2 * threads]));
            unpack(dy, __builtin_bit_cast(pieces<T, N>, from[3 * threads]));
#pragma unroll
            for (int i = 0; i < N; i++) {
                h[p].s[i] += factor[p] * x[i];
                float u = h[p].s[i];
                if (GATED) {
                    const float open = sigmoid<T>(gate[i]), weight = gate[i] * open;
                    h[p].slope[i] = open + weight * (1.0f - open);
                    h[p].gate[i] = weight;
                    u *= weight;
                }
                const float d = dy[i] * scale;
                dw[p][i] += d * u;
                h[p].pull[i] = d * w[p][i];
                dot += h[p].pull[i] * u;
            }
        }
        fetch(stage, r + static_cast<int64_t>(stages) * gridDim.x);
        if (++stage == stages) stage = 0;
        dot = warp_sum(dot);
        if (thread % 32 == 0) space[turn % 2][thread / 32] = dot;
        __syncthreads(); // the next row's sums go to the other half
        float sums[backward_threads / 32];
        unpack(sums, load_words<backward_threads / 32>(space[turn % 2]));
        dot = 0.0f;
#pragma unroll
        for (int i = 0; i < backward_threads / 32; i++) dot += sums[i];
        const float along = dot * mean * scale * scale;
#pragma unroll
        for (int p = 0; p < PACKS; p++) {
            float ds[N], dx[N], dg[N];
            unpack(dx, h[p].x);
#pragma unroll
            for (int i = 0; i < N; i++) {
                const float u = GATED ? h[p].s[i] * h[p].gate[i] : h[p].s[i], du = h[p].pull[i] - u * along;
                ds[i] = GATED ? du * h[p].gate[i] : du;
                dskip[p] += ds[i] * dx[i];
                dx[i] = factor[p] * ds[i];
                if (GATED) dg[i] = du * h[p].s[i] * h[p].slope[i];
            }
            if (p * threads + thread >= packs) continue;
            store(out.d_o + r * D + column[p], repack<T>(ds)), store(out.dx + r * D + column[p], repack<T>(dx));
            if (GATED) store(out.dg.row(r) + column[p], repack<T>(dg));
        }
    }
    __syncthreads();
    auto *pack_sums = reinterpret_cast<float *>(copied);
#pragma unroll
    for (int p = 0; p < PACKS; p++) {
        if (p * threads + thread >= packs) continue;
        pack_sums[p * threads + thread] = dskip[p];
        store(partial + static_cast<int64_t>(blockIdx.x) * D + column[p], repack<float>(dw[p]));
    }
    __syncthreads();
    float *heads = partial + static_cast<int64_t>(gridDim.x) * D + static_cast<int64_t>(blockIdx.x) * H;
    for (int h = thread; h < H; h += threads) {
        float sum = 0.0f;
        for (int p = h * packs / H; p < (h + 1) * packs / H; p++) sum += pack_sums[p];
        heads[h] = sum;
    }
}

template <typename T>
fwa_status check(fwa_tensor o, fwa_tensor x, fwa_tensor skip, fwa_tensor w, fwa_tensor g, fwa_tensor rstd, fwa_tensor y,
                 inputs<T> *out) {
    FWA_EXPECT_DIMS(o, 3);
    const int64_t R = o.shape[0], H = o.shape[1], V = o.shape[2];
    FWA_EXPECT_DENSE(o, element<T>::dtype, 3, R, H, V);
    FWA_EXPECT_DENSE(x, element<T>::dtype, 3, R, H, V);
    FWA_EXPECT_DENSE(skip, FWA_F32, 1, H);
    FWA_EXPECT_DENSE(w, FWA_F32, 1, H * V);
    FWA_EXPECT_DENSE(rstd, FWA_F32, 1, R);
    FWA_EXPECT(y, element<T>::dtype, 2, R, H * V);
    if (fwa_tensor_present(g)) FWA_EXPECT(g, element<T>::dtype, 2, R, H * V);
    *out = {data_of<const T>(o),
            data_of<const T>(x),
            data_of<const float>(skip),
            data_of<const float>(w),
            rows_of<const T>(g),
            R,
            H * V,
            V};
    return FWA_OK;
}

int threads_for(int64_t packs) {
    return static_cast<int>(fwa_min(fwa_round_up(packs, 32), 256));
}

template <typename T>
fwa_status skip_gate_norm_forward(fwa_stream *stream, fwa_tensor y, fwa_tensor rstd, fwa_tensor o, fwa_tensor x,
                                  fwa_tensor skip, fwa_tensor w, fwa_tensor g, double eps) {
    inputs<T> in;
    FWA_TRY(check<T>(o, x, skip, w, g, rstd, y, &in));
    constexpr int N = pack_size<T>;
    const bool packed =
        in.V % N == 0 && rows_aligned(o) && rows_aligned(x) && rows_aligned(y) && rows_aligned(g) && rows_aligned(w);
    if (packed && in.D / N <= most_team_row) {
        const team_plan plan = plan_team(in.D / N);
        auto *kernel = FWA_TEAM_KERNEL(skip_gate_norm_team_forward_kernel, plan.each, T, N);
        kernel<<<grid(stream, in.R, team_threads / plan.size, plan.each == 4 ? 3 : 4), team_threads, 0,
                 stream->handle>>>(rows_of<T>(y), data_of<float>(rstd), in, static_cast<float>(eps), plan.size);
        FWA_CUDA_LAUNCHED();
        return FWA_OK;
    }
    auto *kernel = packed ? skip_gate_norm_forward_kernel<T, N> : skip_gate_norm_forward_kernel<T, 1>;
    const int threads = threads_for(fwa_ceil_div(in.D, packed ? N : 1));
    kernel<<<static_cast<unsigned>(fwa_min(in.R, INT_MAX)), threads, 0, stream->handle>>>(
        rows_of<T>(y), data_of<float>(rstd), in, static_cast<float>(eps));
    FWA_CUDA_LAUNCHED();
    return FWA_OK;
}

template <typename T>
fwa_status skip_gate_norm_backward(fwa_stream *stream, fwa_tensor d_o, fwa_tensor dx, fwa_tensor dskip, fwa_tensor dw,
                                   fwa_tensor dg, fwa_tensor dy, fwa_tensor o, fwa_tensor x, fwa_tensor skip,
                                   fwa_tensor rstd, fwa_tensor w, fwa_tensor g) {
    inputs<T> in;
    FWA_TRY(check<T>(o, x, skip, w, g, rstd, dy, &in));
    const int64_t H = in.D / in.V;
    FWA_EXPECT_DENSE(d_o, element<T>::dtype, 3, in.R, H, in.V);
    FWA_EXPECT_DENSE(dx, element<T>::dtype, 3, in.R, H, in.V);
    FWA_EXPECT_DENSE(dskip, FWA_F32, 1, H);
    FWA_EXPECT_DENSE(dw, FWA_F32, 1, in.D);
    if (fwa_tensor_present(g)) FWA_EXPECT(dg, element<T>::dtype, 2, in.R, in.D);
    const int64_t fill = static_cast<int64_t>(stream->multiprocessors) * blocks_per_multiprocessor;
    const int64_t blocks = partial_rows(fwa_min(in.R, fill), 2 * in.D + H);
    FWA_CHECK(blocks >= 1, FWA_UNSUPPORTED, "D = %lld; skip_gate_norm_backward on CUDA takes at most %zu columns",
              static_cast<long long>(in.D), FWA_CUDA_WORKSPACE_BYTES / (3 * sizeof(float)));
    constexpr int N = pack_size<T>;
    const bool packed = in.V % N == 0 && rows_aligned(o) && rows_aligned(x) && rows_aligned(dy) && rows_aligned(g) &&
                        rows_aligned(w) && rows_aligned(d_o) && rows_aligned(dx) && rows_aligned(dg);
    auto *partial = static_cast<float *>(stream->workspace);
    const gradients<T> out = {data_of<T>(d_o), data_of<T>(dx), rows_of<T>(dg), rows_of<const T>(dy),
                              data_of<const float>(rstd)};
    if (packed && in.D / N <= slots * backward_threads) {
        const int each = in.D / N <= backward_threads ? 1 : 2;
        const auto warps = static_cast<int>(fwa_ceil_div(in.D / N, 32 * each));
        const unsigned launched =
            grid(stream, in.R, 1, static_cast<int>(fwa_min(backward_warps(each) / warps, most_blocks)));
        auto *kernel =
            each == 1 ? skip_gate_norm_slots_kernel<T, N, 1, true> : skip_gate_norm_slots_kernel<T, N, 2, true>;
        if (!fwa_tensor_present(g))
            kernel =
                each == 1 ? skip_gate_norm_slots_kernel<T, N, 1, false> : skip_gate_norm_slots_kernel<T, N, 2, false>;
        kernel<<<launched, warps * 32, static_cast<size_t>(slots * 4 * warps * 32) * sizeof(uint4), stream->handle>>>(
            out, partial, in);
        FWA_CUDA_LAUNCHED();
        return reduce_rows(stream, {data_of<float>(dw), partial, in.D},
                           {data_of<float>(dskip), partial + launched * in.D, H}, launched);
    }
    auto *kernel = packed ? skip_gate_norm_backward_kernel<T, N> : skip_gate_norm_backward_kernel<T, 1>;
    const size_t shared = in.D <= shared_columns ? static_cast<size_t>(2 * in.D) * sizeof(float) : 0;
    kernel<<<static_cast<unsigned>(blocks), threads_for(fwa_ceil_div(in.D, packed ? N : 1)), shared, stream->handle>>>(
        out, partial, in);
    FWA_CUDA_LAUNCHED();
    return reduce_rows(stream, {data_of<float>(dw), partial, in.D},
                       {data_of<float>(dskip), partial + 2 * blocks * in.D, H}, blocks);
}

} // namespace

FWA_CUDA_ENTRIES(skip_gate_norm_forward, skip_gate_norm_forward,
                 (fwa_stream * stream, fwa_tensor y, fwa_tensor rstd, fwa_tensor o, fwa_tensor x, fwa_tensor skip,
                  fwa_tensor w, fwa_tensor g, double eps),
                 (stream, y, rstd, o, x, skip, w, g, eps))
FWA_CUDA_ENTRIES(skip_gate_norm_backward, skip_gate_norm_backward,
                 (fwa_stream * stream, fwa_tensor d_o, fwa_tensor dx, fwa_tensor dskip, fwa_tensor dw, fwa_tensor dg,
                  fwa_tensor dy, fwa_tensor o, fwa_tensor x, fwa_tensor skip, fwa_tensor rstd, fwa_tensor w,
                  fwa_tensor g),
                 (stream, d_o, dx, dskip, dw, dg, dy, o, x, skip, rstd, w, g))
