// Chunk form of the column core with residuals (falcon2), backward, the serial part (docs/kernels.md), from the last
// chunk to the first. With the gradient of the state at the reference m of a block of eight steps as coefficients of
// the keys and queries,
//
//   a_s = e^{m - u_s} (e^{u_C - m} X dS' + P^T (e^{u_i - m} dO) - G^T (e^{u_{i-1} - m} dr))_s      dr = dv = eta a
//   dS = e^{u_C} dS' + Q^T (e^{u_i} dO) - X^T (e^{u_{i-1}} dr)                                     columns alone
//
// 32 steps at a time, dr solved for block after block as forward. dS' behind every chunk is kept as bf16 for the
// chunk-parallel rest; dv and the gradient of the first state are overwritten.
#include "kernels/cuda/chunk_column_steps.cuh"

namespace {

using namespace fwa;

template <int K> struct scan_memory {
    __nv_bfloat16 q[64 * K], x[64 * K];
    __nv_bfloat16 d_o[64 * 64]; // later dv
    float beta[64 * 64];
    float P[2 * half_floats], G[2 * half_floats];
    float4 tokens[64];
};

// dr of block j, and e^{u_{i-1} - m} dr, for acc = e^{u_s - m} a_s without what the block's own dr add; G: the block on
// the diagonal.
__device__ void solve_steps_back(float (&dr)[4], float (&left)[4], float (&acc)[4], const eight_steps &s,
                                 const float *G) {
    const int t = static_cast<int>(threadIdx.x) % 4;
    float by[4];
#pragma unroll
    for (int e = 0; e < 4; e++) by[e] = s.eta[e] * s.back[e] * s.from[e];
#pragma unroll
    for (int i = 7; i > 0; i--) {
        const float2 row = *reinterpret_cast<const float2 *>(G + block_row(i) + t * 2);
        float now[4];
#pragma unroll
        for (int e = 0; e < 4; e++) now[e] = by[e] * acc[e];
        const float2 done = of_step(now, i);
        acc[0] -= row.x * done.x, acc[1] -= row.y * done.x;
        acc[2] -= row.x * done.y, acc[3] -= row.y * done.y;
    }
#pragma unroll
    for (int e = 0; e < 4; e++) {
        dr[e] = s.eta[e] * s.back[e] * acc[e];
        left[e] = s.from[e] * dr[e];
    }
}

template <int K> struct scan_block : column_place<K> {
    using at = column_place<K>;
    const column_task &a;
    scan_memory<K> &m;

    __device__ scan_block(const column_task &task, scan_memory<K> &memory, int slices)
        : at(task, static_cast<int>(blockIdx.x), slices), a(task), m(memory) {}

    __device__ void load(int c) const {
        at::load_keys_queries(m.q, m.x, a, c);
        at::load_columns(m.d_o, a, a.d_o, c);
        load_beta(m.beta, at::thread, a, at::b, at::h, c, at::v);
        load_tokens(m.tokens, at::thread, a, at::head, c);
        copy_commit();
    }

    // A = X dS' for the rows of a half.
    __device__ void behind(float (&A)[16], float (&dS)[K / 2], int half) const {
        const operand_tile x(m.x);
#pragma unroll
        for (int k = 0; k < K; k += 64) { // part by part, to spare registers
            uint32_t part[4][4];
            products_done(dS);
#pragma unroll
            for (int step = 0; step < 4; step++) fragment(part[step], dS, k / 16 + step);
            products_ready(part);
            products_begin();
#pragma unroll
            for (int step = 0; step < 4; step++)
                product<32, 0>(A, part[step], x.k(k * 64 + step * 16 + half * (32 * 64)), k + step > 0);
            products_commit();
            products_wait<0>();
            products_done(A);
        }
    }

    // The four blocks of a half in turn, the last first: A = X dS' becomes e^{u_{i-1}} dr, Y is e^{u_i} dO; u: log2 of
    // the decay of the half.
    __device__ void steps(float (&Y)[16], float (&A)[16], float (&u)[2], int half) const {
        float middle[2] = {0.0f, 0.0f};
        uint32_t grads[4], kept[4];
        const step_source source(m.beta + half * (32 * 64), m.tokens + half * 32, at::warp);
        __nv_bfloat16 *tile = m.d_o + half * (32 * 64);
        const float *P = m.P + half * half_floats, *G = m.G + half * half_floats;
        u[0] = u[1] = 0.0f;
#pragma unroll
        for (int j = 3; j >= 0; j--) {
            eight_steps s;
            get_steps(s, a, source, j);
            const float by[2] = {power2(middle[0] + s.rest[0]), power2(middle[1] + s.rest[1])};
#pragma unroll
            for (int i = 0; i < 16; i++) {
                if (i >= j * 4 + 4) Y[i] *= by[i % 4 / 2];
                A[i] *= by[i % 4 / 2];
            }
            if (j % 2 == 1) get_columns(grads, tile, j - 1, at::warp);
            float y[4];
            unpack_block(y, grads, j);
#pragma unroll
            for (int e = 0; e < 4; e++) Y[j * 4 + e] = y[e] = y[e] * s.at[e];
            uint32_t operand[4];
            rounded_operand(operand, y);
#pragma unroll
            for (int i = 0; i <= j; i++) add_product_of_rows(A + i * 4, operand, P + lower_at(j, i));
            float acc[4] = {A[j * 4], A[j * 4 + 1], A[j * 4 + 2], A[j * 4 + 3]}, dr[4], left[4];
            solve_steps_back(dr, left, acc, s, G + lower_at(j, j));
            pack_block(kept, dr, j);
            if (j % 2 == 0) place_columns(tile, kept, j, at::warp);
#pragma unroll
            for (int e = 0; e < 4; e++) A[j * 4 + e] = left[e], left[e] = -left[e];
            rounded_operand(operand, left);
#pragma unroll
            for (int i = 0; i < j; i++) add_product_of_rows(A + i * 4, operand, G + lower_at(j, i));
#pragma unroll
            for (int e = 0; e < 2; e++) middle[e] = s.middle[e], u[e] += s.middle[e] + s.rest[e];
        }
        const float by[2] = {power2(middle[0]), power2(middle[1])};
#pragma unroll
        for (int i = 0; i < 16; i++) Y[i] *= by[i % 4 / 2], A[i] *= by[i % 4 / 2];
    }

    // One half of the steps of a chunk: dv to its tile, and the gradient of the state from behind it to before it.
    __device__ void half_steps(float (&dS)[K / 2], int half) const {
        float Y[16], A[16], u[2];
        const float4 *tokens = m.tokens + half * 32;
        const float first = half ? tokens[-1].z : 0.0f, end = tokens[31].z;
        behind(A, dS, half);
        if (a.documents) keep_document(A, tokens, end);
        steps(Y, A, u, half);
        if (a.documents) {
            keep_document(Y, tokens, first);
            keep_document(A, tokens, first);
        }
        const bool emptied = a.documents && end != first;
        const float by[2] = {emptied ? 0.0f : power2(u[0]), emptied ? 0.0f : power2(u[1])};
#pragma unroll
        for (int i = 0; i < K / 2; i++) dS[i] *= by[i % 4 / 2];
        uint32_t reading[2][4], seeing[2][4];
#pragma unroll
        for (int step = 0; step < 2; step++) {
            fragment(reading[step], Y, step);
            fragment(seeing[step], A, step);
#pragma unroll
            for (int e = 0; e < 4; e++) seeing[step][e] ^= 0x80008000u; // minus
        }
        products_ready(dS);
        products_ready(reading);
        products_ready(seeing);
        const operand_tile q(m.q), x(m.x);
        products_begin();
#pragma unroll
        for (int step = 0; step < 2; step++) {
            const int row = (half * 32 + step * 16) * 64;
            product<K, 1>(dS, reading[step], q.mn(row, 64), true);
            product<K, 1>(dS, seeing[step], x.mn(row, 64), true);
        }
        products_commit();
        products_wait<0>();
        products_done(dS);
    }
};

template <int K>
__global__ void __launch_bounds__(column_threads, 3)
    column_scan_kernel(const __grid_constant__ column_task a, int slices) {
    extern __shared__ __align__(1024) unsigned char memory[];
    auto &m = *reinterpret_cast<scan_memory<K> *>(memory);
    scan_block<K> at(a, m, slices);
    float dS[K / 2];
    get_state<K>(dS, a.dS_end, at.b, at.h, at.v + at.warp * 16);
    at.load(a.chunks - 1);
#pragma unroll 1
    for (int c = a.chunks - 1; c >= 0; c--) {
        at.renew();
        copy_wait<0>();
        publish();
        __syncthreads();
        if (c > 0) at.prefetch_chunk(a, a.d_o, c - 1);
        at.renew();
        place_product<K, false, true>(m.P, m.q, m.x, m.tokens, a.documents, at.warp);
        place_product<K, true, true>(m.G, m.x, m.x, m.tokens, a.documents, at.warp);
        keep_state<K>(state_at<K>(a.d_states, a, at.head, c, at.V, at.v + at.warp * 16), dS);
        __syncthreads();
        at.renew();
#pragma unroll 1
        for (int half = 1; half >= 0; half--) at.half_steps(dS, half);
        copy_columns(m.d_o, a, a.dv, at.b, at.h, c, at.v, at.warp);
        __syncthreads();
        at.renew();
        if (c > 0) at.load(c - 1);
    }
    if (a.dS0.data) set_state<K>(dS, a.dS0, at.b, at.h, at.v + at.warp * 16);
}

template <int K> fwa_status launch_scan(cudaStream_t stream, const column_task &task, int V) {
    const auto kernel = column_scan_kernel<K>;
    constexpr int bytes = sizeof(scan_memory<K>);
    FWA_CUDA_TRY(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
    FWA_LAUNCH(kernel, static_cast<unsigned>(task.B * task.H * (V / 64)), column_threads, bytes, stream, task, V / 64);
    return FWA_OK;
}

} // namespace

namespace fwa {

fwa_status chunk_column_scan(cudaStream_t stream, const column_task &task, int K, int V) {
    return K == 64 ? launch_scan<64>(stream, task, V) : launch_scan<128>(stream, task, V);
}

} // namespace fwa
