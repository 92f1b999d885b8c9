// Chunk form of the column core with residuals (falcon2), backward, the serial part (docs/kernels.md), from the last
// chunk to the first. With the gradient of the state at the reference m of a block of eight steps as coefficients of
// the keys and queries,
//
//   a_s = e^{m - u_s} (e^{u_C - m} X dS' + P^T (e^{u_i - m} dO) - G^T (e^{u_{i-1} - m} dr))_s      dr = dv = eta a
//   dS = e^{u_C} dS' + Q^T (e^{u_i} dO) - X^T (e^{u_{i-1}} dr)                                     columns alone
//
// dr solved for block after block as forward. dS' behind every chunk is kept as bf16 for the chunk-parallel rest; dv
// and the gradient of the first state are overwritten.
#include "kernels/cuda/chunk_column_steps.cuh"

namespace {

using namespace fwa;

template <int K> struct scan_memory {
    __nv_bfloat16 q[64 * K], x[64 * K];
    __nv_bfloat16 d_o[64 * 64]; // later dv
    float beta[64 * 64];
    float P[lower_floats], G[lower_floats];
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
        const float2 row = *reinterpret_cast<const float2 *>(G + i * 8 + t * 2);
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
        load_floats(m.beta, at::thread, a, a.beta, at::b, at::h, c, at::v);
        load_tokens(m.tokens, at::thread, a, at::head, c);
        copy_commit();
    }

    // All blocks in turn, the last first: A = X dS' becomes e^{u_{i-1}} dr, Y is e^{u_i} dO; u: log2 of the decay of
    // the chunk.
    __device__ void steps(float (&Y)[32], float (&A)[32], float (&u)[2]) const {
        float middle[2] = {0.0f, 0.0f};
        uint32_t grads[4], kept[4];
        const step_source source(m.beta, m.tokens, at::warp);
        u[0] = u[1] = 0.0f;
#pragma unroll
        for (int j = 7; j >= 0; j--) {
            eight_steps s;
            get_steps(s, a, source, j);
            const float by[2] = {power2(middle[0] + s.rest[0]), power2(middle[1] + s.rest[1])};
#pragma unroll
            for (int i = 0; i < 32; i++) {
                if (i >= j * 4 + 4) Y[i] *= by[i % 4 / 2];
                A[i] *= by[i % 4 / 2];
            }
            if (j % 2 == 1) get_columns(grads, m.d_o, j - 1, at::warp);
            float y[4];
            unpack_block(y, grads, j);
#pragma unroll
            for (int e = 0; e < 4; e++) Y[j * 4 + e] = y[e] = y[e] * s.at[e];
            uint32_t operand[4];
            rounded_operand(operand, y);
#pragma unroll
            for (int i = 0; i <= j; i++) add_product_of_rows(A + i * 4, operand, m.P + lower_at(j, i));
            float acc[4] = {A[j * 4], A[j * 4 + 1], A[j * 4 + 2], A[j * 4 + 3]}, dr[4], left[4];
            solve_steps_back(dr, left, acc, s, m.G + lower_at(j, j));
            pack_block(kept, dr, j);
            if (j % 2 == 0) place_columns(m.d_o, kept, j, at::warp);
#pragma unroll
            for (int e = 0; e < 4; e++) A[j * 4 + e] = left[e], left[e] = -left[e];
            rounded_operand(operand, left);
#pragma unroll
            for (int i = 0; i < j; i++) add_product_of_rows(A + i * 4, operand, m.G + lower_at(j, i));
#pragma unroll
            for (int e = 0; e < 2; e++) middle[e] = s.middle[e], u[e] += s.middle[e] + s.rest[e];
        }
        const float by[2] = {power2(middle[0]), power2(middle[1])};
        scale_blocks<0, 8>(Y, by);
        scale_blocks<0, 8>(A, by);
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
        place_product<K, false>(m.P, m.q, m.x, m.tokens, a.documents, at.warp);
        place_product<K, true>(m.G, m.x, m.x, m.tokens, a.documents, at.warp);
        float Y[32], A[32], u[2];
        {
            uint32_t rows[K / 16][4];
#pragma unroll
            for (int step = 0; step < K / 16; step++) fragment(rows[step], dS, step);
            keep_state<K>(state_at<K>(a.grads, a, at.head, c, at.V, at.v + at.warp * 16), rows);
            state_product<K>(A, rows, operand_tile(m.x));
            if (a.documents) keep_document(A, m.tokens, m.tokens[63].z);
            __syncthreads();
        }
        at.renew();
        at.steps(Y, A, u);
        if (a.documents) {
            keep_document(Y, m.tokens, 0.0f);
            keep_document(A, m.tokens, 0.0f);
        }
        copy_columns(m.d_o, a, a.dv, at.b, at.h, c, at.v, at.warp);
        const bool emptied = a.documents && m.tokens[63].z > 0.0f;
        const float by[2] = {emptied ? 0.0f : power2(u[0]), emptied ? 0.0f : power2(u[1])};
#pragma unroll
        for (int i = 0; i < K / 2; i++) dS[i] *= by[i % 4 / 2];
        uint32_t reading[4][4], seeing[4][4];
#pragma unroll
        for (int step = 0; step < 4; step++) {
            fragment(reading[step], Y, step);
            fragment(seeing[step], A, step);
#pragma unroll
            for (int e = 0; e < 4; e++) seeing[step][e] ^= 0x80008000u; // minus
        }
        const operand_tile q(m.q), x(m.x);
        products_begin();
#pragma unroll
        for (int step = 0; step < 4; step++) {
            product<K, 1>(dS, reading[step], q.mn(step * 16 * 64, 64), true);
            product<K, 1>(dS, seeing[step], x.mn(step * 16 * 64, 64), true);
        }
        products_commit();
        products_wait<0>();
        products_done(dS);
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
