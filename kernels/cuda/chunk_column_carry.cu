// Chunk form of the column core without residuals (falcon2a), the passes that carry a state alone (docs/kernels.md):
// the gradient of the state,
//
//   dS = e^{u_C} dS' + Q^T (e^{u_i} dO)               columns alone, from the last chunk to the first
//
// which is kept as bf16 behind every chunk for the chunk-parallel rest, and, where a sequence is cut into segments,
// what each segment makes of an empty one, forward S' = e^{u_C} S + X^T (e^{u_C - u_s} eta v). Overwritten. A warpgroup
// holds 64 columns of V, transposed. Three blocks a multiprocessor; keys or queries come a chunk ahead, the rest
// beside the product.
#include "kernels/cuda/chunk_column_steps.cuh"
#include "kernels/cuda/chunk_join.cuh"
#include "kernels/cuda/mixer_common.cuh"

namespace {

using namespace fwa;

template <int K> struct carry_memory {
    __nv_bfloat16 by[2][64 * K]; // x or q
    __nv_bfloat16 rows[64 * 64]; // v or dO
    float beta[64 * 64];
    float4 tokens[64];
};

template <int K, bool forward> struct carry_block : column_place<K> {
    using at = column_place<K>;
    const column_task &a;
    carry_memory<K> &m;

    __device__ carry_block(const column_task &task, carry_memory<K> &memory, int piece, int slices)
        : at(task, piece, slices), a(task), m(memory) {}

    __device__ void load_by(int c) const {
        if constexpr (forward)
            load_keys<K, column_threads>(m.by[c % 2], at::thread, a, at::b, at::h / a.group, c);
        else
            load_steps<K, column_threads>(m.by[c % 2], at::thread, a, a.q, at::b, at::h / a.group, c);
    }
    __device__ void load_rows(int c) const {
        at::load_columns(m.rows, a, forward ? a.v : a.d_o, c);
        load_beta(m.beta, at::thread, a, at::b, at::h, c, at::v);
        load_tokens(m.tokens, at::thread, a, at::head, c);
        copy_commit();
    }

    // Y = e^{u_C - u_s} eta v or e^{u_i} dO; u: log2 of the decay of the chunk. Factors that leave nothing may be
    // products of a large one and zero.
    __device__ void weigh(float (&Y)[32], float (&u)[2]) const {
        uint32_t pairs[4];
        const step_source source(m.beta, m.tokens, at::warp);
        u[0] = u[1] = 0.0f;
#pragma unroll
        for (int i = 0; i < 8; i++) {
            const int j = forward ? 7 - i : i;
            eight_steps s;
            get_steps(s, a, source, j);
            if (i % 2 == 0) get_columns(pairs, m.rows, j & ~1, at::warp);
            float row[4], by[2];
            unpack_block(row, pairs, j);
#pragma unroll
            for (int e = 0; e < 2; e++) {
                by[e] = power2(u[e] + (forward ? s.rest[e] : s.middle[e]));
                u[e] += s.middle[e] + s.rest[e];
            }
#pragma unroll
            for (int e = 0; e < 4; e++)
                Y[j * 4 + e] = row[e] * ((forward ? s.eta[e] * s.back[e] : s.at[e]) * by[e / 2]);
        }
    }
};

// alone: of each segment from an empty state; leaves it in `starts`, and what is left of a state over the segment in
// `decays`.
template <int K, bool forward, bool alone>
__global__ void __launch_bounds__(column_threads, 3)
    column_carry_kernel(const __grid_constant__ column_task a, int slices) {
    extern __shared__ __align__(1024) unsigned char memory[];
    auto &m = *reinterpret_cast<carry_memory<K> *>(memory);
    const int segments = alone ? asked_segments(a, forward) : a.segments;
    const int segment = static_cast<int>(blockIdx.x) % segments + (forward ? 0 : a.segments - segments);
    carry_block<K, forward> at(a, m, static_cast<int>(blockIdx.x) / segments, slices);
    const int begin = segment * a.length, end = min(begin + a.length, a.chunks);
    float S[K / 2], left[2] = {1.0f, 1.0f};
    if constexpr (alone)
        get_state<K>(S, chunk_state{}, 0, 0, 0);
    else
        get_state<K>(S, a.segments > 1 ? segment_state(a, segment, K, at.V) : a.dS_end, at.b, at.h,
                     at.v + at.warp * 16);
    at.load_by(forward ? begin : end - 1);
    at.load_rows(forward ? begin : end - 1);
#pragma unroll 1
    for (int i = begin; i < end; i++) {
        const int c = forward ? i : begin + end - 1 - i, next = forward ? c + 1 : c - 1;
        at.renew();
        copy_wait<0>();
        publish();
        __syncthreads();
        if (i + 1 < end) at.load_by(next);
        at.renew();
        if constexpr (!alone) {
            uint32_t rows[K / 16][4];
#pragma unroll
            for (int step = 0; step < K / 16; step++) fragment(rows[step], S, step);
            keep_state<K>(state_at<K>(a.d_states, a, at.head, c, at.V, at.v + at.warp * 16), rows);
        }
        float Y[32], u[2];
        at.weigh(Y, u);
        if (a.documents) keep_document(Y, m.tokens, forward ? m.tokens[63].z : 0.0f);
        const bool emptied = a.documents && m.tokens[63].z > 0.0f;
        const float by[2] = {emptied ? 0.0f : power2(u[0]), emptied ? 0.0f : power2(u[1])};
        uint32_t rows[4][4];
#pragma unroll
        for (int step = 0; step < 4; step++) fragment(rows[step], Y, step);
        __syncthreads();
        at.renew();
        if (i + 1 < end) at.load_rows(next);
        if constexpr (alone) left[0] *= by[0], left[1] *= by[1];
#pragma unroll
        for (int k = 0; k < K / 2; k++) S[k] *= by[k % 4 / 2];
        const operand_tile tile(m.by[c % 2]);
        products_begin();
#pragma unroll
        for (int step = 0; step < 4; step++) product<K, 1>(S, rows[step], tile.mn(step * 16 * 64, 64), true);
        products_commit();
        products_wait<0>();
        products_done(S);
    }
    if constexpr (alone) {
        const int lane = at.thread % 32;
        set_state<K>(S, segment_state(a, segment, K, at.V), at.b, at.h, at.v + at.warp * 16);
        float *decays = a.decays + (static_cast<int64_t>(at.head) * a.segments + segment) * at.V + at.v;
        if (lane % 4 < 2) decays[at.warp * 16 + lane / 4 + lane % 4 * 8] = lane % 4 ? left[1] : left[0];
    } else if (a.segments == 1 && a.dS0.data) {
        set_state<K>(S, a.dS0, at.b, at.h, at.v + at.warp * 16);
    }
}

template <int K, bool forward, bool alone>
fwa_status launch_carry(cudaStream_t stream, const column_task &task, int V) {
    const auto kernel = column_carry_kernel<K, forward, alone>;
    constexpr int bytes = sizeof(carry_memory<K>);
    const int blocks = task.B * task.H * (V / 64) * (alone ? asked_segments(task, forward) : task.segments);
    FWA_CUDA_TRY(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
    FWA_LAUNCH(kernel, static_cast<unsigned>(blocks), column_threads, bytes, stream, task, V / 64);
    return FWA_OK;
}

template <int K, bool forward>
fwa_status find_starts(cudaStream_t stream, const column_task &task, const fwa_mixer_call *call, int V) {
    if (task.segments == 1) return receive_states(call);
    FWA_TRY((launch_carry<K, forward, true>(stream, task, V)));
    FWA_TRY(receive_states(call));
    return chunk_join_segments(stream, task, forward ? task.S0 : task.dS_end, forward, K, V, true);
}

} // namespace

namespace fwa {

fwa_status chunk_column_starts(cudaStream_t stream, const column_task &task, const fwa_mixer_call *call, int K, int V) {
    return K == 64 ? find_starts<64, true>(stream, task, call, V) : find_starts<128, true>(stream, task, call, V);
}

fwa_status chunk_column_ends(cudaStream_t stream, const column_task &task, const fwa_mixer_call *call, int K, int V) {
    return K == 64 ? find_starts<64, false>(stream, task, call, V) : find_starts<128, false>(stream, task, call, V);
}

fwa_status chunk_column_carry(cudaStream_t stream, const column_task &task, int K, int V) {
    return K == 64 ? launch_carry<64, false, false>(stream, task, V) : launch_carry<128, false, false>(stream, task, V);
}

} // namespace fwa
