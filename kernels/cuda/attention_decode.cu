// One token of each sequence against a cache of n keys and values [B,n,.,.] in fp32, and its own key and value:
//
//   s_j = scale q . x_j, j = 0 .. n     o = sum_j e^{s_j - m} v_j / sum_j e^{s_j - m}, m = max_j s_j
//
// The rows of a head are cut into parts of equal length, a block each. Four warps take every fourth row, four rows at a
// time, with a running maximum m, sum l and o, a lane holding columns lane, lane + 32, ...; warps are joined in shared
// memory, parts in a second kernel, in one order: the same bits every time. q and o in fp32 or bf16, arithmetic in
// fp32. Cost: the cache is read once, 4 (K + V) bytes a row and query head.
#include <cfloat>

#include "kernels/cuda/attention_decode.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/mixer_task.cuh"

namespace {

using namespace fwa;

constexpr int warps = 4, unrolled = 4, most_parts = 32, part_rows = 64;
constexpr int64_t enough_blocks = 1024, most_columns = 256;

// Strides in elements.
struct place {
    int64_t b, row, head;
};

struct decode_task {
    const void *q, *k, *v; // act [B,1,.,.]
    void *o;
    const float *keys, *values;
    float *partial; // [B,H,parts,2 + V]: m, l, o
    int64_t n, H, group, K, V;
    place q_at, k_at, v_at, o_at, keys_at, values_at;
    int parts;
    float scale;
};

// Columns lane + 32 i of row j of the cache, or behind it of the token's own.
template <typename T, int per>
__device__ void load_row(float (&to)[per], const float *cache, const place &at, const T *own, int64_t j, int64_t n,
                         int64_t columns) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
    for (int i = 0; i < per; i++) {
        const int64_t c = lane + 32 * i;
        to[i] = c >= columns ? 0.0f : j < n ? cache[j * at.row + c] : to_float(own[c]);
    }
}

template <int per> struct running {
    float m = -FLT_MAX, l = 0.0f, o[per] = {};
};

// Takes rows j, j + warps, ... in; those at `end` and beyond count as absent.
template <typename T, int per>
__device__ void take_rows(running<per> &sum, const decode_task &a, const float (&q)[per], const float *keys,
                          const float *values, const T *k, const T *v, int64_t j, int64_t end) {
    float x[unrolled][per], y[unrolled][per], s[unrolled], top = sum.m, total = 0.0f;
#pragma unroll
    for (int u = 0; u < unrolled; u++) {
        const int64_t row = min(j + u * warps, end - 1);
        load_row<T, per>(x[u], keys, a.keys_at, k, row, a.n, a.K);
        load_row<T, per>(y[u], values, a.values_at, v, row, a.n, a.V);
    }
#pragma unroll
    for (int u = 0; u < unrolled; u++) {
        float dot = 0.0f;
#pragma unroll
        for (int i = 0; i < per; i++) dot += q[i] * x[u][i];
        s[u] = warp_sum(dot);
        if (j + u * warps < end) top = fmaxf(top, s[u]);
    }
    const float shrink = expf(sum.m - top);
#pragma unroll
    for (int i = 0; i < per; i++) sum.o[i] *= shrink;
#pragma unroll
    for (int u = 0; u < unrolled; u++) {
        const float p = j + u * warps < end ? expf(s[u] - top) : 0.0f;
        total += p;
#pragma unroll
        for (int i = 0; i < per; i++) sum.o[i] += p * y[u][i];
    }
    sum.l = sum.l * shrink + total;
    sum.m = top;
}

// The warps' sums as one; thread c holds columns c, c + 128, ...
template <int per> __device__ void join_warps(const running<per> &sum, const decode_task &a, float *to) {
    __shared__ float m[warps], l[warps], o[warps][32 * per];
    const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
    if (lane == 0) m[warp] = sum.m, l[warp] = sum.l;
#pragma unroll
    for (int i = 0; i < per; i++) o[warp][lane + 32 * i] = sum.o[i];
    __syncthreads();
    const float top = fmaxf(fmaxf(m[0], m[1]), fmaxf(m[2], m[3]));
    float scale[warps], total = 0.0f;
#pragma unroll
    for (int w = 0; w < warps; w++) {
        scale[w] = expf(m[w] - top);
        total += scale[w] * l[w];
    }
    if (threadIdx.x == 0) to[0] = top, to[1] = total;
    for (int64_t c = threadIdx.x; c < a.V; c += 32 * warps) {
        float x = 0.0f;
#pragma unroll
        for (int w = 0; w < warps; w++) x += scale[w] * o[w][c];
        to[2 + c] = x;
    }
}

template <typename T, int per>
__global__ void __launch_bounds__(32 * warps) decode_part_kernel(const __grid_constant__ decode_task a) {
    const int64_t part = blockIdx.x % a.parts, head = blockIdx.x / a.parts;
    const int64_t h = head % a.H, b = head / a.H, hq = h / a.group;
    const T *own_q = static_cast<const T *>(a.q) + b * a.q_at.b + hq * a.q_at.head;
    const T *own_k = static_cast<const T *>(a.k) + b * a.k_at.b + hq * a.k_at.head;
    const T *own_v = static_cast<const T *>(a.v) + b * a.v_at.b + h * a.v_at.head;
    const float *keys = a.keys + b * a.keys_at.b + hq * a.keys_at.head;
    const float *values = a.values + b * a.values_at.b + h * a.values_at.head;
    const int64_t each = (a.n + a.parts) / a.parts, end = min((part + 1) * each, a.n + 1);
    float q[per];
    running<per> sum;
    load_row<T, per>(q, nullptr, a.q_at, own_q, 0, 0, a.K);
#pragma unroll
    for (int i = 0; i < per; i++) q[i] *= a.scale;
    for (int64_t j = part * each + threadIdx.x / 32; j < end; j += warps * unrolled)
        take_rows<T, per>(sum, a, q, keys, values, own_k, own_v, j, end);
    join_warps<per>(sum, a, a.partial + blockIdx.x * (2 + a.V));
}

template <typename T>
__global__ void __launch_bounds__(32 * warps) decode_join_kernel(const __grid_constant__ decode_task a) {
    const int64_t head = blockIdx.x, h = head % a.H, b = head / a.H, width = 2 + a.V;
    const float *partial = a.partial + head * a.parts * width;
    float top = -FLT_MAX, total = 0.0f;
    for (int p = 0; p < a.parts; p++) top = fmaxf(top, partial[p * width]);
    for (int p = 0; p < a.parts; p++) total += expf(partial[p * width] - top) * partial[p * width + 1];
    T *o = static_cast<T *>(a.o) + b * a.o_at.b + h * a.o_at.head;
    for (int64_t c = threadIdx.x; c < a.V; c += 32 * warps) {
        float x = 0.0f;
        for (int p = 0; p < a.parts; p++) x += expf(partial[p * width] - top) * partial[p * width + 2 + c];
        o[c] = from_float<T>(x / total);
    }
}

place place_of(fwa_tensor t) {
    return {t.stride[0], t.stride[1], t.stride[2]};
}

int parts_at_most(const fwa_mixer_shape &s) {
    return static_cast<int>(fwa_max(1, fwa_min(most_parts, enough_blocks / (s.B * s.H))));
}

decode_task task_of(const fwa_mixer_call *call, float scale) {
    const fwa_mixer_shape &s = call->shape;
    decode_task a = {};
    a.q = call->q.data, a.k = call->k.data, a.v = call->v.data, a.o = call->o.data;
    a.q_at = place_of(call->q), a.k_at = place_of(call->k), a.v_at = place_of(call->v), a.o_at = place_of(call->o);
    a.n = fwa_tail_rows(call->in.tail_x);
    if (a.n > 0) {
        a.keys = static_cast<const float *>(call->in.tail_x.data), a.keys_at = place_of(call->in.tail_x);
        a.values = static_cast<const float *>(call->in.tail_v.data), a.values_at = place_of(call->in.tail_v);
    }
    a.partial = static_cast<float *>(call->scratch.data);
    a.H = s.H, a.group = s.H / s.Hq, a.K = s.K, a.V = s.V;
    a.parts = static_cast<int>(fwa_min(parts_at_most(s), fwa_ceil_div(a.n + 1, part_rows)));
    a.scale = scale;
    return a;
}

template <typename T> fwa_status run(fwa_stream *stream, const decode_task &a, int64_t heads) {
    const auto blocks = static_cast<unsigned>(heads * a.parts);
    const int64_t columns = fwa_max(a.K, a.V);
    const auto kernel = columns <= 32    ? decode_part_kernel<T, 1>
                        : columns <= 64  ? decode_part_kernel<T, 2>
                        : columns <= 128 ? decode_part_kernel<T, 4>
                                         : decode_part_kernel<T, 8>;
    kernel<<<blocks, 32 * warps, 0, stream->handle>>>(a);
    FWA_CUDA_LAUNCHED();
    decode_join_kernel<T><<<static_cast<unsigned>(heads), 32 * warps, 0, stream->handle>>>(a);
    FWA_CUDA_LAUNCHED();
    return FWA_OK;
}

} // namespace

namespace fwa {

bool attention_decode_takes(const fwa_mixer_call *call) {
    const fwa_mixer_shape &s = call->shape;
    const bool reads = call->in.tail_x.ndim == 0 || call->in.tail_x.dtype == FWA_F32;
    return call->form == FWA_FORM_RECURRENT && s.T == 1 && !call->save && call->reset.ndim == 0 && reads &&
           call->out.tail_x.ndim == 0 && call->out.tail_v.ndim == 0 && s.K <= most_columns && s.V <= most_columns;
}

size_t attention_decode_scratch(const fwa_mixer_call *call) {
    const fwa_mixer_shape &s = call->shape;
    return static_cast<size_t>(s.B * s.H * parts_at_most(s) * (2 + s.V)) * sizeof(float);
}

fwa_status attention_decode(fwa_stream *stream, fwa_dtype compute, const fwa_mixer_call *call, float scale) {
    const decode_task a = task_of(call, scale);
    const int64_t heads = call->shape.B * call->shape.H;
    return compute == FWA_BF16 ? run<__nv_bfloat16>(stream, a, heads) : run<float>(stream, a, heads);
}

} // namespace fwa
