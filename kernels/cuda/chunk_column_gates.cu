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

// What only one of both rules has: falcon2 reads beta twice from device memory instead, so that three blocks fit.
template <bool delta> struct gates_more {
    float beta[64 * 64]; // later dbeta
};
template <> struct gates_more<true> {
    __nv_bfloat16 dr[64 * 64]; // later e^{u_{i-1} - m} dr_i
    float G[lower_floats];
};

template <int K, bool delta> struct gates_memory {
    union {
        __nv_bfloat16 q[64 * K];
        float y[64 * 64]; // y_s, later a
    };
    union {
        __nv_bfloat16 x[64 * K];
        float d[64 * 64]; // e^{u_i - m} dO_i, later the summands of d_log_gamma
    };
    __nv_bfloat16 r[64 * 64]; // or v, later dv
    union {
        __nv_bfloat16 d_o[64 * 64];
        float2 sums[4][64]; // of the warps
    };
    float P[lower_floats];
    float4 tokens[64];
    gates_more<delta> more;
};

// Where element (row, column) of y, d and beta stands. Both ways of the threads meet no bank twice: a column and 32
// rows each, and eight columns of four pairs of rows.
__device__ int gates_place(int row, int column) {
    return float_place(row, column ^ row / 32 * 16);
}
// The gradients of beta out of the same places.
__device__ void store_dbeta(const column_task &a, const float *tile, int thread, int b, int h, int c, int v) {
    const int first = thread / 16, column = thread % 16 * 4, end = a.T - c * 64;
    float *to = a.dbeta.row(b, c * 64 + first, h) + v + column;
#pragma unroll
    for (int row = first; row < 64; row += 8, to += 8 * a.dbeta.time)
        if (row < end)
            *reinterpret_cast<float4 *>(to) = *reinterpret_cast<const float4 *>(tile + gates_place(row, column));
}

// What a lane has of y and d as an operand: rows 2 t and 2 t + 1 of a block, columns g and g + 8 of the warp.
struct block_rows {
    int at[2][2];
    __device__ explicit block_rows(int warp) {
        const int lane = static_cast<int>(threadIdx.x) % 32, row = lane % 4 * 2, column = warp * 16 + lane / 4;
#pragma unroll
        for (int half = 0; half < 2; half++)
#pragma unroll
            for (int h = 0; h < 2; h++) at[half][h] = gates_place(half * 32 + row, column + h * 8);
    }
    __device__ int place(int j, int e) const {
        return at[j / 4][e / 2] + (j % 4 * 8 + e % 2) * 64;
    }
    __device__ void get(float (&to)[4], const float *from, int j) const {
#pragma unroll
        for (int e = 0; e < 4; e++) to[e] = from[place(j, e)];
    }
    __device__ void set(float *to, const float (&from)[4], int j) const {
#pragma unroll
        for (int e = 0; e < 4; e++) to[place(j, e)] = from[e];
    }
};

// Where a lane finds its column of the lower or the upper half of a chunk: in y, d and beta, and in tiles of bf16.
// Eight rows behind one another are swizzled alike.
struct column_rows {
    int column, first; // its first row
    int floats[4], numbers;
    __device__ explicit column_rows(int warp) {
        const int lane = static_cast<int>(threadIdx.x) % 32;
        column = warp * 16 + (lane & 15), first = (lane & 16) * 2;
#pragma unroll
        for (int i = 0; i < 4; i++) floats[i] = first * 64 + (column ^ (lane & 16) ^ i * 8);
        numbers = first * 64 + column;
    }
    __device__ int place(int i) const {
        return floats[i % 8 / 2] + i * 64;
    }
    __device__ int tile_place(int i) const {
        return (numbers ^ i % 8 * 8) + i * 64;
    }
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

__device__ float number(const __nv_bfloat16 *tile, int at) {
    return __bfloat162float(tile[at]);
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
        load_tokens(m.tokens, at::thread, a, at::head, c);
        at::load_keys_queries(m.q, m.x, a, c);
        copy_commit();
        at::load_columns(m.r, a, delta ? a.r : a.v, c);
        at::load_columns(m.d_o, a, a.d_o, c);
        if constexpr (delta) at::load_columns(m.more.dr, a, a.dv, c);
        if constexpr (!delta) load_beta<gates_place>(m.more.beta, at::thread, a, at::b, at::h, c, at::v);
        copy_commit();
    }

    // Rows i .. i + 15 of the lane's half: beta, steps, and logs of decays from their reference on.
    struct sixteen_steps {
        float beta[16], u[16], before; // before: of the step before the first
        column_step step[16];
    };
    __device__ float *own_beta(const column_view &view, const column_rows &rows, int i) const {
        return view.row(at::b, c * 64 + rows.first + i, at::h) + at::v + rows.column;
    }
    __device__ void get_column(sixteen_steps &to, const column_rows &rows, int i) const {
        float sum = 0.0f;
        if constexpr (delta) {
            const float *from = own_beta(a.beta, rows, i);
            const int inside = a.T - (c * 64 + rows.first + i);
#pragma unroll
            for (int n = 0; n < 16; n++, from += a.beta.time) to.beta[n] = n < inside ? *from : 0.0f;
        } else {
#pragma unroll
            for (int n = 0; n < 16; n++) to.beta[n] = m.more.beta[rows.place(i + n)];
        }
#pragma unroll
        for (int n = 0; n < 16; n++) {
            const float2 shared = *reinterpret_cast<const float2 *>(m.tokens + rows.first + i + n);
            to.step[n] = step_of(a, shared.x, shared.y, to.beta[n]);
            to.u[n] = sum += log2_of(to.step[n].gamma);
        }
        to.before = -to.u[7];
#pragma unroll
        for (int n = 0; n < 16; n++) to.u[n] += to.before;
    }

    // y, d and e out of their tiles, each at its own reference, y and d rounded to tf32. Returns log2 of the decay of
    // the chunk in the lane's column; middle: up to its two references.
    __device__ float place_operands(float (&middle)[2]) const {
        const column_rows rows(at::warp);
        float start = 0.0f;
#pragma unroll
        for (int j = 0; j < 2; j++) {
            sixteen_steps s;
            get_column(s, rows, j * 16);
            middle[j] = start - s.before;
            start += s.u[15] - s.before;
            float before = power2(s.before);
#pragma unroll
            for (int n = 0; n < 16; n++) {
                const int to = rows.place(j * 16 + n), from = rows.tile_place(j * 16 + n);
                const float now = power2(s.u[n]);
                m.y[to] = rounded(s.step[n].eta * number(m.r, from) * power2(-s.u[n]));
                m.d[to] = rounded(number(m.d_o, from) * now);
                if constexpr (delta) m.more.dr[from] = __float2bfloat16(number(m.more.dr, from) * before);
                before = now;
            }
        }
        const float other = __shfl_xor_sync(everyone, start, 16), begin = rows.first ? other : 0.0f;
        middle[0] += begin, middle[1] += begin;
        return start + other;
    }

    // log2 of the decay up to the reference of block j, of the quad's columns.
    __device__ void get_middle(float (&to)[2], const float (&middle)[2], int j) const {
        const int from = at::thread % 32 / 4 + j / 4 * 16;
        to[0] = __shfl_sync(everyone, middle[j / 2 % 2], from);
        to[1] = __shfl_sync(everyone, middle[j / 2 % 2], from + 8);
    }

    // First block to last. In: O = Q S, Y = X S of falcon2, A = X dS'. Out: O what step i adds to the gradients of the
    // logs of decays up to its own, o_i dO_i minus e^{u_i} dr_{i+1} (e^m X S + G y)_{i+1}; `leaving`: the lane's part
    // of the sum over s. u: log2 of the decay of the chunk.
    __device__ void steps(const block_rows &rows, float (&O)[32], float (&Y)[32], const float (&A)[32],
                          const float (&middles)[2], const float (&u)[2], float (&leaving)[2]) const {
        float middle[2] = {0.0f, 0.0f};
        uint32_t residuals[4];
        leaving[0] = leaving[1] = 0.0f;
#pragma unroll
        for (int j = 0; j < 8; j++) {
            float y[4], d[4], by[2] = {1.0f, 1.0f};
            if (j % 2 == 0) {
                float now[2];
                get_middle(now, middles, j);
#pragma unroll
                for (int h = 0; h < 2; h++) by[h] = power2(now[h] - middle[h]), middle[h] = now[h];
#pragma unroll
                for (int i = j * 4; i < 32; i++) {
                    O[i] *= by[i % 4 / 2];
                    if (delta) Y[i] *= by[i % 4 / 2];
                }
            }
            rows.get(y, m.y, j);
            uint32_t operand[4];
            eight_operand(operand, y);
#pragma unroll
            for (int i = j; i < 8; i++) {
                add_product(O + i * 4, operand, m.P + lower_at(i, j));
                if constexpr (delta) add_product(Y + i * 4, operand, m.more.G + lower_at(i, j));
            }
#pragma unroll
            for (int h = 0; h < 2; h++)
                leaving[h] = leaving[h] * by[h] + (y[h * 2] * A[j * 4 + h * 2] + y[h * 2 + 1] * A[j * 4 + h * 2 + 1]);
            rows.get(d, m.d, j);
#pragma unroll
            for (int e = 0; e < 4; e++) O[j * 4 + e] *= d[e];
            if constexpr (delta) {
                if (j % 2 == 0) get_columns(residuals, m.more.dr, j, at::warp);
                unpack_block(d, residuals, j);
                take_residuals(O, d, Y, j);
            }
        }
        leaving[0] *= power2(u[0] - middle[0]), leaving[1] *= power2(u[1] - middle[1]);
    }

    // O of the step before each of block j loses e Y.
    __device__ static void take_residuals(float (&O)[32], const float (&e)[4], const float (&Y)[32], int j) {
        const int lane = static_cast<int>(threadIdx.x) % 32, next = (lane & ~3) | ((lane + 1) & 3);
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const float first = __shfl_sync(everyone, e[h * 2] * Y[j * 4 + h * 2], next);
            O[j * 4 + h * 2] -= e[h * 2 + 1] * Y[j * 4 + h * 2 + 1];
            if (lane % 4 < 3)
                O[j * 4 + h * 2 + 1] -= first;
            else if (j > 0)
                O[j * 4 - 4 + h * 2 + 1] -= first;
        }
    }

    // Last block to first. In: A = X dS', which becomes e^{u_s - m} a_s and takes the place of y; what a step adds to
    // the gradients of the logs of decays up to its own takes that of d. tail: the lane's part of the sum of these over
    // the second half.
    __device__ void steps_back(const block_rows &rows, const float (&O)[32], float (&A)[32], const float (&middles)[2],
                               const float (&u)[2], float (&tail)[2]) const {
        float middle[2] = {u[0], u[1]};
        uint32_t residuals[4];
        tail[0] = tail[1] = 0.0f;
#pragma unroll
        for (int j = 7; j >= 0; j--) {
            float d[4], y[4], sum[4];
            if (j % 2 == 1) {
                float now[2], by[2];
                get_middle(now, middles, j);
#pragma unroll
                for (int h = 0; h < 2; h++) by[h] = power2(middle[h] - now[h]), middle[h] = now[h];
#pragma unroll
                for (int i = 0; i < j * 4 + 4; i++) A[i] *= by[i % 4 / 2];
            }
            rows.get(d, m.d, j);
            uint32_t operand[4];
            eight_operand(operand, d);
#pragma unroll
            for (int i = 0; i <= j; i++) add_product_of_rows(A + i * 4, operand, m.P + lower_at(j, i));
            if constexpr (delta) {
                if (j % 2 == 1) get_columns(residuals, m.more.dr, j - 1, at::warp);
                unpack_block(d, residuals, j);
#pragma unroll
                for (int e = 0; e < 4; e++) d[e] = -d[e];
                eight_operand(operand, d);
#pragma unroll
                for (int i = 0; i <= j; i++) add_product_of_rows(A + i * 4, operand, m.more.G + lower_at(j, i));
            }
            rows.get(y, m.y, j);
#pragma unroll
            for (int e = 0; e < 4; e++) {
                sum[e] = O[j * 4 + e] - y[e] * A[j * 4 + e], y[e] = A[j * 4 + e];
                if (j >= 4) tail[e / 2] += sum[e];
            }
            rows.set(m.y, y, j);
            rows.set(m.d, sum, j);
        }
    }

    // Of two numbers that quads have, the one of the lane's own column.
    __device__ float of_column(const float (&x)[2]) const {
        const int from = at::thread % 8 * 4;
        const float low = __shfl_sync(everyone, x[0], from), high = __shfl_sync(everyone, x[1], from);
        return at::thread & 8 ? high : low;
    }

    // Last step to first: dbeta into the place of beta, dv of falcon2a into that of v, the summands of the gradients of
    // lambda and the denominator into those of d and y. behind: what all steps have; tail: the sum of what the second
    // half adds to d_log_gamma.
    __device__ void step_grads(float behind, float tail) const {
        const column_rows rows(at::warp);
        if (!rows.first) behind += tail;
#pragma unroll
        for (int j = 1; j >= 0; j--) {
            sixteen_steps s;
            get_column(s, rows, j * 16);
            const int inside = a.dbeta.data ? a.T - (c * 64 + rows.first + j * 16) : 0;
            float *far = own_beta(a.dbeta, rows, j * 16);
#pragma unroll
            for (int n = 15; n >= 0; n--) {
                const int to = rows.place(j * 16 + n), from = rows.tile_place(j * 16 + n);
                const float2 shared = *reinterpret_cast<const float2 *>(m.tokens + rows.first + j * 16 + n);
                const float inverse = shared.x, lambda = shared.y, left = m.y[to] * power2(-s.u[n]);
                const column_step &step = s.step[n];
                behind += m.d[to];
                const float d_alpha = step.clamped ? 0.0f : -behind * quick_reciprocal(step.gamma);
                const float d_beta = step.cut ? 0.0f : (left * number(m.r, from) + lambda * d_alpha) * inverse;
                m.d[to] = step.eta * d_alpha;
                m.y[to] = -s.beta[n] * d_beta * inverse;
                if constexpr (!delta) {
                    m.more.beta[to] = d_beta;
                    m.r[from] = __float2bfloat16(step.eta * left);
                } else if (n < inside) {
                    far[n * a.dbeta.time] = d_beta;
                }
            }
        }
    }

    // Sums over the warp's columns: a lane takes two rows, whose 16 columns stand in 16 places in a row.
    __device__ void sum_columns() const {
        const int lane = at::thread % 32, row = (lane & 16) * 2 + (lane & 15) * 2;
        const int first = row * 64 + (at::warp * 16 ^ ((lane & 16) ^ (lane & 2) * 8));
        float2 sum[2] = {};
        __syncwarp();
#pragma unroll
        for (int i = 0; i < 16; i++)
#pragma unroll
            for (int e = 0; e < 2; e++) {
                const int from = first + (lane + i & 15) + e * 64;
                sum[e].x += m.d[from], sum[e].y += m.y[from];
            }
        m.sums[at::warp][row] = sum[0], m.sums[at::warp][row + 1] = sum[1];
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
__global__ void __launch_bounds__(column_threads, delta &&K == 64 ? 2 : 3)
    column_gates_kernel(const __grid_constant__ column_task a, int slices) {
    extern __shared__ __align__(1024) unsigned char memory[];
    auto &m = *reinterpret_cast<gates_memory<K, delta> *>(memory);
    gates_block<K, delta> at(a, m, slices);
    at.load();
    float O[32], Y[32], A[32], both[2] = {0.0f, 0.0f};
    uint32_t S[4][4], dS[4][4];
    read_operands<K>(S, a.states, a, at, at.c, 0);
    read_operands<K>(dS, a.d_states, a, at, at.c, 0);
    copy_wait<1>();
    publish();
    __syncthreads();
#pragma unroll 1
    for (int k = 0; k < K; k += 64) { // part by part, to spare registers
#pragma unroll
        for (int i = 0; i < 16; i++) both[i % 2] += dot_pair(S[i / 4][i % 4], dS[i / 4][i % 4]);
        state_product<64>(O, S, operand_tile(m.q), k);
        if constexpr (delta) state_product<64>(Y, S, operand_tile(m.x), k);
        state_product<64>(A, dS, operand_tile(m.x), k);
        if (k + 64 == K) break;
        read_operands<K>(S, a.states, a, at, at.c, k + 64);
        read_operands<K>(dS, a.d_states, a, at, at.c, k + 64);
    }
    place_product<K, false>(m.P, m.q, m.x, m.tokens, a.documents, at.warp);
    if constexpr (delta) place_product<K, true>(m.more.G, m.x, m.x, m.tokens, a.documents, at.warp);
    if (a.documents) {
        keep_document(O, m.tokens, 0.0f);
        if (delta) keep_document(Y, m.tokens, 0.0f);
        keep_document(A, m.tokens, m.tokens[63].z);
    }
    copy_wait<0>();
    __syncthreads();
    at.renew();
    float middles[2];
    const float all = at.place_operands(middles);
    __syncthreads();
    at.renew();
    const block_rows rows(at.warp);
    const int quad = at.thread % 32 / 4;
    const float u[2] = {__shfl_sync(everyone, all, quad), __shfl_sync(everyone, all, quad + 8)};
    float through[2], tail[2];
    at.steps(rows, O, Y, A, middles, u, through);
    const bool emptied = a.documents && m.tokens[63].z > 0.0f;
#pragma unroll
    for (int h = 0; h < 2; h++) through[h] = quad_sum(through[h] + (emptied ? 0.0f : both[h] * power2(u[h])));
    at.steps_back(rows, O, A, middles, u, tail);
    tail[0] = quad_sum(tail[0]), tail[1] = quad_sum(tail[1]);
    __syncwarp();
    at.renew();
    at.step_grads(at.of_column(through), at.of_column(tail));
    at.sum_columns();
    if (!delta && a.dv.data) copy_columns(m.r, a, a.dv, at.b, at.h, at.c, at.v, at.warp);
    __syncthreads();
    at.renew();
    at.write_sums();
    if constexpr (!delta)
        if (a.dbeta.data) store_dbeta(a, m.more.beta, at.thread, at.b, at.h, at.c, at.v);
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
