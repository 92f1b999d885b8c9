// Chunk form of the column core, backward, what every column has alone (docs/kernels.md): gradients of steps and
// decays, and dv of falcon2a. With y_s = eta_s r_s e^{m - u_s}, a_s as in chunk_column_scan.cu, every o_i and dr_i read
// off the same rounded operands that a_s is made of,
//
//   d_eta_s = a_s r_s                 dv = eta a where r = v
//   d_log_gamma_t = e^{u_C} <S, dS'> + sum_s e^{u_C - u_s} eta_s r_s (X dS')_s                     columns alone
//                 + sum_{i>=t} o_i dO_i - sum_{i>t} e^{u_{i-1}} dr_i (e^m X S + G y)_i - sum_{s>=t} eta_s r_s a_s
//
// so that what lies on one side of t cancels to the rounding of fp32. A block takes 64 columns of a chunk of a value
// head; chunks have no order. Overwritten, the same bits every time.
#include "kernels/cuda/chunk_column_steps.cuh"

namespace {

using namespace fwa;

// A tile [64,K], or blocks of a lower matrix in its place.
template <int K> union tile_or_lower {
    __nv_bfloat16 tile[K == 64 ? 5 * 1024 : 64 * K];
    float lower[lower_floats];
};
static_assert(sizeof(tile_or_lower<64>) % 1024 == 0, "an operand follows");

template <int K, bool delta> struct gates_memory {
    tile_or_lower<K> q, x;    // later P, G
    __nv_bfloat16 r[64 * 64]; // or v, later dv
    __nv_bfloat16 d_o[64 * 64];
    __nv_bfloat16 dr[delta ? 64 * 64 : 8];
    float beta[64 * 64]; // later dbeta
    float4 tokens[64];
    float2 sums[4][64]; // of the warps
};

// 64 columns of K from k on of the warp's 16 columns of a state, as operands.
template <int K>
__device__ void read_operands(uint32_t (&to)[4][4], uint4 *states, const column_task &a, const column_place<K> &at,
                              int c, int k) {
    const uint4 *from = state_at<K>(states, a, at.head, c, at.V, at.v + at.warp * 16) + k * 2 + at.thread % 32;
#pragma unroll
    for (int step = 0; step < 4; step++) {
        const uint4 piece = from[step * 32];
        to[step][0] = piece.x, to[step][1] = piece.y, to[step][2] = piece.z, to[step][3] = piece.w;
    }
}

__device__ void round_block(float (&d)[4]) {
#pragma unroll
    for (int e = 0; e < 4; e++) d[e] = rounded(d[e]);
}

template <int K, bool delta> struct gates_block : column_place<K> {
    using at = column_place<K>;
    const column_task &a;
    gates_memory<K, delta> &m;
    int c;

    __device__ gates_block(const column_task &task, gates_memory<K, delta> &memory, int slices)
        : at(task, static_cast<int>(blockIdx.x) / task.chunks, slices), a(task), m(memory),
          c(static_cast<int>(blockIdx.x) % task.chunks) {}

    __device__ void load() const {
        at::load_keys_queries(m.q.tile, m.x.tile, a, c);
        at::load_columns(m.r, a, delta ? a.r : a.v, c);
        at::load_columns(m.d_o, a, a.d_o, c);
        if constexpr (delta) at::load_columns(m.dr, a, a.dv, c);
        load_floats(m.beta, at::thread, a, a.beta, at::b, at::h, c, at::v);
        load_tokens(m.tokens, at::thread, a, at::head, c);
        copy_commit();
        copy_wait<0>();
        publish();
        __syncthreads();
    }

    // First block to last. In: O = Q S, Y = X S of falcon2, A = X dS'. Out: O what step i adds to the gradients of the
    // logs of decays up to its own, o_i dO_i minus e^{u_i} dr_{i+1} (e^m X S + G y)_{i+1}; Y the y, each at its own
    // reference; `leaving`: the lane's part of the sum over s; u: log2 of the decay of the chunk.
    __device__ void steps(float (&O)[32], float (&Y)[32], const float (&A)[32], float (&leaving)[2],
                          float (&u)[2]) const {
        float rest[2] = {0.0f, 0.0f};
        uint32_t pairs[4], grads[4], residuals[4];
        const step_source source(m.beta, m.tokens, at::warp);
        u[0] = u[1] = leaving[0] = leaving[1] = 0.0f;
#pragma unroll
        for (int j = 0; j < 8; j++) {
            eight_steps s;
            get_steps(s, a, source, j);
            const float by[2] = {power2(rest[0] + s.middle[0]), power2(rest[1] + s.middle[1])};
#pragma unroll
            for (int i = j * 4; i < 32; i++) {
                O[i] *= by[i % 4 / 2];
                if (delta) Y[i] *= by[i % 4 / 2];
            }
            if (j % 2 == 0) {
                get_columns(pairs, m.r, j, at::warp);
                get_columns(grads, m.d_o, j, at::warp);
                if constexpr (delta) get_columns(residuals, m.dr, j, at::warp);
            }
            float y[4], d[4];
            unpack_block(y, pairs, j);
            unpack_block(d, grads, j);
#pragma unroll
            for (int e = 0; e < 4; e++) y[e] *= s.eta[e] * s.back[e], d[e] *= s.at[e];
            round_block(y);
            round_block(d);
            uint32_t operand[4];
            eight_operand(operand, y);
#pragma unroll
            for (int i = j; i < 8; i++) {
                add_product(O + i * 4, operand, m.q.lower + lower_at(i, j));
                if (delta) add_product(Y + i * 4, operand, m.x.lower + lower_at(i, j));
            }
#pragma unroll
            for (int h = 0; h < 2; h++) {
                leaving[h] = leaving[h] * by[h] + (y[h * 2] * A[j * 4 + h * 2] + y[h * 2 + 1] * A[j * 4 + h * 2 + 1]);
                rest[h] = s.rest[h], u[h] += s.middle[h] + s.rest[h];
            }
#pragma unroll
            for (int e = 0; e < 4; e++) O[j * 4 + e] *= d[e];
            if constexpr (delta) {
                unpack_block(d, residuals, j);
#pragma unroll
                for (int e = 0; e < 4; e++) d[e] *= s.from[e];
                round_block(d);
                take_residuals(O, d, Y, j);
            }
#pragma unroll
            for (int e = 0; e < 4; e++) Y[j * 4 + e] = y[e];
        }
        leaving[0] *= power2(rest[0]), leaving[1] *= power2(rest[1]);
    }

    // O of the step before each of block j loses d Y.
    __device__ static void take_residuals(float (&O)[32], const float (&d)[4], const float (&Y)[32], int j) {
        const int lane = static_cast<int>(threadIdx.x) % 32, next = (lane & ~3) | ((lane + 1) & 3);
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const float first = __shfl_sync(everyone, d[h * 2] * Y[j * 4 + h * 2], next);
            O[j * 4 + h * 2] -= d[h * 2 + 1] * Y[j * 4 + h * 2 + 1];
            if (lane % 4 < 3)
                O[j * 4 + h * 2 + 1] -= first;
            else if (j > 0)
                O[j * 4 - 4 + h * 2 + 1] -= first;
        }
    }

    // Last block to first. In: A = X dS', `through` the part of d_log_gamma that all steps have; dbeta into the place
    // of beta, the sums over the warp's columns into m.sums, dv of falcon2a into the place of v.
    __device__ void steps_back(const float (&O)[32], const float (&Y)[32], float (&A)[32],
                               const float (&through)[2]) const {
        float middle[2] = {0.0f, 0.0f}, behind[2] = {through[0], through[1]};
        uint32_t pairs[4], grads[4], residuals[4], kept[4];
        const step_source source(m.beta, m.tokens, at::warp);
#pragma unroll
        for (int j = 7; j >= 0; j--) {
            eight_steps s;
            get_steps(s, a, source, j);
            const float by[2] = {power2(middle[0] + s.rest[0]), power2(middle[1] + s.rest[1])};
#pragma unroll
            for (int i = 0; i < j * 4 + 4; i++) A[i] *= by[i % 4 / 2];
            if (j % 2 == 1) {
                get_columns(pairs, m.r, j - 1, at::warp);
                get_columns(grads, m.d_o, j - 1, at::warp);
                if constexpr (delta) get_columns(residuals, m.dr, j - 1, at::warp);
            }
            float d[4], value[4], later[4];
            uint32_t operand[4];
            unpack_block(value, pairs, j);
            unpack_block(d, grads, j);
#pragma unroll
            for (int e = 0; e < 4; e++) d[e] *= s.at[e];
            rounded_operand(operand, d);
#pragma unroll
            for (int i = 0; i <= j; i++) add_product_of_rows(A + i * 4, operand, m.q.lower + lower_at(j, i));
            if constexpr (delta) {
                unpack_block(d, residuals, j);
#pragma unroll
                for (int e = 0; e < 4; e++) d[e] *= -s.from[e];
                rounded_operand(operand, d);
#pragma unroll
                for (int i = 0; i <= j; i++) add_product_of_rows(A + i * 4, operand, m.x.lower + lower_at(j, i));
            }
#pragma unroll
            for (int e = 0; e < 4; e++) later[e] = O[j * 4 + e] - Y[j * 4 + e] * A[j * 4 + e];
            sum_later(later, behind);
            float left[4]; // a
#pragma unroll
            for (int e = 0; e < 4; e++) left[e] = s.back[e] * A[j * 4 + e];
            step_grads(source, left, value, later, j);
            if constexpr (!delta) {
#pragma unroll
                for (int e = 0; e < 4; e++) left[e] *= s.eta[e];
                pack_block(kept, left, j);
                if (j % 2 == 0) place_columns(m.r, kept, j, at::warp);
            }
            middle[0] = s.middle[0], middle[1] = s.middle[1];
        }
    }

    // Sums of d over the steps of a column from each on, those behind the block included.
    __device__ void sum_later(float (&d)[4], float (&behind)[2]) const {
        const int lane = at::thread % 32, t = lane % 4;
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const float pair = d[h * 2] + d[h * 2 + 1];
            float sum = pair, other = __shfl_down_sync(everyone, sum, 1);
            if (t < 3) sum += other;
            other = __shfl_down_sync(everyone, sum, 2);
            if (t < 2) sum += other;
            const float all = sum + behind[h];
            behind[h] = __shfl_sync(everyone, all, lane & ~3);
            d[h * 2 + 1] = all - d[h * 2];
            d[h * 2] = all;
        }
    }

    // dbeta of block j and its part of the sums over columns, from a, r and the gradient of the log of the decay.
    __device__ void step_grads(const step_source &source, const float (&left)[4], const float (&value)[4],
                               const float (&d_log)[4], int j) const {
        const int lane = at::thread % 32, row = j * 8 + lane % 4 * 2;
        const float2 shared[2] = {source.shared(j, 0), source.shared(j, 1)};
        float2 sums[2] = {};
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const float inverse = shared[e % 2].x, lambda = shared[e % 2].y, beta = *source.at(j, e);
            const column_step s = step_of(a, inverse, lambda, beta);
            const float d_alpha = s.clamped ? 0.0f : -d_log[e] * quick_reciprocal(s.gamma);
            const float d_beta = s.cut ? 0.0f : (left[e] * value[e] + lambda * d_alpha) * inverse;
            sums[e % 2].x += s.eta * d_alpha;
            sums[e % 2].y -= beta * d_beta * inverse;
            *source.at(j, e) = d_beta;
        }
        // Over the lanes of a step; a lane ends up with one of the four sums.
        const bool second = lane & 16, y = lane & 8;
        float2 own = second ? sums[1] : sums[0];
        own.x += __shfl_xor_sync(everyone, second ? sums[0].x : sums[1].x, 16);
        own.y += __shfl_xor_sync(everyone, second ? sums[0].y : sums[1].y, 16);
        float sum = y ? own.y : own.x;
        sum += __shfl_xor_sync(everyone, y ? own.x : own.y, 8);
        sum += __shfl_xor_sync(everyone, sum, 4);
        if (lane & 4) return;
        (y ? m.sums[at::warp][row + second].y : m.sums[at::warp][row + second].x) = sum;
    }

    __device__ void write_sums() const {
        if (at::thread >= 64) return;
        float2 sum = m.sums[0][at::thread];
        for (int w = 1; w < 4; w++) sum.x += m.sums[w][at::thread].x, sum.y += m.sums[w][at::thread].y;
        const int64_t slices = at::V / 64;
        a.sums[((at::head * slices + at::slice) * a.chunks + c) * 64 + at::thread] = sum;
    }
};

template <int K, bool delta>
__global__ void __launch_bounds__(column_threads, 3)
    column_gates_kernel(const __grid_constant__ column_task a, int slices) {
    extern __shared__ __align__(1024) unsigned char memory[];
    auto &m = *reinterpret_cast<gates_memory<K, delta> *>(memory);
    gates_block<K, delta> at(a, m, slices);
    at.load();
    float O[32], Y[32], A[32], both[2] = {0.0f, 0.0f};
#pragma unroll 1
    for (int k = 0; k < K; k += 64) { // part by part, to spare registers
        uint32_t S[4][4];
        read_operands<K>(S, a.states, a, at, at.c, k);
        state_product<64>(O, S, operand_tile(m.q.tile), k);
    }
    place_product<K, false, true>(m.q.lower, m.q.tile, m.x.tile, m.tokens, a.documents, at.warp);
#pragma unroll 1
    for (int k = 0; k < K; k += 64) {
        uint32_t S[4][4], dS[4][4];
        read_operands<K>(S, a.states, a, at, at.c, k);
        read_operands<K>(dS, a.grads, a, at, at.c, k);
#pragma unroll
        for (int i = 0; i < 16; i++) both[i % 2] += dot_pair(S[i / 4][i % 4], dS[i / 4][i % 4]);
        if constexpr (delta) state_product<64>(Y, S, operand_tile(m.x.tile), k);
        state_product<64>(A, dS, operand_tile(m.x.tile), k);
    }
    if constexpr (delta) place_product<K, true, true>(m.x.lower, m.x.tile, m.x.tile, m.tokens, a.documents, at.warp);
    __syncthreads();
    if (a.documents) {
        keep_document(O, m.tokens, 0.0f);
        if (delta) keep_document(Y, m.tokens, 0.0f);
        keep_document(A, m.tokens, m.tokens[63].z);
    }
    float leaving[2], u[2];
    at.steps(O, Y, A, leaving, u);
    const bool emptied = a.documents && m.tokens[63].z > 0.0f;
#pragma unroll
    for (int h = 0; h < 2; h++) leaving[h] = quad_sum(leaving[h] + (emptied ? 0.0f : both[h] * power2(u[h])));
    at.steps_back(O, Y, A, leaving);
    if (!delta && a.dv.data) copy_columns(m.r, a, a.dv, at.b, at.h, at.c, at.v, at.warp);
    __syncthreads();
    at.renew();
    at.write_sums();
    if (a.dbeta.data) store_floats(a, a.dbeta, m.beta, at.thread, at.b, at.h, at.c, at.v);
}

template <int K, bool delta> fwa_status launch_gates(cudaStream_t stream, const column_task &task, int V) {
    const auto kernel = column_gates_kernel<K, delta>;
    constexpr int bytes = sizeof(gates_memory<K, delta>);
    FWA_CUDA_TRY(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
    FWA_LAUNCH(kernel, static_cast<unsigned>(task.B * task.H * (V / 64) * task.chunks), column_threads, bytes, stream,
               task, V / 64);
    return FWA_OK;
}

} // namespace

namespace fwa {

fwa_status chunk_column_gates(cudaStream_t stream, const column_task &task, int K, int V, bool delta) {
    if (delta) return K == 64 ? launch_gates<64, true>(stream, task, V) : launch_gates<128, true>(stream, task, V);
    return K == 64 ? launch_gates<64, false>(stream, task, V) : launch_gates<128, false>(stream, task, V);
}

} // namespace fwa
