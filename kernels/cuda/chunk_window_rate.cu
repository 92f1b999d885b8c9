// Gates of the window core (chunk_window.cuh). With G = X X^T of a tile, the matrix of a window of B_t pairs is a block
// on its diagonal:
//
//   E_t = lambda_max(G on I_t) / B_t    and the unit eigenvector, 0 where E_t is 0    (4.14)
//
// by Jacobi's rotations in fp32, then step, decay and their running sum (chunk_rate.cuh). A block takes a tile of a
// query/key head: G by the warpgroup, a thread a window, then a warp a value head. Cost: keys are read once.
#include "kernels/cuda/chunk_rows.cuh"
#include "kernels/cuda/chunk_window.cuh"
#include "kernels/cuda/eigenvalue.cuh"

namespace {

using namespace fwa;

constexpr int threads = 128;

template <int K, int W> struct rate_memory {
    __nv_bfloat16 x[64 * K];
    float gram[64][W], energy[64];
};

// E of row r; writes the row of gram and top.
template <int K, int W>
__device__ float window_energy(const rate_memory<K, W> &m, const window_task &a, int pairs, int64_t row, int r) {
    float A[W][W], top[W], energy = 0.0f;
#pragma unroll
    for (int i = 0; i < W; i++)
#pragma unroll
        for (int j = 0; j <= i; j++) {
            const bool members = j >= W - pairs && r - (W - 1) + j >= 0;
            A[i][j] = A[j][i] = members ? m.gram[r - (W - 1) + i][i - j] : 0.0f;
        }
#pragma unroll
    for (int k = 0; k < W; k++) top[k] = 0.0f;
    if (pairs > 0) {
        const float largest = largest_eigenvalue<W>(A, top);
        if (largest > 0.0f) energy = largest / static_cast<float>(pairs);
    }
#pragma unroll
    for (int k = 0; k < W; k++) {
        a.gram[row * W + k] = m.gram[r][k];
        a.top[row * W + k] = energy > 0.0f ? top[k] : 0.0f;
    }
    return energy;
}

// Gates of a value head, by one warp: lane l has rows 2 l and 2 l + 1.
__device__ void tile_gates(const chunk_rate &rate, const window_task &a, const chunk_gates &to, const float *energies,
                           int64_t b, int64_t h, int c) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int64_t at = ((b * a.H + h) * a.chunks + c) * 64 + lane * 2;
    float decay[2] = {0.0f, 0.0f}, w[2] = {0.0f, 0.0f}, pairs[2] = {0.0f, 0.0f};
    bool dropped[2] = {false, false};
#pragma unroll
    for (int e = 0; e < 2; e++) {
        const int r = lane * 2 + e, t = tile_step(a, c, r);
        if (r < a.halo || t >= a.T) continue;
        const step_gates g = gates_of_step(rate, scalars_of_step(rate.task, b, h, t), energies[r]);
        dropped[e] = rate.task.drop && rate.task.drop[b * a.T + t];
        decay[e] = dropped[e] ? log_least : g.log_decay;
        w[e] = g.w, pairs[e] = g.pairs;
    }
    const float second = warp_prefix_sum(decay[0] + decay[1], lane), before = second - decay[1] - decay[0];
    const float u[2] = {(before + decay[0]) * log2_e, second * log2_e};
    const float last = __shfl_up_sync(everyone, u[1], 1);
    const float seen[2] = {dropped[0] ? u[0] : lane > 0 ? last : 0.0f, dropped[1] ? u[1] : u[0]};
    *reinterpret_cast<float2 *>(to.u + at) = make_float2(u[0], u[1]);
    *reinterpret_cast<float2 *>(to.w + at) = make_float2(w[0], w[1]);
    *reinterpret_cast<float2 *>(to.pairs + at) = make_float2(pairs[0], pairs[1]);
    *reinterpret_cast<float2 *>(a.seen + at) = make_float2(seen[0], seen[1]);
}

template <int K, int W>
__global__ void __launch_bounds__(threads)
    window_rate_kernel(const __grid_constant__ window_task a, const __grid_constant__ chunk_rate rate, chunk_gates to) {
    extern __shared__ __align__(1024) unsigned char memory[];
    auto &m = *reinterpret_cast<rate_memory<K, W> *>(memory);
    const int thread = static_cast<int>(threadIdx.x), warp = thread / 32, lane = thread % 32;
    const int c = static_cast<int>(blockIdx.x) % a.chunks, key = static_cast<int>(blockIdx.x) / a.chunks;
    const int b = key / a.Hq, hq = key % a.Hq;
    load_keys<K, threads>(m.x, thread, a, b, hq, c);
    copy_commit();
    for (int i = thread; i < 64 * W; i += threads) m.gram[i / W][i % W] = 0.0f;
    copy_wait<0>();
    publish();
    __syncthreads();
    float G[32];
    gram<K>(G, m.x);
#pragma unroll
    for (int n = 0; n < 32; n++) {
        const int i = warp * 16 + lane / 4 + n % 4 / 2 * 8, back = i - (n / 4 * 8 + lane % 4 * 2 + n % 2);
        if (back >= 0 && back < W) m.gram[i][back] = G[n];
    }
    __syncthreads();
    if (thread < 64) {
        const int t = tile_step(a, c, thread);
        const int64_t row = static_cast<int64_t>(blockIdx.x) * 64 + thread;
        const int pairs = thread >= a.halo && t < a.T ? window_pairs(rate.task, b, t) : 0;
        rate.energy[row] = m.energy[thread] = window_energy(m, a, pairs, row, thread);
    }
    __syncthreads();
    for (int h = warp; h < a.group; h += threads / 32) tile_gates(rate, a, to, m.energy, b, hq * a.group + h, c);
}

template <int K, int W>
fwa_status launch_rate(cudaStream_t stream, const window_task &task, const chunk_rate &rate, const chunk_gates &to) {
    constexpr int bytes = sizeof(rate_memory<K, W>);
    const auto kernel = window_rate_kernel<K, W>;
    FWA_CUDA_TRY(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
    FWA_LAUNCH(kernel, static_cast<unsigned>(task.B * task.Hq * task.chunks), threads, bytes, stream, task, rate, to);
    return FWA_OK;
}

} // namespace

namespace fwa {

fwa_status chunk_window_rate(cudaStream_t stream, const window_task &task, const chunk_rate &rate,
                             const chunk_gates &to) {
    const bool narrow = rate.task.K == 64;
    if (task.window == 4)
        return narrow ? launch_rate<64, 4>(stream, task, rate, to) : launch_rate<128, 4>(stream, task, rate, to);
    return narrow ? launch_rate<64, 8>(stream, task, rate, to) : launch_rate<128, 8>(stream, task, rate, to);
}

} // namespace fwa
