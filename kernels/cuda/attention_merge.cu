// Attention over two sets of keys from that over each: with lse'' = ln(e^lse + e^lse'), L, of both
//
//   o <- e^{lse - L} o + e^{lse' - L} o'
//
// Shapes: o [B,T,H,V] bf16 with dense rows of V, a multiple of 8, o' dense, lse, lse', L [B,H,T] fp32. Overwrites o.
// fp32 between load and store, exponents <= 0. Cost: bound by memory. Mapping: a thread takes 8 columns.
#include "kernels/cuda/attention.cuh"
#include "kernels/cuda/launch.cuh"

namespace fwa {

namespace {

constexpr int columns = 8;

struct merge_task {
    __nv_bfloat16 *o;
    int64_t stride[3]; // of o: sequence, step, head
    int64_t B, T, H, V;
    const float *own_lse;
    attention_other other;
    float *lse; // null: not wanted
};

__global__ void __launch_bounds__(256) attention_merge_kernel(const __grid_constant__ merge_task m) {
    const int64_t packs = m.V / columns, count = m.B * m.T * m.H * packs;
    for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count;
         i += static_cast<int64_t>(gridDim.x) * blockDim.x) {
        const int64_t c = i % packs * columns, row = i / packs, h = row % m.H, t = row / m.H % m.T, b = row / m.H / m.T;
        const int64_t at = (b * m.H + h) * m.T + t;
        __nv_bfloat16 *to = m.o + b * m.stride[0] + t * m.stride[1] + h * m.stride[2] + c;
        const auto x = load<columns>(to), y = load<columns>(m.other.o + row * m.V + c);
        const float own = m.own_lse[at], other = m.other.lse[at], top = fmaxf(own, other);
        const float sum = expf(own - top) + expf(other - top), lse = top + logf(sum);
        const float own_part = expf(own - top) / sum, other_part = expf(other - top) / sum;
        pack<__nv_bfloat16, columns> merged;
#pragma unroll
        for (int e = 0; e < columns; e++)
            merged.at[e] = from_float<__nv_bfloat16>(own_part * to_float(x.at[e]) + other_part * to_float(y.at[e]));
        store(to, merged);
        if (m.lse && c == 0) m.lse[at] = lse;
    }
}

} // namespace

fwa_status attention_merge(fwa_stream *stream, const attention_task &a, const float *own_lse,
                           const attention_other &other) {
    const fwa_mixer_shape &s = a.shape;
    const merge_task m = {data_of<__nv_bfloat16>(a.o),
                          {a.o.stride[0], a.o.stride[1], a.o.stride[2]},
                          s.B,
                          s.T,
                          s.H,
                          s.V,
                          own_lse,
                          other,
                          a.lse};
    attention_merge_kernel<<<grid(stream, s.B * s.T * s.H * (s.V / columns), 256, 16), 256, 0, stream->handle>>>(m);
    FWA_CUDA_LAUNCHED();
    return FWA_OK;
}

} // namespace fwa
