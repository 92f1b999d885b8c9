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
// cache. Mapping: 2^n <= 32 lanes a head vector, a lane holds packs of 16 bytes (single elements where not aligned); dw
// sums of a lane group stand in shared memory, a lane keeping its own columns; groups, then blocks are added in order.
#include "kernels/cuda/launch.cuh"

namespace {

using namespace fwa;

constexpr int block_threads = 256, blocks_per_multiprocessor = 8;
constexpr int64_t most_columns = 8192;     // dw sums of one group that fit the shared memory of a block
constexpr size_t shared_bytes = 32u << 10; // what the groups of a block share

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
    s.lanes = lanes_for(fwa_ceil_div(s.V, packed ? N : 1));
    const size_t row_bytes = static_cast<size_t>(s.V) * sizeof(float);
    int groups = block_threads / s.lanes;
    while (groups * s.lanes > 32 && groups * row_bytes > shared_bytes) groups /= 2;
    const int64_t fill = grid(stream, s.count, groups, blocks_per_multiprocessor);
    const int64_t blocks = partial_rows(fill, s.V);
    auto *partial = static_cast<float *>(stream->workspace);
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
