// Chunk form of the column core, forward, the serial part (docs/kernels.md). For every column, with y_s = eta_s r_s
// e^{m - u_s} and the state at the reference m of a block of eight steps as coefficients of the keys,
//
//   r_i = v_i - e^{u_{i-1} - m} (e^m X S + G y)_i     falcon2, (4.4); r = v in falcon2a, (4.7)
//   o_i = e^{u_i - m} (e^m Q S + P y)_i               S' = e^{u_C} S + X^T (e^{u_C - m} y)
//
// block after block: products of earlier blocks' y with later blocks of P and G in tf32, G inside a block by
// substitution in fp32. S in fp32, as an operand in bf16. o and the leaving state are overwritten; S before every chunk
// and r are kept as bf16 where a backward pass follows. Segments of a sequence (falcon2a) are blocks of their own, from
// states found before.
#include "kernels/cuda/chunk_column_steps.cuh"

namespace {

using namespace fwa;

template <int K, bool delta> struct forward_memory {
    __nv_bfloat16 q[64 * K], x[64 * K];
    __nv_bfloat16 v[64 * 64]; // later r
    float P[lower_floats];    // later o
    float beta[64 * 64];
    float G[delta ? lower_floats : 4];
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
            const float4 f = *reinterpret_cast<const float4 *>(G + (t * 2 + e) * 8 + i);
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
        load_floats(m.beta, at::thread, a, a.beta, at::b, at::h, c, at::v);
        load_tokens(m.tokens, at::thread, a, at::head, c);
        copy_commit();
    }

    // S^T B^T for 32 rows of a tile, from row `row` on.
    __device__ static void history(float (&d)[16], const float (&S)[K / 2], const __nv_bfloat16 *tile, int row) {
        const operand_tile rows(tile);
#pragma unroll
        for (int k = 0; k < K; k += 64) { // part by part, to spare registers
            uint32_t part[4][4];
#pragma unroll
            for (int step = 0; step < 4; step++) fragment(part[step], S, k / 16 + step);
            products_begin();
#pragma unroll
            for (int step = 0; step < 4; step++)
                product<32, 0>(d, part[step], rows.k(k * 64 + step * 16 + row * 64), k + step > 0);
            products_commit();
            products_wait<0>();
            products_done(d);
        }
    }

    // Blocks 4 half .. in turn: O = Q S becomes o, R = X S the y, which go to Y, where those of earlier blocks stand; Y
    // is at the reference of the last block that is done, or behind it; `rest`: log2 of the decay from there on; u:
    // from the start of the chunk to the end of the last block.
    template <int half>
    __device__ void steps(float (&O)[16], float (&R)[16], float (&Y)[32], float (&rest)[2], float (&u)[2]) const {
        uint32_t values[4], kept[4];
        const step_source source(m.beta, m.tokens, at::warp);
#pragma unroll
        for (int n = 0; n < 4; n++) {
            const int j = half * 4 + n;
            eight_steps s;
            get_steps(s, a, source, j);
            const float by[2] = {power2(rest[0] + s.middle[0]), power2(rest[1] + s.middle[1])};
            const float first[2] = {power2(u[0] + s.middle[0]), power2(u[1] + s.middle[1])};
#pragma unroll
            for (int i = 0; i < j * 4; i++) Y[i] *= by[i % 4 / 2];
            if (half > 0 && n == 0) add_earlier(O, R, Y, first);
#pragma unroll
            for (int i = n * 4; i < 16; i++) {
                if (half > 0 && n == 0) break;
                O[i] *= by[i % 4 / 2];
                if (delta) R[i] *= by[i % 4 / 2];
            }
            if (j % 2 == 0) get_columns(values, m.v, j, at::warp);
            float v[4], y[4], r[4];
            unpack_block(v, values, j);
            if constexpr (delta) {
                float acc[4] = {R[n * 4], R[n * 4 + 1], R[n * 4 + 2], R[n * 4 + 3]};
                solve_steps(y, r, acc, v, s, m.G + lower_at(j, j));
                pack_block(kept, r, j);
                if (j % 2 == 1 && a.r.data) place_columns(m.v, kept, j - 1, at::warp);
            } else {
#pragma unroll
                for (int e = 0; e < 4; e++) y[e] = s.eta[e] * s.back[e] * v[e];
            }
            uint32_t operand[4];
            rounded_operand(operand, y);
#pragma unroll
            for (int i = n; i < 4; i++) {
                add_product(O + i * 4, operand, m.P + lower_at(half * 4 + i, j));
                if (delta && i > n) add_product(R + i * 4, operand, m.G + lower_at(half * 4 + i, j));
            }
#pragma unroll
            for (int e = 0; e < 4; e++) O[n * 4 + e] *= s.at[e], Y[j * 4 + e] = y[e];
#pragma unroll
            for (int e = 0; e < 2; e++) rest[e] = s.rest[e], u[e] += s.middle[e] + s.rest[e];
        }
    }

    // To the second half, at the reference of its first block: the state before the chunk, and y of the first half.
    __device__ void add_earlier(float (&O)[16], float (&R)[16], const float (&Y)[32], const float (&first)[2]) const {
#pragma unroll
        for (int i = 0; i < 16; i++) {
            O[i] *= first[i % 4 / 2];
            if (delta) R[i] *= first[i % 4 / 2];
        }
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const float y[4] = {Y[j * 4], Y[j * 4 + 1], Y[j * 4 + 2], Y[j * 4 + 3]};
            uint32_t operand[4];
            rounded_operand(operand, y);
#pragma unroll
            for (int i = 0; i < 4; i++) {
                add_product(O + i * 4, operand, m.P + lower_at(4 + i, j));
                if (delta) add_product(R + i * 4, operand, m.G + lower_at(4 + i, j));
            }
        }
    }

    // One half of the steps of a chunk; its o as bf16 into `out`.
    template <int half>
    __device__ void half_steps(uint32_t (&out)[8], float (&Y)[32], const float (&S)[K / 2], float (&rest)[2],
                               float (&u)[2]) const {
        float O[16], R[16];
        history(O, S, m.q, half * 32);
        if constexpr (delta) history(R, S, m.x, half * 32);
        if (a.documents) {
            keep_document(O, m.tokens + half * 32, 0.0f);
            if (delta) keep_document(R, m.tokens + half * 32, 0.0f);
        }
        steps<half>(O, R, Y, rest, u);
#pragma unroll
        for (int i = 0; i < 8; i++) out[i] = bf16_pair(O[i * 2], O[i * 2 + 1]);
    }

    // o of both halves into the warp's columns of a tile.
    __device__ void stage(__nv_bfloat16 *tile, const uint32_t (&first)[8], const uint32_t (&second)[8]) const {
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const uint32_t *from = (j < 2 ? first : second) + j % 2 * 4;
            const uint32_t pairs[4] = {from[0], from[1], from[2], from[3]};
            place_columns(tile, pairs, j * 2, at::warp);
        }
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
        place_product<K, false>(m.P, m.q, m.x, m.tokens, a.documents, at.warp);
        if constexpr (delta) place_product<K, true>(m.G, m.x, m.x, m.tokens, a.documents, at.warp);
        if (a.states) {
            uint4 *to = state_at<K>(a.states, a, at.head, c, at.V, at.v + at.warp * 16);
#pragma unroll
            for (int k = 0; k < K; k += 16) {
                uint32_t rows[1][4];
                fragment(rows[0], S, k / 16);
                keep_state<16>(to + k * 2, rows);
            }
        }
        __syncthreads();
        at.renew();
        float Y[32], rest[2] = {0.0f, 0.0f}, u[2] = {0.0f, 0.0f};
        uint32_t first[8], second[8];
        at.template half_steps<0>(first, Y, S, rest, u);
        products_done(S); // not kept as bf16 all along
        at.template half_steps<1>(second, Y, S, rest, u);
        const float last[2] = {power2(rest[0]), power2(rest[1])};
        scale_blocks<0, 8>(Y, last);
        if (a.documents) keep_document(Y, m.tokens, m.tokens[63].z);
        if (delta && a.r.data) copy_columns(m.v, a, a.r, at.b, at.h, c, at.v, at.warp);
        auto *stage = reinterpret_cast<__nv_bfloat16 *>(m.P);
        __syncthreads();
        at.stage(stage, first, second);
        const bool emptied = a.documents && m.tokens[63].z > 0.0f;
        const float by[2] = {emptied ? 0.0f : power2(u[0]), emptied ? 0.0f : power2(u[1])};
#pragma unroll
        for (int i = 0; i < K / 2; i++) S[i] *= by[i % 4 / 2];
        uint32_t leaving[4][4];
#pragma unroll
        for (int step = 0; step < 4; step++) fragment(leaving[step], Y, step);
        const operand_tile x(m.x);
        products_begin();
#pragma unroll
        for (int step = 0; step < 4; step++) product<K, 1>(S, leaving[step], x.mn(step * 16 * 64, 64), true);
        products_commit();
        products_wait<0>();
        products_done(S);
        __syncthreads();
        at.renew();
        if (c + 1 < end) at.load(c + 1);
        copy_columns(stage, a, a.o, at.b, at.h, c, at.v, at.warp);
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
