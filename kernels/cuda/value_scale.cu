// Values times one number a head (contract: value_scale_forward, value_scale_backward in ops.def).
//
//   v = scale x;   dx += scale dv,   dscale[r,h] = sum_v dv x
//
// Shapes: v, x, dv, dx [R,H,V] dense in T, scale, dscale [R,H] fp32. Any sizes >= 1. Numerics: fp32, one rounding a
// result. Cost: bound by memory: 2 R H V elements forward, 4 backward. Mapping: 2^n <= 32 lanes a head vector, packs of
// 16 bytes (single elements where not aligned), lane sums by shuffles.
#include "kernels/cuda/launch.cuh"

namespace {

using namespace fwa;

constexpr int block_threads = 256;

template <typename T, int N>
__global__ void __launch_bounds__(block_threads)
    value_scale_forward_kernel(T *v, const T *x, const float *scale, int64_t heads, int64_t V, int lanes) {
    const int groups = block_threads / lanes, lane = threadIdx.x % lanes;
    for (int64_t i = static_cast<int64_t>(blockIdx.x) * groups + threadIdx.x / lanes; i < heads;
         i += static_cast<int64_t>(gridDim.x) * groups) {
        const float factor = scale[i];
        for (int64_t c = lane * N; c < V; c += lanes * N) {
            auto values = load<N>(x + i * V + c);
            for (int j = 0; j < N; j++) values.at[j] = from_float<T>(factor * to_float(values.at[j]));
            store(v + i * V + c, values);
        }
    }
}

template <typename T, int N>
__global__ void __launch_bounds__(block_threads)
    value_scale_backward_kernel(T *dx, float *dscale, const T *dv, const T *x, const float *scale, int64_t heads,
                                int64_t V, int lanes) {
    const int groups = block_threads / lanes, lane = threadIdx.x % lanes;
    for (int64_t i = static_cast<int64_t>(blockIdx.x) * groups + threadIdx.x / lanes; i < heads;
         i += static_cast<int64_t>(gridDim.x) * groups) {
        const float factor = scale[i];
        float sum = 0.0f;
        for (int64_t c = lane * N; c < V; c += lanes * N) {
            const auto d = load<N>(dv + i * V + c), values = load<N>(x + i * V + c);
            auto out = load<N>(dx + i * V + c);
            for (int j = 0; j < N; j++) {
                sum += to_float(d.at[j]) * to_float(values.at[j]);
                out.at[j] = from_float<T>(to_float(out.at[j]) + factor * to_float(d.at[j]));
            }
            store(dx + i * V + c, out);
        }
        sum = lanes_sum(sum, lanes);
        if (lane == 0) dscale[i] = sum;
    }
}

// Sizes, lanes and blocks of a launch.
struct plan {
    int64_t heads, V;
    int lanes;
    unsigned blocks;
    bool packed;
};

template <typename T> fwa_status make_plan(fwa_tensor v, fwa_tensor x, fwa_tensor scale, fwa_tensor third, plan *p) {
    FWA_EXPECT_DIMS(x, 3);
    const int64_t R = x.shape[0], H = x.shape[1], V = x.shape[2];
    FWA_EXPECT_DENSE(x, element<T>::dtype, 3, R, H, V);
    FWA_EXPECT_DENSE(v, element<T>::dtype, 3, R, H, V);
    FWA_EXPECT_DENSE(scale, FWA_F32, 2, R, H);
    p->heads = R * H;
    p->V = V;
    p->packed = V % pack_size<T> == 0 && rows_aligned(x) && rows_aligned(v) && rows_aligned(third);
    p->lanes = lanes_for(fwa_ceil_div(V, p->packed ? pack_size<T> : 1));
    p->blocks = static_cast<unsigned>(fwa_min(fwa_ceil_div(p->heads, block_threads / p->lanes), INT_MAX));
    return FWA_OK;
}

template <typename T> fwa_status value_scale_forward(fwa_stream *stream, fwa_tensor v, fwa_tensor x, fwa_tensor scale) {
    plan p;
    FWA_TRY(make_plan<T>(v, x, scale, fwa_tensor_absent(), &p));
    auto *kernel = p.packed ? value_scale_forward_kernel<T, pack_size<T>> : value_scale_forward_kernel<T, 1>;
    kernel<<<p.blocks, block_threads, 0, stream->handle>>>(data_of<T>(v), data_of<const T>(x),
                                                           data_of<const float>(scale), p.heads, p.V, p.lanes);
    FWA_CUDA_LAUNCHED();
    return FWA_OK;
}

template <typename T>
fwa_status value_scale_backward(fwa_stream *stream, fwa_tensor dx, fwa_tensor dscale, fwa_tensor dv, fwa_tensor x,
                                fwa_tensor scale) {
    plan p;
    FWA_TRY(make_plan<T>(dv, x, scale, dx, &p));
    FWA_EXPECT_DENSE(dx, element<T>::dtype, 3, x.shape[0], x.shape[1], x.shape[2]);
    FWA_EXPECT_DENSE(dscale, FWA_F32, 2, x.shape[0], x.shape[1]);
    auto *kernel = p.packed ? value_scale_backward_kernel<T, pack_size<T>> : value_scale_backward_kernel<T, 1>;
    kernel<<<p.blocks, block_threads, 0, stream->handle>>>(data_of<T>(dx), data_of<float>(dscale), data_of<const T>(dv),
                                                           data_of<const T>(x), data_of<const float>(scale), p.heads,
                                                           p.V, p.lanes);
    FWA_CUDA_LAUNCHED();
    return FWA_OK;
}

} // namespace

FWA_CUDA_ENTRIES(value_scale_forward, value_scale_forward,
                 (fwa_stream * stream, fwa_tensor v, fwa_tensor x, fwa_tensor scale), (stream, v, x, scale))
FWA_CUDA_ENTRIES(value_scale_backward, value_scale_backward,
                 (fwa_stream * stream, fwa_tensor dx, fwa_tensor dscale, fwa_tensor dv, fwa_tensor x, fwa_tensor scale),
                 (stream, dx, dscale, dv, x, scale))
