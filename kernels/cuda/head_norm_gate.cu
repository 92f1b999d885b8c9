// Norm over each head times a gate, and its gradient (contract: head_norm_gate_forward, head_norm_gate_backward in
// ops.def).
//
//   y = n w silu(g),   n = o rstd,   rstd[r,h] = (mean_v o[r,h,v]^2 + eps)^(-1/2);   without g: silu(g) -> 1
//   a = dy silu(g);   dg = dy n w silu'(g),   dw[v] += sum_{r,h} a n,   d_o = rstd (a w - n mean_v(a w n))
//
// Shapes: o, d_o [R,H,V] dense, y, dy, g, dg [R,H*V] in T, rows may be strided; w, dw [V], rstd [R,H] in fp32. Any R,
// H >= 1, V up to 8192 backward. y, rstd, d_o, dg overwritten, dw accumulated; d_o may be o, dg may be g. Numerics:
// fp32 between load and store, sums in a fixed order that depends on the sizes and the number of multiprocessors only.
// Cost: bound by memory, 3 R H V elements forward and 5 backward; the second reading of a head hits the first-level
// cache. Mapping: where a head is 2^n <= 32 packs of 16 bytes, a warp takes pieces of rows, up to 4 packs a lane, loads
// the next piece while it works on one, and keeps dw sums in registers. Otherwise 2^n <= 32 lanes a head vector, a lane
// holds packs (single elements where not aligned), and dw sums of a lane group stand in shared memory, a lane keeping
// its own columns. Groups, then blocks are added in order.
#include "kernels/cuda/launch.cuh"

namespace {

using namespace fwa;

constexpr int block_threads = 256, blocks_per_multiprocessor = 8;
constexpr int warp_threads = 128, most_row_packs = 4; // of the kernels that walk rows
constexpr int64_t most_columns = 8192;                // dw sums of one group that fit the shared memory of a block
constexpr size_t shared_bytes = 32u << 10;            // what the groups of a block share

// Head vectors i = 0 .. R H - 1 of o and of the matrices with strided rows.
struct heads {
    int64_t count, H, V;
    int lanes; // of a group
};

template <typename T> __device__ T *head(rows<T> matrix, const heads &s, int64_t i) {
    int64_t r, h;
    divide(i, s.H, &r, &h);
    return matrix.data ? matrix.row(r) + h * s.V : nullptr;
}

// What a lane reads of a head at column v.
template <typename T, int N> struct values {
    pack<T, N> o = {}, g = {};
    __device__ void read(const T *from_o, const T *from_g, int64_t v) {
        o = load<N>(from_o + v);
        if (from_g) g = load<N>(from_g + v);
    }
};

// A lane that has one pack of a head keeps it between the two passes; others read theirs again.
template <typename T, int N>
__global__ void __launch_bounds__(block_threads)
    head_norm_gate_forward_kernel(rows<T> y, float *rstd, const T *o, const float *w, rows<const T> g, heads s,
                                  float eps) {
    const int lane = threadIdx.x % s.lanes, group = threadIdx.x / s.lanes, groups = blockDim.x / s.lanes;
    const int width = s.lanes * N;
    const int64_t step = static_cast<int64_t>(gridDim.x) * groups;
    for (int64_t i = static_cast<int64_t>(blockIdx.x) * groups + group; i < s.count; i += step) {
        const T *in = o + i * s.V, *gate = head(g, s, i);
        T *out = head(y, s, i);
        values<T, N> at;
        float square = 0.0f;
        for (int64_t v = lane * N; v < s.V; v += width) {
            at.read(in, gate, v);
            for (int j = 0; j < N; j++) square += to_float(at.o.at[j]) * to_float(at.o.at[j]);
        }
        const float scale = 1.0f / sqrtf(lanes_sum(square, s.lanes) / static_cast<float>(s.V) + eps);
        if (lane == 0) rstd[i] = scale;
        for (int64_t v = lane * N; v < s.V; v += width) {
            if (s.V > width) at.read(in, gate, v);
            const auto ws = load<N>(w + v);
            pack<T, N> ys;
            for (int j = 0; j < N; j++) {
                const float x = to_float(at.g.at[j]), factor = gate ? x * sigmoid<T>(x) : 1.0f;
                ys.at[j] = from_float<T>(to_float(at.o.at[j]) * scale * ws.at[j] * factor);
            }
            store(out + v, ys);
        }
    }
}

// sum_v a w o of one head: this lane's share.
template <typename T, int N>
__device__ float head_pull(const T *dy, const T *o, const float *w, const T *g, const heads &s, int lane) {
    float dot = 0.0f;
    for (int64_t v = lane * N; v < s.V; v += s.lanes * N) {
        const auto ds = load<N>(dy + v), os = load<N>(o + v);
        const auto ws = load<N>(w + v);
        pack<T, N> gs = {};
        if (g) gs = load<N>(g + v);
        for (int j = 0; j < N; j++) {
            const float x = to_float(gs.at[j]), factor = g ? x * sigmoid<T>(x) : 1.0f;
            dot += to_float(ds.at[j]) * factor * ws.at[j] * to_float(os.at[j]);
        }
    }
    return dot;
}

// d_o, dg and this lane's share of dw for one head; pull = rstd^2 mean(a w o).
template <typename T, int N>
__device__ void head_backward(T *d_o, T *dg, float *sums, const T *dy, const T *o, const float *w, const T *g,
                              float scale, float pull, const heads &s, int lane) {
    for (int64_t v = lane * N; v < s.V; v += s.lanes * N) {
        const auto ds = load<N>(dy + v), os = load<N>(o + v);
        const auto ws = load<N>(w + v);
        auto own = load<N>(sums + v);
        pack<T, N> gs = {}, dos, dgs;
        if (g) gs = load<N>(g + v);
        for (int j = 0; j < N; j++) {
            const float x = to_float(gs.at[j]), d = to_float(ds.at[j]), u = to_float(os.at[j]);
            const float gate = sigmoid<T>(x), a = g ? d * x * gate : d;
            dgs.at[j] = from_float<T>(d * u * scale * ws.at[j] * silu_slope(x, gate));
            dos.at[j] = from_float<T>(scale * (a * ws.at[j] - u * pull));
            own.at[j] += a * u * scale;
        }
        if (g) store(dg + v, dgs);
        store(d_o + v, dos);
        store(sums + v, own);
    }
}

// partial[gridDim,V]: block b's sums of a n over its heads.
template <typename T, int N>
__global__ void __launch_bounds__(block_threads)
    head_norm_gate_backward_kernel(T *d_o, float *partial, rows<T> dg, rows<const T> dy, const T *o, const float *rstd,
                                   const float *w, rows<const T> g, heads s) {
    extern __shared__ __align__(16) float shared[];
    const int lane = threadIdx.x % s.lanes, group = threadIdx.x / s.lanes, groups = blockDim.x / s.lanes;
    float *sums = shared + group * s.V;
    for (int64_t v = lane * N; v < s.V; v += s.lanes * N) store(sums + v, pack<float, N>{});
    const int64_t step = static_cast<int64_t>(gridDim.x) * groups;
    for (int64_t i = static_cast<int64_t>(blockIdx.x) * groups + group; i < s.count; i += step) {
        const T *d = head(dy, s, i), *in = o + i * s.V, *gate = head(g, s, i);
        const float dot = lanes_sum(head_pull<T, N>(d, in, w, gate, s, lane), s.lanes);
        const float scale = rstd[i], pull = dot * scale * scale / static_cast<float>(s.V);
        head_backward<T, N>(d_o + i * s.V, head(dg, s, i), sums, d, in, w, gate, scale, pull, s, lane);
    }
    __syncthreads();
    for (int64_t v = threadIdx.x; v < s.V; v += blockDim.x) {
        float sum = 0.0f;
        for (int j = 0; j < groups; j++) sum += shared[j * s.V + v];
        partial[blockIdx.x * s.V + v] = sum;
    }
}

// Rows in pieces of 32 PACKS packs, one a warp: lane i has packs i, i + 32, ... of a piece, so that its packs are of
// neighbouring heads and at the same place in each. Heads of 2^n <= 32 packs.
struct row_pieces {
    int64_t count;              // R times pieces of a row
    int pieces, D, V, H, shift; // V = 2^shift
};

// The packs of one row that a lane has, in words; zeros beyond the row.
template <typename T, int N, int PACKS>
__device__ void load_piece(pieces<T, N> (&to)[PACKS], const T *row, int first, int D) {
#pragma unroll
    for (int p = 0; p < PACKS; p++)
        if (first + p * 32 * N < D) to[p] = load_words<N>(row + first + p * 32 * N);
}

// Where piece i of the rows lies: its row, and the first element of this lane.
template <int N, int PACKS> __device__ void place_of(const row_pieces &s, int64_t i, int64_t *r, int *first) {
    int64_t piece = 0;
    *r = i;
    if (s.pieces > 1) divide(i, s.pieces, r, &piece);
    *first = (static_cast<int>(piece) * PACKS * 32 + static_cast<int>(threadIdx.x) % 32) * N;
}

template <typename T, int N, int PACKS>
__global__ void __launch_bounds__(warp_threads, 5)
    head_norm_gate_row_forward_kernel(rows<T> y, float *rstd, rows<const T> o, const float *w, rows<const T> g,
                                      row_pieces s, float eps) {
    const int lanes = s.V / N, lane = static_cast<int>(threadIdx.x) & (lanes - 1);
    const float mean = 1.0f / static_cast<float>(s.V);
    const int64_t step = static_cast<int64_t>(gridDim.x) * (warp_threads / 32);
    int64_t i = static_cast<int64_t>(blockIdx.x) * (warp_threads / 32) + threadIdx.x / 32, r, next_r = 0;
    int first, next_first = 0;
    float weight[N];
    unpack(weight, load_words<N>(w + lane * N));
    pieces<T, N> next_o[PACKS] = {}, next_g[PACKS] = {};
    const auto fetch = [&](int64_t at) {
        place_of<N, PACKS>(s, at, &next_r, &next_first);
        load_piece(next_o, o.row(next_r), next_first, s.D);
        if (g.data) load_piece(next_g, g.row(next_r), next_first, s.D);
    };
    if (i < s.count) fetch(i);
    for (; i < s.count; i += step) {
        float n[PACKS][N], gate[PACKS][N], scale[PACKS];
        r = next_r, first = next_first;
#pragma unroll
        for (int p = 0; p < PACKS; p++) unpack(n[p], next_o[p]), unpack(gate[p], next_g[p]);
        if (i + step < s.count) fetch(i + step);
#pragma unroll
        for (int p = 0; p < PACKS; p++) {
            float square = 0.0f;
#pragma unroll
            for (int j = 0; j < N; j++) square += n[p][j] * n[p][j];
            scale[p] = rsqrtf(warp_part_sum(square, lanes) * mean + eps);
        }
#pragma unroll
        for (int p = 0; p < PACKS; p++) {
            const int at = first + p * 32 * N;
#pragma unroll
            for (int j = 0; j < N; j++) {
                n[p][j] *= scale[p] * weight[j];
                if (g.data) n[p][j] *= gate[p][j] * sigmoid<T>(gate[p][j]);
            }
            if (at >= s.D) continue;
            store(y.row(r) + at, repack<T>(n[p]));
            if (lane == 0) rstd[r * s.H + (at >> s.shift)] = scale[p];
        }
    }
}

// partial[gridDim,V]: block b's sums of a n over its heads.
template <typename T, int N, int PACKS>
__global__ void __launch_bounds__(warp_threads, PACKS == 4 ? 3 : 4)
    head_norm_gate_row_backward_kernel(rows<T> d_o, float *partial, rows<T> dg, rows<const T> dy, rows<const T> o,
                                       const float *rstd, const float *w, rows<const T> g, row_pieces s) {
    __shared__ float shared[warp_threads * N];
    const int lanes = s.V / N, lane = static_cast<int>(threadIdx.x) & (lanes - 1);
    const float mean = 1.0f / static_cast<float>(s.V);
    const int64_t step = static_cast<int64_t>(gridDim.x) * (warp_threads / 32);
    int64_t i = static_cast<int64_t>(blockIdx.x) * (warp_threads / 32) + threadIdx.x / 32, r, next_r = 0;
    int first, next_first = 0;
    float weight[N], dw[N] = {};
    unpack(weight, load_words<N>(w + lane * N));
    pieces<T, N> next_dy[PACKS] = {}, next_o[PACKS] = {}, next_g[PACKS] = {};
    float next_scale[PACKS] = {};
    const auto fetch = [&](int64_t at) {
        place_of<N, PACKS>(s, at, &next_r, &next_first);
        load_piece(next_dy, dy.row(next_r), next_first, s.D);
        load_piece(next_o, o.row(next_r), next_first, s.D);
        if (g.data) load_piece(next_g, g.row(next_r), next_first, s.D);
#pragma unroll
        for (int p = 0; p < PACKS; p++)
            if (next_first + p * 32 * N < s.D)
                next_scale[p] = rstd[next_r * s.H + ((next_first + p * 32 * N) >> s.shift)];
    };
    if (i < s.count) fetch(i);
    for (; i < s.count; i += step) {
        pieces<T, N> now_dy[PACKS], now_o[PACKS], now_g[PACKS];
        float scale[PACKS];
        r = next_r, first = next_first;
#pragma unroll
        for (int p = 0; p < PACKS; p++)
            now_dy[p] = next_dy[p], now_o[p] = next_o[p], now_g[p] = next_g[p], scale[p] = next_scale[p];
        if (i + step < s.count) fetch(i + step);
#pragma unroll
        for (int p = 0; p < PACKS; p++) {
            const int at = first + p * 32 * N;
            float d[N], n[N], x[N], slope[N], dot = 0.0f;
            unpack(d, now_dy[p]), unpack(n, now_o[p]), unpack(x, now_g[p]);
#pragma unroll
            for (int j = 0; j < N; j++) {
                n[j] *= scale[p];
                if (g.data) {
                    const float gate = sigmoid<T>(x[j]), a = d[j] * x[j] * gate;
                    slope[j] = d[j] * n[j] * weight[j] * silu_slope(x[j], gate);
                    d[j] = a;
                }
                dw[j] += d[j] * n[j];
                d[j] *= weight[j];
                dot += d[j] * n[j];
            }
            const float pull = warp_part_sum(dot, lanes) * mean;
#pragma unroll
            for (int j = 0; j < N; j++) d[j] = scale[p] * (d[j] - n[j] * pull);
            if (at >= s.D) continue;
            if (g.data) store(dg.row(r) + at, repack<T>(slope));
            store(d_o.row(r) + at, repack<T>(d));
        }
    }
#pragma unroll
    for (int j = 0; j < N; j++) shared[threadIdx.x / lanes * s.V + lane * N + j] = dw[j];
    __syncthreads();
    for (int v = static_cast<int>(threadIdx.x); v < s.V; v += warp_threads) {
        float sum = 0.0f;
        for (int j = 0; j < warp_threads / lanes; j++) sum += shared[j * s.V + v];
        partial[static_cast<int64_t>(blockIdx.x) * s.V + v] = sum;
    }
}

// Whether the heads are such that a row can be cut into pieces, and how: packs of a lane.
template <int N> bool plan_rows(const heads &s, row_pieces *out, int *each) {
    const int64_t lanes = s.V / N, packs = s.H * lanes;
    if (s.V % N != 0 || lanes > 32 || (lanes & (lanes - 1)) != 0 || s.H * s.V > 1 << 28) return false;
    int shift = 0;
    while (1 << shift < s.V) shift++;
    const int64_t pieces = fwa_ceil_div(packs, 32 * most_row_packs);
    *each = static_cast<int>(fwa_ceil_div(packs, 32 * pieces));
    *out = {s.count / s.H * pieces, static_cast<int>(pieces), static_cast<int>(s.H * s.V),
            static_cast<int>(s.V),  static_cast<int>(s.H),    shift};
    return true;
}

// Instances for 1 to 4 packs a lane.
#define ROW_KERNEL(kernel, each, ...)                                                                                  \
    ((each) == 1   ? kernel<__VA_ARGS__, 1>                                                                            \
     : (each) == 2 ? kernel<__VA_ARGS__, 2>                                                                            \
     : (each) == 3 ? kernel<__VA_ARGS__, 3>                                                                            \
                   : kernel<__VA_ARGS__, 4>)

template <typename T>
fwa_status check(fwa_tensor o, fwa_tensor w, fwa_tensor g, fwa_tensor rstd, fwa_tensor y, heads *s) {
    FWA_EXPECT_DIMS(o, 3);
    const int64_t R = o.shape[0], H = o.shape[1], V = o.shape[2];
    FWA_EXPECT_DENSE(o, element<T>::dtype, 3, R, H, V);
    FWA_EXPECT_DENSE(w, FWA_F32, 1, V);
    FWA_EXPECT_DENSE(rstd, FWA_F32, 2, R, H);
    FWA_EXPECT(y, element<T>::dtype, 2, R, H * V);
    if (fwa_tensor_present(g)) FWA_EXPECT(g, element<T>::dtype, 2, R, H * V);
    *s = {R * H, H, V, 1};
    return FWA_OK;
}

template <typename T>
fwa_status head_norm_gate_forward(fwa_stream *stream, fwa_tensor y, fwa_tensor rstd, fwa_tensor o, fwa_tensor w,
                                  fwa_tensor g, double eps) {
    heads s;
    FWA_TRY(check<T>(o, w, g, rstd, y, &s));
    constexpr int N = pack_size<T>;
    const bool packed = s.V % N == 0 && rows_aligned(o) && rows_aligned(y) && rows_aligned(g) && rows_aligned(w);
    row_pieces cut;
    int each;
    if (packed && plan_rows<N>(s, &cut, &each)) {
        auto *kernel = ROW_KERNEL(head_norm_gate_row_forward_kernel, each, T, N);
        kernel<<<grid(stream, cut.count, warp_threads / 32, 5), warp_threads, 0, stream->handle>>>(
            rows_of<T>(y), data_of<float>(rstd), {data_of<const T>(o), cut.D}, data_of<const float>(w),
            rows_of<const T>(g), cut, static_cast<float>(eps));
        FWA_CUDA_LAUNCHED();
        return FWA_OK;
    }
    s.lanes = lanes_for(fwa_ceil_div(s.V, packed ? N : 1));
    auto *kernel = packed ? head_norm_gate_forward_kernel<T, N> : head_norm_gate_forward_kernel<T, 1>;
    const auto blocks = static_cast<unsigned>(fwa_min(fwa_ceil_div(s.count, block_threads / s.lanes), INT_MAX));
    kernel<<<blocks, block_threads, 0, stream->handle>>>(rows_of<T>(y), data_of<float>(rstd), data_of<const T>(o),
                                                         data_of<const float>(w), rows_of<const T>(g), s,
                                                         static_cast<float>(eps));
    FWA_CUDA_LAUNCHED();
    return FWA_OK;
}

template <typename T>
fwa_status head_norm_gate_backward(fwa_stream *stream, fwa_tensor d_o, fwa_tensor dw, fwa_tensor dg, fwa_tensor dy,
                                   fwa_tensor o, fwa_tensor rstd, fwa_tensor w, fwa_tensor g) {
    heads s;
    FWA_TRY(check<T>(o, w, g, rstd, dy, &s));
    const int64_t R = o.shape[0];
    FWA_EXPECT_DENSE(d_o, element<T>::dtype, 3, R, s.H, s.V);
    FWA_EXPECT_DENSE(dw, FWA_F32, 1, s.V);
    if (fwa_tensor_present(g)) FWA_EXPECT(dg, element<T>::dtype, 2, R, s.H * s.V);
    FWA_CHECK(s.V <= most_columns, FWA_UNSUPPORTED, "V = %lld; head_norm_gate_backward on CUDA takes at most %lld",
              static_cast<long long>(s.V), static_cast<long long>(most_columns));
    constexpr int N = pack_size<T>;
    const bool packed = s.V % N == 0 && rows_aligned(o) && rows_aligned(d_o) && rows_aligned(dy) && rows_aligned(g) &&
                        (!fwa_tensor_present(g) || rows_aligned(dg)) && rows_aligned(w);
    auto *partial = static_cast<float *>(stream->workspace);
    row_pieces cut;
    int each;
    if (packed && plan_rows<N>(s, &cut, &each)) {
        const unsigned blocks = grid(stream, cut.count, warp_threads / 32, each == 4 ? 3 : 4);
        auto *kernel = ROW_KERNEL(head_norm_gate_row_backward_kernel, each, T, N);
        kernel<<<blocks, warp_threads, 0, stream->handle>>>(
            {data_of<T>(d_o), cut.D}, partial, rows_of<T>(dg), rows_of<const T>(dy), {data_of<const T>(o), cut.D},
            data_of<const float>(rstd), data_of<const float>(w), rows_of<const T>(g), cut);
        FWA_CUDA_LAUNCHED();
        FWA_TRY(reduce_rows(stream, data_of<float>(dw), partial, blocks, s.V));
        return FWA_OK;
    }
    s.lanes = lanes_for(fwa_ceil_div(s.V, packed ? N : 1));
    const size_t row_bytes = static_cast<size_t>(s.V) * sizeof(float);
    int groups = block_threads / s.lanes;
    while (groups * s.lanes > 32 && groups * row_bytes > shared_bytes) groups /= 2;
    const int64_t fill = grid(stream, s.count, groups, blocks_per_multiprocessor);
    const int64_t blocks = partial_rows(fill, s.V);
    auto *kernel = packed ? head_norm_gate_backward_kernel<T, N> : head_norm_gate_backward_kernel<T, 1>;
    kernel<<<static_cast<unsigned>(blocks), groups * s.lanes, groups * row_bytes, stream->handle>>>(
        data_of<T>(d_o), partial, rows_of<T>(dg), rows_of<const T>(dy), data_of<const T>(o), data_of<const float>(rstd),
        data_of<const float>(w), rows_of<const T>(g), s);
    FWA_CUDA_LAUNCHED();
    FWA_TRY(reduce_rows(stream, data_of<float>(dw), partial, blocks, s.V));
    return FWA_OK;
}

} // namespace

FWA_CUDA_ENTRIES(head_norm_gate_forward, head_norm_gate_forward,
                 (fwa_stream * stream, fwa_tensor y, fwa_tensor rstd, fwa_tensor o, fwa_tensor w, fwa_tensor g,
                  double eps),
                 (stream, y, rstd, o, w, g, eps))
FWA_CUDA_ENTRIES(head_norm_gate_backward, head_norm_gate_backward,
                 (fwa_stream * stream, fwa_tensor d_o, fwa_tensor dw, fwa_tensor dg, fwa_tensor dy, fwa_tensor o,
                  fwa_tensor rstd, fwa_tensor w, fwa_tensor g),
                 (stream, d_o, dw, dg, dy, o, rstd, w, g))
