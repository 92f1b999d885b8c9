// Chunk form of the delta core: gates, and the inverse of the system of every chunk (docs/kernels.md). With G = X X^T,
//
//   A_is = w_s e^{seen_i - u_s} G_is for s < i      T = (I + A)^{-1}      E_i = G_ii
//
// G of bf16 keys in fp32, T in fp32: blocks of 16 by substitution, then T_10 = -T_11 A_10 T_00 from 16 to 32 to 64. It
// is written in two bf16 parts (chunk_delta.cuh). A block takes a chunk of a value head, 4 warps. Cost: the keys are
// read once, 9 KB written; 64 K + 10^5 multiply-adds in fp32.
#include "kernels/cuda/chunk_delta.cuh"
#include "kernels/cuda/chunk_rows.cuh"

namespace {

using namespace fwa;

constexpr int threads = 128, row_floats = 72, half_floats = 36; // rows of four-float pieces in different banks
constexpr float log2_e = 1.4426950408889634f;

template <int K> struct solve_memory {
    union {
        __nv_bfloat16 x[64 * K];
        float T[64 * row_floats]; // A, then T in its place
    };
    float half[32 * half_floats];
    float u[64], w[64], seen[64], norms[64];
};

// Gates of the chunk, by one warp: lane l has rows 2 l and 2 l + 1.
template <int K>
__device__ void tile_gates(solve_memory<K> &m, const chunk_rate &rate, const delta_task &a, const chunk_gates &to,
                           const step_scalars (&scalars)[2], int64_t b, int64_t h, int c) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int64_t head = b * a.H + h, at = (head * a.chunks + c) * 64 + lane * 2;
    float decay[2] = {0.0f, 0.0f}, w[2] = {0.0f, 0.0f}, energy[2] = {0.0f, 0.0f};
    bool dropped[2] = {false, false};
#pragma unroll
    for (int e = 0; e < 2; e++) {
        const int r = lane * 2 + e, t = tile_step(a, c, r);
        if (t >= a.T) continue;
        if (rate.kind == rate_kind::falcon && scalars[e].pairs > 0) energy[e] = m.norms[r];
        const step_gates g = gates_of_step(rate, scalars[e], energy[e]);
        dropped[e] = rate.task.drop && rate.task.drop[b * a.T + t];
        decay[e] = dropped[e] ? log_least : g.log_decay;
        w[e] = g.w;
    }
    const float second = sum_before(decay[0] + decay[1], lane), before = second - decay[1] - decay[0];
    const float u[2] = {(before + decay[0]) * log2_e, second * log2_e};
    const float last = __shfl_up_sync(everyone, u[1], 1);
    // The residual sees the state before the step, unless the decay acts first; of another document nothing.
    const float seen[2] = {rate.task.decay_first || dropped[0] ? u[0]
                           : lane > 0                          ? last
                                                               : 0.0f,
                           rate.task.decay_first || dropped[1] ? u[1] : u[0]};
#pragma unroll
    for (int e = 0; e < 2; e++) m.u[lane * 2 + e] = u[e], m.w[lane * 2 + e] = w[e], m.seen[lane * 2 + e] = seen[e];
    *reinterpret_cast<float2 *>(to.u + at) = make_float2(u[0], u[1]);
    *reinterpret_cast<float2 *>(to.w + at) = make_float2(w[0], w[1]);
    *reinterpret_cast<float2 *>(a.seen + at) = make_float2(seen[0], seen[1]);
    if (rate.kind == rate_kind::falcon && h % a.group == 0)
        *reinterpret_cast<float2 *>(rate.energy + ((b * a.Hq + h / a.group) * a.chunks + c) * 64 + lane * 2) =
            make_float2(energy[0], energy[1]);
}

// A in the place of T, zeros on and above the diagonal.
template <int K> __device__ void system_matrix(solve_memory<K> &m, const float (&G)[32], int warp, int lane) {
    const int t = lane % 4, i = warp * 16 + lane / 4;
    const float seen_low = m.seen[i], seen_high = m.seen[i + 8];
#pragma unroll
    for (int j = 0; j < 8; j++) {
        const int s = j * 8 + t * 2;
        float A[4] = {0.0f, 0.0f, 0.0f, 0.0f};
        if (j / 2 <= warp) {
#pragma unroll
            for (int n = 0; n < 4; n++) {
                const int column = s + n % 2, high = n / 2;
                if (column < i + high * 8)
                    A[n] = G[j * 4 + n] * m.w[column] * power2((high ? seen_high : seen_low) - m.u[column]);
            }
        }
        *reinterpret_cast<float2 *>(m.T + i * row_floats + s) = make_float2(A[0], A[1]);
        *reinterpret_cast<float2 *>(m.T + (i + 8) * row_floats + s) = make_float2(A[2], A[3]);
    }
}

// (I + A)^{-1} of the warp's 16x16 block on the diagonal, a lane a column.
__device__ void invert_block(float *block, int lane) {
    const int column = lane % 16;
    float t[16];
#pragma unroll
    for (int i = 0; i < 16; i++) {
        float sum[4] = {i == column ? 1.0f : 0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
        for (int s = 0; s < i; s += 4) {
            const float4 A = *reinterpret_cast<const float4 *>(block + i * row_floats + s);
            sum[0] -= A.x * t[s];
            if (s + 1 < i) sum[1] -= A.y * t[s + 1];
            if (s + 2 < i) sum[2] -= A.z * t[s + 2];
            if (s + 3 < i) sum[3] -= A.w * t[s + 3];
        }
        t[i] = (sum[0] + sum[1]) + (sum[2] + sum[3]);
    }
    __syncwarp();
#pragma unroll
    for (int i = 0; i < 16; i++)
        if (lane < 16) block[i * row_floats + column] = t[i];
}

__device__ void add_scaled(float4 &to, float by, const float4 &x) {
    to.x += by * x.x, to.y += by * x.y, to.z += by * x.z, to.w += by * x.w;
}

// Four columns of a row of a b, n terms; b has `stride` floats a row.
template <int n, int stride> __device__ float4 row_product(const float *a, const float *b) {
    float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll
    for (int s = 0; s < n; s += 4) {
        const float4 by = *reinterpret_cast<const float4 *>(a + s);
        add_scaled(sum, by.x, *reinterpret_cast<const float4 *>(b + s * stride));
        add_scaled(sum, by.y, *reinterpret_cast<const float4 *>(b + (s + 1) * stride));
        add_scaled(sum, by.z, *reinterpret_cast<const float4 *>(b + (s + 2) * stride));
        add_scaled(sum, by.w, *reinterpret_cast<const float4 *>(b + (s + 3) * stride));
    }
    return sum;
}
__device__ float4 negative(const float4 &x) {
    return make_float4(-x.x, -x.y, -x.z, -x.w);
}

// From inverses of n x n blocks on the diagonal to those of 2 n x 2 n: T_10 = -T_11 (A_10 T_00).
template <int n> __device__ void merge_blocks(float *T, float *half) {
    constexpr int quads = n / 4, pairs = 32 / n, step = threads / quads / pairs;
    const int thread = static_cast<int>(threadIdx.x), quad = thread % quads * 4, row = thread / quads % step;
    const int pair = thread / quads / step;
    float *corner = T + pair * 2 * n * (row_floats + 1), *Y = half + pair * n * half_floats;
#pragma unroll
    for (int i = row; i < n; i += step)
        *reinterpret_cast<float4 *>(Y + i * half_floats + quad) =
            row_product<n, row_floats>(corner + (n + i) * row_floats, corner + quad);
    __syncthreads();
#pragma unroll
    for (int i = row; i < n; i += step)
        *reinterpret_cast<float4 *>(corner + (n + i) * row_floats + quad) =
            negative(row_product<n, half_floats>(corner + (n + i) * row_floats + n, Y + quad));
    __syncthreads();
}

__device__ void write_inverse(uint4 *to, const float *T) {
    for (int p = static_cast<int>(threadIdx.x); p < inverse_pieces; p += threads) {
        const inverse_place at(p);
        const auto *from = reinterpret_cast<const float4 *>(T + at.row * row_floats + at.column);
        const float4 a = from[0], b = from[1];
        uint4 high, low;
        split_pair(high.x, low.x, a.x, a.y);
        split_pair(high.y, low.y, a.z, a.w);
        split_pair(high.z, low.z, b.x, b.y);
        split_pair(high.w, low.w, b.z, b.w);
        to[p] = high;
        to[inverse_pieces + p] = low;
    }
}

template <int K>
__global__ void __launch_bounds__(threads, 6)
    delta_solve_kernel(const __grid_constant__ delta_task a, const __grid_constant__ chunk_rate rate, chunk_gates to) {
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
    const operand_tile x(m.x);
    products_begin();
#pragma unroll
    for (int k = 0; k < K; k += 16) {
        const uint64_t at = x.k(k / 64 * 4096 + k % 64);
        product<64, 0, 0>(G, at, at, k > 0);
    }
    products_commit();
    products_wait<0>();
    products_done(G);
    if (rate.kind == rate_kind::falcon) {
#pragma unroll
        for (int i = 0; i < 32; i++) {
            const int row = warp * 16 + lane / 4 + i % 4 / 2 * 8, column = i / 4 * 8 + lane % 4 * 2 + i % 2;
            if (row == column) m.norms[row] = G[i];
        }
        __syncthreads();
    }
    if (warp == 0) tile_gates(m, rate, a, to, scalars, b, h, c);
    __syncthreads();
    system_matrix(m, G, warp, lane);
    __syncwarp();
    invert_block(m.T + warp * 16 * (row_floats + 1), lane);
    __syncthreads();
    merge_blocks<16>(m.T, m.half);
    merge_blocks<32>(m.T, m.half);
    write_inverse(inverse_at(a, head, c), m.T);
}

template <int K>
fwa_status launch_solve(cudaStream_t stream, const delta_task &task, const chunk_rate &rate, const chunk_gates &to) {
    constexpr int bytes = sizeof(solve_memory<K>);
    FWA_CUDA_TRY(cudaFuncSetAttribute(delta_solve_kernel<K>, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
    FWA_LAUNCH(delta_solve_kernel<K>, static_cast<unsigned>(task.B * task.H * task.chunks), threads, bytes, stream,
               task, rate, to);
    return FWA_OK;
}

} // namespace

namespace fwa {

fwa_status chunk_delta_solve(cudaStream_t stream, const delta_task &task, const chunk_rate &rate,
                             const chunk_gates &to) {
    return rate.task.K == 64 ? launch_solve<64>(stream, task, rate, to) : launch_solve<128>(stream, task, rate, to);
}

} // namespace fwa
