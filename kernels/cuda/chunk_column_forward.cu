// Chunk form of the column core, forward, the serial part (docs/kernels.md). For every column, with y_s = eta_s r_s
// e^{m - u_s} and the state at the reference m of a block of eight steps as coefficients of the keys,
//
//   r_i = v_i - e^{u_{i-1} - m} (e^m X S + G y)_i     falcon2, (4.4); r = v in falcon2a, (4.7)
//   o_i = e^{u_i - m} (e^m Q S + P y)_i               S' = e^{u_C} S + X^T (e^{u_C - m} y)
//
// 32 steps at a time, block after block: products of earlier blocks' y with later blocks of P and G in tf32, G inside a
// block by substitution in fp32. S in fp32, as an operand in bf16. o and the leaving state are overwritten; S before
// every chunk and r are kept as bf16 where a backward pass follows. Segments of a sequence (falcon2a) are blocks of
// their own, from states found before.
#include "kernels/cuda/chunk_column_steps.cuh"

namespace {

using namespace fwa;

template <int K, bool delta> struct forward_memory {
    __nv_bfloat16 q[64 * K], x[64 * K];
    __nv_bfloat16 v[64 * 64], o[64 * 64]; // v: later r
    float P[2 * half_floats], G[delta ? 2 * half_floats : 4];
    float beta[64 * 64];
    float4 tokens[64];
};

// y of block j, and its r, for acc = (e^m X S + G y)_j of earlier blocks; G: the block on the diagonal.
__device__ void solve_steps(float (&y)[4], float (&r)[4], float (&acc)[4], const float (&v)[4], const eight_steps &s,
                            const float *G) {
    const int t = static_cast<int>(threadIdx.x) % 4;
    float row[2][8], by[4], most[4];
#pragma unroll
    for (int e = 0; e < 2; e++)
#pragma unroll
        for (int i = 0; i < 8; i += 4) {
            const float4 f = *reinterpret_cast<const float4 *>(G + block_row(t * 2 + e) + i);
            row[e][i] = f.x, row[e][i + 1] = f.y, row[e][i + 2] = f.z, row[e][i + 3] = f.w;
        }
#pragma unroll
    for (int e = 0; e < 4; e++) most[e] = s.eta[e] * s.back[e] * v[e], by[e] = s.eta[e] * s.back[e] * s.from[e];
#pragma unroll
    for (int i = 0; i < 7; i++) {
        float now[4];
#pragma unroll
        for (int e = 0; e < 4; e++) now[e] = most[e] - by[e] * acc[e];
        const float2 done = of_step(now, i);
#pragma unroll
        for (int e = 0; e < 2; e++) acc[e] += row[e][i] * done.x, acc[2 + e] += row[e][i] * done.y;
    }
#pragma unroll
    for (int e = 0; e < 4; e++) {
        r[e] = v[e] - s.from[e] * acc[e];
        y[e] = s.eta[e] * s.back[e] * r[e];
    }
}

template <int K, bool delta> struct forward_block : column_place<K> {
    using at = column_place<K>;
    const column_task &a;
    forward_memory<K, delta> &m;

    __device__ forward_block(const column_task &task, forward_memory<K, delta> &memory, int slices)
        : at(task, static_cast<int>(blockIdx.x) / task.segments, slices), a(task), m(memory) {}

    __device__ void load(int c) const {
        at::load_keys_queries(m.q, m.x, a, c);
        at::load_columns(m.v, a, a.v, c);
        load_beta(m.beta, at::thread, a, at::b, at::h, c, at::v);
        load_tokens(m.tokens, at::thread, a, at::head, c);
        copy_commit();
    }

    // O = S^T Q^T, and R = S^T X^T of falcon2, for the rows of a half.
    __device__ void history(float (&O)[16], float (&R)[16], float (&S)[K / 2], int half) const {
        const operand_tile q(m.q), x(m.x);
#pragma unroll
        for (int k = 0; k < K; k += 64) { // part by part, to spare registers
            uint32_t part[4][4];
            products_done(S); // its bf16 of earlier parts
#pragma unroll
            for (int step = 0; step < 4; step++) fragment(part[step], S, k / 16 + step);
            products_ready(part);
            products_begin();
#pragma unroll
            for (int step = 0; step < 4; step++) {
                const int at = k * 64 + step * 16 + half * (32 * 64);
                product<32, 0>(O, part[step], q.k(at), k + step > 0);
                if constexpr (delta) product<32, 0>(R, part[step], x.k(at), k + step > 0);
            }
            products_commit();
            products_wait<0>();
            products_done(O);
            if constexpr (delta) products_done(R);
        }
    }

    // The four blocks of a half in turn: O = Q S becomes o, R = X S the residuals, which go to the tile of v; Y the y,
    // at the end of the half; u: log2 of the decay of the half.
    __device__ void steps(float (&O)[16], float (&R)[16], float (&Y)[16], float (&u)[2], int half) const {
        uint32_t values[4], kept[4];
        const step_source source(m.beta + half * (32 * 64), m.tokens + half * 32, at::warp);
        __nv_bfloat16 *tile = m.v + half * (32 * 64);
        const float *P = m.P + half * half_floats, *G = m.G + (delta ? half * half_floats : 0);
        float rest[2] = {0.0f, 0.0f};
        u[0] = u[1] = 0.0f;
#pragma unroll
        for (int j = 0; j < 4; j++) {
            eight_steps s;
            get_steps(s, a, source, j);
            const float by[2] = {power2(rest[0] + s.middle[0]), power2(rest[1] + s.middle[1])};
#pragma unroll
            for (int i = 0; i < 16; i++) {
                if (i < j * 4)
                    Y[i] *= by[i % 4 / 2];
                else
                    O[i] *= by[i % 4 / 2];
                if (delta && i >= j * 4) R[i] *= by[i % 4 / 2];
            }
            if (j % 2 == 0) get_columns(values, tile, j, at::warp);
            float v[4], y[4], r[4];
            unpack_block(v, values, j);
            if constexpr (delta) {
                float acc[4] = {R[j * 4], R[j * 4 + 1], R[j * 4 + 2], R[j * 4 + 3]};
                solve_steps(y, r, acc, v, s, G + lower_at(j, j));
                pack_block(kept, r, j);
                if (j % 2 == 1 && a.r.data) place_columns(tile, kept, j - 1, at::warp);
            } else {
#pragma unroll
                for (int e = 0; e < 4; e++) y[e] = s.eta[e] * s.back[e] * v[e];
            }
            uint32_t operand[4];
            rounded_operand(operand, y);
#pragma unroll
            for (int i = j; i < 4; i++) {
                add_product(O + i * 4, operand, P + lower_at(i, j));
                if (delta && i > j) add_product(R + i * 4, operand, G + lower_at(i, j));
            }
#pragma unroll
            for (int e = 0; e < 4; e++) O[j * 4 + e] *= s.at[e], Y[j * 4 + e] = y[e];
#pragma unroll
            for (int e = 0; e < 2; e++) rest[e] = s.rest[e], u[e] += s.middle[e] + s.rest[e];
        }
        const float last[2] = {power2(rest[0]), power2(rest[1])};
#pragma unroll
        for (int i = 0; i < 16; i++) Y[i] *= last[i % 4 / 2];
    }

    // One half of the steps of a chunk: o to its tile, and the state from before it to behind it.
    __device__ void half_steps(float (&S)[K / 2], int half) const {
        float O[16], R[16], Y[16], u[2];
        history(O, R, S, half);
        const float4 *tokens = m.tokens + half * 32;
        const float first = half ? tokens[-1].z : 0.0f, end = tokens[31].z;
        if (a.documents) {
            keep_document(O, tokens, first);
            if (delta) keep_document(R, tokens, first);
        }
        steps(O, R, Y, u, half);
        if (a.documents) keep_document(Y, tokens, end);
#pragma unroll
        for (int j = 0; j < 4; j += 2) {
            uint32_t pairs[4];
            fragment(pairs, O, j / 2);
            place_columns(m.o + half * (32 * 64), pairs, j, at::warp);
        }
        const bool emptied = a.documents && end != first;
        const float by[2] = {emptied ? 0.0f : power2(u[0]), emptied ? 0.0f : power2(u[1])};
#pragma unroll
        for (int i = 0; i < K / 2; i++) S[i] *= by[i % 4 / 2];
        uint32_t leaving[2][4];
        fragment(leaving[0], Y, 0), fragment(leaving[1], Y, 1);
        products_ready(S);
        products_ready(leaving);
        const operand_tile x(m.x);
        products_begin();
#pragma unroll
        for (int step = 0; step < 2; step++)
            product<K, 1>(S, leaving[step], x.mn((half * 32 + step * 16) * 64, 64), true);
        products_commit();
        products_wait<0>();
        products_done(S);
    }
};

template <int K, bool delta>
__global__ void __launch_bounds__(column_threads, 3)
    column_forward_kernel(const __grid_constant__ column_task a, int slices) {
    extern __shared__ __align__(1024) unsigned char memory[];
    auto &m = *reinterpret_cast<forward_memory<K, delta> *>(memory);
    forward_block<K, delta> at(a, m, slices);
    const int segment = static_cast<int>(blockIdx.x) % a.segments, begin = segment * a.length,
              end = min(begin + a.length, a.chunks);
    float S[K / 2];
    get_state<K>(S, a.segments > 1 ? segment_state(a, segment, K, at.V) : a.S0, at.b, at.h, at.v + at.warp * 16);
    at.load(begin);
#pragma unroll 1
    for (int c = begin; c < end; c++) {
        at.renew();
        copy_wait<0>();
        publish();
        __syncthreads();
        if (c + 1 < end) at.prefetch_chunk(a, a.v, c + 1);
        at.renew();
        place_product<K, false, true>(m.P, m.q, m.x, m.tokens, a.documents, at.warp);
        if constexpr (delta) place_product<K, true, true>(m.G, m.x, m.x, m.tokens, a.documents, at.warp);
        if (a.states) keep_state<K>(state_at<K>(a.states, a, at.head, c, at.V, at.v + at.warp * 16), S);
        __syncthreads();
        at.renew();
#pragma unroll 1
        for (int half = 0; half < 2; half++) at.half_steps(S, half);
        if (delta && a.r.data) copy_columns(m.v, a, a.r, at.b, at.h, c, at.v, at.warp);
        __syncthreads();
        at.renew();
        if (c + 1 < end) at.load(c + 1);
        copy_columns(m.o, a, a.o, at.b, at.h, c, at.v, at.warp);
    }
    if (a.segments == 1 && a.S_end.data) set_state<K>(S, a.S_end, at.b, at.h, at.v + at.warp * 16);
}

template <int K, bool delta> fwa_status launch_forward(cudaStream_t stream, const column_task &task, int V) {
    const auto kernel = column_forward_kernel<K, delta>;
    constexpr int bytes = sizeof(forward_memory<K, delta>);
    FWA_CUDA_TRY(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
    FWA_LAUNCH(kernel, static_cast<unsigned>(task.B * task.H * (V / 64) * task.segments), column_threads, bytes, stream,
               task, V / 64);
    return FWA_OK;
}

} // namespace

namespace fwa {

fwa_status chunk_column_forward(cudaStream_t stream, const column_task &task, int K, int V, bool delta) {
    if (delta) return K == 64 ? launch_forward<64, true>(stream, task, V) : launch_forward<128, true>(stream, task, V);
    return K == 64 ? launch_forward<64, false>(stream, task, V) : launch_forward<128, false>(stream, task, V);
}

} // namespace fwa
