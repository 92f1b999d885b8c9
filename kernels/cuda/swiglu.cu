// SwiGLU and its gradient, for f32 and bf16 activations (contract: swiglu_forward, swiglu_backward in ops.def).
//
//   y = silu(a) b with x = (a, b);   da = dy b silu'(a),   db = dy silu(a)
//
// Shapes: y, dy [R,F], x, dx [R,2F] in T, rows may be strided; any R, F >= 1; dx may be x. Numerics: fp32 between load
// and store. Cost: bound by memory, 3 R F elements forward and 5 R F backward. Mapping: one thread a pack of 16 bytes
// of a and of b (single elements where a row or its middle is not aligned), rows of threads over the matrix.
#include "kernels/cuda/launch.cuh"

namespace {

using namespace fwa;

template <typename T, int N>
__global__ void __launch_bounds__(256) swiglu_forward_kernel(rows<T> y, rows<const T> x, int64_t R, int64_t F) {
    for (int64_t r = static_cast<int64_t>(blockIdx.x) * blockDim.y + threadIdx.y; r < R;
         r += static_cast<int64_t>(gridDim.x) * blockDim.y) {
        const T *xr = x.row(r);
        T *yr = y.row(r);
        for (int64_t f = static_cast<int64_t>(threadIdx.x) * N; f < F; f += static_cast<int64_t>(blockDim.x) * N) {
            const auto a = load<N>(xr + f), b = load<N>(xr + F + f);
            pack<T, N> out;
            for (int i = 0; i < N; i++) {
                const float gate = to_float(a.at[i]);
                out.at[i] = from_float<T>(gate * sigmoid<T>(gate) * to_float(b.at[i]));
            }
            store(yr + f, out);
        }
    }
}

template <typename T, int N>
__global__ void __launch_bounds__(256)
    swiglu_backward_kernel(rows<T> dx, rows<const T> dy, rows<const T> x, int64_t R, int64_t F) {
    for (int64_t r = static_cast<int64_t>(blockIdx.x) * blockDim.y + threadIdx.y; r < R;
         r += static_cast<int64_t>(gridDim.x) * blockDim.y) {
        const T *xr = x.row(r), *dyr = dy.row(r);
        T *dxr = dx.row(r);
        for (int64_t f = static_cast<int64_t>(threadIdx.x) * N; f < F; f += static_cast<int64_t>(blockDim.x) * N) {
            const auto a = load<N>(xr + f), b = load<N>(xr + F + f), d = load<N>(dyr + f);
            pack<T, N> da, db;
            for (int i = 0; i < N; i++) {
                const float gate = to_float(a.at[i]), s = sigmoid<T>(gate), g = to_float(d.at[i]);
                da.at[i] = from_float<T>(g * to_float(b.at[i]) * silu_slope(gate, s));
                db.at[i] = from_float<T>(g * gate * s);
            }
            store(dxr + f, da);
            store(dxr + F + f, db);
        }
    }
}

template <typename T> fwa_status swiglu_forward(fwa_stream *stream, fwa_tensor y, fwa_tensor x) {
    FWA_EXPECT_DIMS(y, 2);
    const int64_t R = y.shape[0], F = y.shape[1];
    FWA_EXPECT(y, element<T>::dtype, 2, R, F);
    FWA_EXPECT(x, element<T>::dtype, 2, R, 2 * F);
    constexpr int N = pack_size<T>;
    const bool packed = F % N == 0 && rows_aligned(x) && rows_aligned(y);
    auto *kernel = packed ? swiglu_forward_kernel<T, N> : swiglu_forward_kernel<T, 1>;
    const tile t = tile_rows(R, fwa_ceil_div(F, packed ? N : 1));
    kernel<<<t.blocks, t.threads, 0, stream->handle>>>(rows_of<T>(y), rows_of<const T>(x), R, F);
    FWA_CUDA_LAUNCHED();
    return FWA_OK;
}

template <typename T> fwa_status swiglu_backward(fwa_stream *stream, fwa_tensor dx, fwa_tensor dy, fwa_tensor x) {
    FWA_EXPECT_DIMS(dy, 2);
    const int64_t R = dy.shape[0], F = dy.shape[1];
    FWA_EXPECT(dy, element<T>::dtype, 2, R, F);
    FWA_EXPECT(x, element<T>::dtype, 2, R, 2 * F);
    FWA_EXPECT(dx, element<T>::dtype, 2, R, 2 * F);
    constexpr int N = pack_size<T>;
    const bool packed = F % N == 0 && rows_aligned(x) && rows_aligned(dy) && rows_aligned(dx);
    auto *kernel = packed ? swiglu_backward_kernel<T, N> : swiglu_backward_kernel<T, 1>;
    const tile t = tile_rows(R, fwa_ceil_div(F, packed ? N : 1));
    kernel<<<t.blocks, t.threads, 0, stream->handle>>>(rows_of<T>(dx), rows_of<const T>(dy), rows_of<const T>(x), R, F);
    FWA_CUDA_LAUNCHED();
    return FWA_OK;
}

} // namespace

FWA_CUDA_ENTRIES(swiglu_forward, swiglu_forward, (fwa_stream * stream, fwa_tensor y, fwa_tensor x), (stream, y, x))
FWA_CUDA_ENTRIES(swiglu_backward, swiglu_backward, (fwa_stream * stream, fwa_tensor dx, fwa_tensor dy, fwa_tensor x),
                 (stream, dx, dy, x))
