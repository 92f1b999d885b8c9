// Joins the segments of a long sequence of few heads (docs/kernels.md): with M the transition of the state over a
// segment and b what the segment makes of an empty state,
//
//   forward   S' = M S + b from the first segment on        backward   dS = M^T dS' + b from the last
//
// in fp32; the b are replaced in `starts`, the last one in the state that leaves. A block takes 8 columns of V of a
// head through all segments, 2 K threads: a thread has 4 of these in a row. Cost: the transitions once for every 8
// columns, from L2; K^2 V multiply-adds a segment.
#include "kernels/cuda/chunk_segments.cuh"

#include "kernels/cuda/mixer_task.cuh"

namespace {

using namespace fwa;

constexpr int columns = 8;

template <int K> struct join_memory {
    float transition[2][K * (K + 4)];
    float4 state[K][columns / 4];
};

template <int K> __device__ void load_transition(float *to, const float *from) {
    constexpr int row = K / 4;
    for (int p = static_cast<int>(threadIdx.x); p < K * row; p += 2 * K)
        copy_async(to + p / row * (K + 4) + p % row * 4, from + p * 4);
}

__device__ void add_scaled(float4 &to, float by, const float4 &x) {
    to.x += by * x.x, to.y += by * x.y, to.z += by * x.z, to.w += by * x.w;
}

// Row `row` of M S or M^T S, four columns.
template <int K, bool transposed>
__device__ float4 row_of_product(const float *M, const float4 (*S)[columns / 4], int row, int quad) {
    float4 sum[2] = {};
#pragma unroll 8
    for (int k = 0; k < K; k += 4) {
        float by[4];
        if constexpr (transposed) {
            for (int i = 0; i < 4; i++) by[i] = M[(k + i) * (K + 4) + row];
        } else {
            *reinterpret_cast<float4 *>(by) = *reinterpret_cast<const float4 *>(M + row * (K + 4) + k);
        }
#pragma unroll
        for (int i = 0; i < 4; i++) add_scaled(sum[i % 2], by[i], S[k + i][quad]);
    }
    add_scaled(sum[0], 1.0f, sum[1]);
    return sum[0];
}

template <int K, bool backward>
__global__ void __launch_bounds__(2 * K) join_transitions_kernel(const __grid_constant__ chunk_task a, int V) {
    extern __shared__ __align__(1024) unsigned char memory[];
    auto &m = *reinterpret_cast<join_memory<K> *>(memory);
    const int row = static_cast<int>(threadIdx.x) / 2, quad = static_cast<int>(threadIdx.x) % 2, slices = V / columns;
    const int head = static_cast<int>(blockIdx.x) / slices, b = head / a.H, h = head % a.H;
    const int v = static_cast<int>(blockIdx.x) % slices * columns + quad * 4;
    const chunk_state &outer = backward ? a.dS_end : a.S0, &end = leaving_state(a, !backward);
    const int last = a.segments - 1, asked = asked_segments(a, !backward);
    const auto segment = [&](int i) { return backward ? a.segments - 1 - i : i; };
    const auto start = [&](int i) {
        return reinterpret_cast<float4 *>(segment_state(a, segment(i), K, V).at(b, h, row) + v);
    };
    const auto load = [&](int i) {
        load_transition<K>(m.transition[i % 2], transition_of(a, segment(i), K).at(b, h, 0));
    };
    const auto advance = [&](int i, float4 own) {
        copy_wait<1>();
        __syncthreads();
        add_scaled(own, 1.0f, row_of_product<K, backward>(m.transition[i % 2], m.state, row, quad));
        __syncthreads();
        return own;
    };
    float4 S = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    if (const float *from = outer.data ? outer.at(b, h, row) + v : nullptr)
        S = make_float4(from[0], from[1], from[2], from[3]);
    load(0);
    copy_commit();
    m.state[row][quad] = *start(0) = S;
    for (int i = 0; i < last; i++) {
        if (i + 1 < asked) load(i + 1);
        copy_commit();
        float4 *to = start(i + 1);
        S = advance(i, *to);
        m.state[row][quad] = *to = S;
    }
    if (!end.data) return;
    copy_commit();
    float *to = end.at(b, h, row) + v;
    S = advance(last, make_float4(to[0], to[1], to[2], to[3]));
    to[0] = S.x, to[1] = S.y, to[2] = S.z, to[3] = S.w;
}

template <int K> fwa_status launch_join(cudaStream_t stream, const chunk_task &task, bool backward, int V) {
    constexpr int bytes = sizeof(join_memory<K>);
    const auto blocks = static_cast<unsigned>(task.B * task.H * (V / columns));
    const auto kernel = backward ? join_transitions_kernel<K, true> : join_transitions_kernel<K, false>;
    FWA_CUDA_TRY(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
    FWA_LAUNCH(kernel, blocks, 2 * K, bytes, stream, task, V);
    return FWA_OK;
}

} // namespace

namespace fwa {

fwa_status chunk_join_transitions(cudaStream_t stream, const chunk_task &task, bool backward, int K, int V) {
    return K == 64 ? launch_join<64>(stream, task, backward, V) : launch_join<128>(stream, task, backward, V);
}

} // namespace fwa
