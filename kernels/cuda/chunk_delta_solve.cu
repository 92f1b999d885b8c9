// Chunk form of the delta core: gates, and the inverse of the system of every chunk (docs/kernels.md). With G = X X^T,
//
//   A_is = w_s e^{seen_i - u_s} G_is for s < i      T = (I + A)^{-1}      E_i = G_ii
//
// G of bf16 keys in fp32. Blocks of 16 on the diagonal are inverted by substitution in fp32; below them, in two bf16
// parts (chunk_delta.cuh), T_ij = -T_ii sum_{j<=k<i} A_ik T_kj. A block takes a chunk of a value head; each of its 4
// warps has 16 rows of A, then 16 columns of T. Cost: the keys are read once, 13 KB written.
#include "kernels/cuda/chunk_delta.cuh"
#include "kernels/cuda/chunk_rows.cuh"

namespace {

using namespace fwa;

constexpr int threads = 128, solve_blocks = 6, block_floats = 20, block_row = 24; // rows in different banks

// A block of a second operand, n columns 0 .. 7 in x, y.
struct fragment_block {
    uint4 high[32], low[32];
};

template <int K> struct solve_memory {
    union {
        __nv_bfloat16 x[64 * K];
        struct {
            fragment_block below[6];                     // of A: (1,0) (2,0) (2,1) (3,0) (3,1) (3,2)
            float diagonal[4][16 * block_floats];        // of A
            __nv_bfloat16 inverse[4][2][16 * block_row]; // of its inverse, transposed, in two parts
        } a;
    };
    delta_gates gates;
    float near_sight[64], norms[64]; // e^{seen_i - u'}, as `near`; |x|^2
};

// Gates of the chunk, by one warp: lane l has rows 2 l and 2 l + 1.
template <int K>
__device__ void tile_gates(solve_memory<K> &m, const chunk_rate &rate, const delta_task &a,
                           const step_scalars (&scalars)[2], int64_t b, int64_t h, int c) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    float decay[2] = {0.0f, 0.0f}, w[2] = {0.0f, 0.0f}, energy[2] = {0.0f, 0.0f};
    bool dropped[2] = {false, false};
#pragma unroll
    for (int e = 0; e < 2; e++) {
        const int r = lane * 2 + e, t = tile_step(a, c, r);
        if (t >= a.T) continue;
        if (energy_of(rate.kind) == energy_kind::mean && scalars[e].pairs > 0) energy[e] = m.norms[r];
        const step_gates g = gates_of_step(rate, scalars[e], energy[e]);
        dropped[e] = rate.task.drop && rate.task.drop[b * a.T + t];
        decay[e] = dropped[e] ? log_least : g.log_decay;
        w[e] = g.w;
    }
    const float second = warp_prefix_sum(decay[0] + decay[1], lane), before = second - decay[1] - decay[0];
    const float u[2] = {(before + decay[0]) * log2_e, second * log2_e};
    const float last = __shfl_up_sync(everyone, u[1], 1);
    // The residual sees the state before the step, unless the decay acts first; of another document nothing.
    const float seen[2] = {rate.task.decay_first || dropped[0] ? u[0]
                           : lane > 0                          ? last
                                                               : 0.0f,
                           rate.task.decay_first || dropped[1] ? u[1] : u[0]};
    *reinterpret_cast<float2 *>(m.gates.u + lane * 2) = make_float2(u[0], u[1]);
    *reinterpret_cast<float2 *>(m.gates.w + lane * 2) = make_float2(w[0], w[1]);
    *reinterpret_cast<float2 *>(m.gates.seen + lane * 2) = make_float2(seen[0], seen[1]);
    if (energy_of(rate.kind) == energy_kind::mean && h % a.group == 0)
        *reinterpret_cast<float2 *>(rate.energy + ((b * a.Hq + h / a.group) * a.chunks + c) * 64 + lane * 2) =
            make_float2(energy[0], energy[1]);
}

// What follows from u, w and seen: half of the threads a row, the others a column.
template <int K> __device__ void derived_gates(solve_memory<K> &m, int thread) {
    delta_gates &g = m.gates;
    const int i = thread % 64, block = i / 16;
    const float u = g.u[i], w = g.w[i];
    if (thread < 64) {
        const float front = block > 0 ? g.u[block * 16 - 1] : 0.0f;
        g.history[i] = power2(u), g.sight[i] = power2(g.seen[i]), g.leave[i] = w * power2(g.u[63] - u);
        g.near[i] = power2(u - front), m.near_sight[i] = power2(g.seen[i] - front);
    } else {
#pragma unroll
        for (int b = 1; b < 4; b++) g.far[b - 1][i] = block < b ? w * power2(g.u[b * 16 - 1] - u) : 0.0f;
    }
}

__device__ void write_gates(delta_gates *to, const delta_gates &from, int thread) {
    for (int i = thread; i < static_cast<int>(sizeof from / sizeof(uint4)); i += threads)
        reinterpret_cast<uint4 *>(to)[i] = reinterpret_cast<const uint4 *>(&from)[i];
}

// The warp's rows of A, from those of G.
template <int K> __device__ void system_blocks(solve_memory<K> &m, const float (&G)[32], int warp, int lane) {
    const int t = lane % 4, row = lane / 4, i = warp * 16 + row;
    const float near_low = m.near_sight[i], near_high = m.near_sight[i + 8];
    const float seen_low = m.gates.seen[i], seen_high = m.gates.seen[i + 8];
#pragma unroll
    for (int k = 0; k < 4; k++) {
        if (k > warp) break;
        float A[8];
#pragma unroll
        for (int n = 0; n < 8; n++) {
            const int s = k * 16 + n / 4 * 8 + t * 2 + n % 2, high = n % 4 / 2;
            float by = (high ? near_high : near_low) * m.gates.far[max(warp, 1) - 1][s];
            if (k == warp)
                by = s < i + high * 8 ? m.gates.w[s] * power2((high ? seen_high : seen_low) - m.gates.u[s]) : 0.0f;
            A[n] = G[k * 8 + n] * by;
        }
        if (k < warp) {
            fragment_block &to = m.a.below[warp * (warp - 1) / 2 + k];
            uint4 high, low;
            split_pair(high.x, low.x, A[0], A[1]);
            split_pair(high.y, low.y, A[4], A[5]);
            split_pair(high.z, low.z, A[2], A[3]);
            split_pair(high.w, low.w, A[6], A[7]);
            to.high[lane] = high, to.low[lane] = low;
        } else {
#pragma unroll
            for (int n = 0; n < 8; n += 2)
                *reinterpret_cast<float2 *>(m.a.diagonal[warp] + (row + n % 4 / 2 * 8) * block_floats + n / 4 * 8 +
                                            t * 2) = make_float2(A[n], A[n + 1]);
        }
    }
}

// (I + A)^{-1} of the warp's block on the diagonal: lanes l and l + 16 have column l, and write its two parts.
__device__ void invert_block(__nv_bfloat16 (*to)[16 * block_row], const float *A, int lane) {
    const int column = lane % 16;
    float t[16];
#pragma unroll
    for (int i = 0; i < 16; i++) {
        float sum[4] = {i == column ? 1.0f : 0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
        for (int s = 0; s < i; s += 4) {
            const float4 by = *reinterpret_cast<const float4 *>(A + i * block_floats + s);
            sum[0] -= by.x * t[s];
            if (s + 1 < i) sum[1] -= by.y * t[s + 1];
            if (s + 2 < i) sum[2] -= by.z * t[s + 2];
            if (s + 3 < i) sum[3] -= by.w * t[s + 3];
        }
        t[i] = (sum[0] + sum[1]) + (sum[2] + sum[3]);
    }
    uint32_t part[8];
#pragma unroll
    for (int i = 0; i < 8; i++) {
        uint32_t high, low;
        split_pair(high, low, t[i * 2], t[i * 2 + 1]);
        part[i] = lane < 16 ? high : low;
    }
    auto *row = reinterpret_cast<uint4 *>(to[lane / 16] + column * block_row);
    row[0] = make_uint4(part[0], part[1], part[2], part[3]), row[1] = make_uint4(part[4], part[5], part[6], part[7]);
}

// d += a b of 16x16 blocks, b's parts as second operands.
__device__ void add_product(float (&d)[8], const split_rows<8> &a, const uint4 &high, const uint4 &low) {
    auto &left = *reinterpret_cast<float(*)[4]>(d), &right = *reinterpret_cast<float(*)[4]>(d + 4);
    mma_bf16(left, a.high[0], high.x, high.y), mma_bf16(right, a.high[0], high.z, high.w);
    mma_bf16(left, a.high[0], low.x, low.y), mma_bf16(right, a.high[0], low.z, low.w);
    mma_bf16(left, a.low[0], high.x, high.y), mma_bf16(right, a.low[0], high.z, high.w);
}

// Block (i,j) of T out of its transpose.
__device__ void write_block(uint4 *to, const split_rows<8> &X, int i, int j, int lane) {
#pragma unroll
    for (int part = 0; part < 2; part++) {
        auto *own = reinterpret_cast<uint32_t *>(to + inverse_block(i, j, part) * 32) + lane;
#pragma unroll
        for (int n = 0; n < 4; n++)
            own[(n % 2 + n / 2 * 2) * 32] = transposed_matrix(part ? X.low[0][n] : X.high[0][n]);
    }
}

// The warp's columns of T, from the diagonal down. X_i = T_ij^T is a first operand out of accumulators:
// X_i = -(sum_k X_k A_ik^T) T_ii^T.
template <int K> __device__ void inverse_columns(uint4 *to, const solve_memory<K> &m, int j, int lane) {
    const int place = (lane / 8 % 2 * 8 + lane % 8) * block_row + lane / 16 * 8;
    split_rows<8> X[4];
    load_matrix(X[0].high[0], m.a.inverse[j][0] + place);
    load_matrix(X[0].low[0], m.a.inverse[j][1] + place);
    write_block(to, X[0], j, j, lane);
#pragma unroll
    for (int n = 1; n < 4; n++) {
        const int i = j + n;
        if (i > 3) break;
        float sum[8] = {}, d[8] = {};
#pragma unroll
        for (int k = 0; k < n; k++) {
            const fragment_block &A = m.a.below[i * (i - 1) / 2 + j + k];
            add_product(sum, X[k], A.high[lane], A.low[lane]);
        }
#pragma unroll
        for (int e = 0; e < 8; e++) sum[e] = -sum[e];
        uint32_t high[4], low[4];
        load_matrix_transposed(high, m.a.inverse[i][0] + place);
        load_matrix_transposed(low, m.a.inverse[i][1] + place);
        add_product(d, split_rows<8>(sum), make_uint4(high[0], high[1], high[2], high[3]),
                    make_uint4(low[0], low[1], low[2], low[3]));
        X[n] = split_rows<8>(d);
        write_block(to, X[n], i, j, lane);
    }
}

template <int K>
__global__ void __launch_bounds__(threads, solve_blocks)
    delta_solve_kernel(const __grid_constant__ delta_task a, const __grid_constant__ chunk_rate rate) {
    extern __shared__ __align__(1024) unsigned char memory[];
    auto &m = *reinterpret_cast<solve_memory<K> *>(memory);
    const int thread = static_cast<int>(threadIdx.x), warp = thread / 32, lane = thread % 32;
    const int c = static_cast<int>(blockIdx.x) % a.chunks, head = static_cast<int>(blockIdx.x) / a.chunks;
    const int b = head / a.H, h = head % a.H;
    load_keys<K, threads>(m.x, thread, a, b, h / a.group, c);
    copy_commit();
    step_scalars scalars[2] = {};
    for (int e = 0; warp == 0 && e < 2; e++) {
        const int t = tile_step(a, c, lane * 2 + e);
        if (t < a.T) scalars[e] = scalars_of_step(rate.task, b, h, t);
    }
    copy_wait<0>();
    publish();
    __syncthreads();
    float G[32];
    gram<K>(G, m.x);
    if (energy_of(rate.kind) == energy_kind::mean) {
#pragma unroll
        for (int i = 0; i < 32; i++) {
            const int row = warp * 16 + lane / 4 + i % 4 / 2 * 8, column = i / 4 * 8 + lane % 4 * 2 + i % 2;
            if (row == column) m.norms[row] = G[i];
        }
        __syncthreads();
    }
    if (warp == 0) tile_gates(m, rate, a, scalars, b, h, c);
    __syncthreads();
    derived_gates(m, thread);
    __syncthreads();
    write_gates(a.gates + tile_index(a, head, c), m.gates, thread);
    system_blocks(m, G, warp, lane);
    __syncwarp();
    invert_block(m.a.inverse[warp], m.a.diagonal[warp], lane);
    __syncthreads();
    inverse_columns(inverse_at(a, head, c), m, warp, lane);
}

template <int K> fwa_status launch_solve(cudaStream_t stream, const delta_task &task, const chunk_rate &rate) {
    constexpr int bytes = sizeof(solve_memory<K>);
    FWA_CUDA_TRY(cudaFuncSetAttribute(delta_solve_kernel<K>, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
    FWA_LAUNCH(delta_solve_kernel<K>, static_cast<unsigned>(task.B * task.H * task.chunks), threads, bytes, stream,
               task, rate);
    return FWA_OK;
}

} // namespace

namespace fwa {

fwa_status chunk_delta_solve(cudaStream_t stream, const delta_task &task, const chunk_rate &rate) {
    return rate.task.K == 64 ? launch_solve<64>(stream, task, rate) : launch_solve<128>(stream, task, rate);
}

} // namespace fwa
