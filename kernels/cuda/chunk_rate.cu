// Gates of the chunk kernels (chunk_rate.cuh). A block takes a tile of a query/key head: warps take the squares of the
// lengths of its keys, then two warps a value head, a thread a row: step, decay, and the running sum of its logarithm.
// Cost: the keys are read once; nothing but the gates is written.
#include "kernels/cuda/chunk_rate.cuh"

namespace {

using namespace fwa;

constexpr int threads = 256;

// Mean of the norms of the window of row r.
__device__ float mean_energy(const mixer_task &a, int64_t b, int64_t t, const float *norms, int r) {
    const int pairs = window_pairs(a, b, t);
    float sum = 0.0f;
    for (int e = 0; e < pairs; e++) sum += norms[r - e];
    return pairs > 0 ? sum / static_cast<float>(pairs) : 0.0f;
}

// What two warps share.
struct pair_rows {
    float u[64], w[64], pairs[64], carry;
};

// u, w, B_t of row r in shared memory: weights of its pair 0, 1, 2, 3 steps later.
__device__ void window_gates(const chunk_task &a, const chunk_gates &to, const pair_rows &rows, int64_t at, int r) {
    float weight[halo_most + 1] = {}, sum = 0.0f;
    for (int e = 0; e <= a.halo && r + e < 64; e++) {
        if (e > 0) sum *= power2(rows.u[r + e] - rows.u[r + e - 1]);
        if (rows.pairs[r + e] > static_cast<float>(e)) sum += rows.w[r + e];
        weight[e] = sum;
    }
    to.far[at + r] = weight[a.halo];
    to.band[at + r] = make_float2(weight[1], weight[2]);
    to.pairs[at + r] = rows.pairs[r];
}

// Gates of row r of a value head, by the 64 threads of a pair of warps; the whole block comes here. at: of row 0; below
// 0: no head, nothing is written.
__device__ void tile_gates(const chunk_task &a, const chunk_gates &to, const step_gates &g, bool dropped, int64_t at,
                           pair_rows &rows, int r) {
    float sum = dropped ? log_least : g.log_decay;
    for (int reach = 1; reach < 32; reach *= 2) {
        const float other = __shfl_up_sync(0xffffffffu, sum, reach);
        if (r % 32 >= reach) sum += other;
    }
    if (r == 31) rows.carry = sum;
    __syncthreads();
    if (r >= 32) sum += rows.carry;
    const float u = sum * log2_e;
    if (at >= 0) to.u[at + r] = u, to.w[at + r] = g.w;
    if (a.halo > 0) {
        rows.u[r] = u, rows.w[r] = g.w, rows.pairs[r] = g.pairs;
        __syncthreads();
        if (at >= 0) window_gates(a, to, rows, at, r);
    }
    __syncthreads();
}

template <int K>
__global__ void __launch_bounds__(threads)
    chunk_rate_kernel(const __grid_constant__ chunk_rate rate, const __grid_constant__ chunk_task a, chunk_gates to) {
    __shared__ float norms[64], energy[64];
    __shared__ pair_rows rows[threads / 64];
    const int c = static_cast<int>(blockIdx.x) % a.chunks, key = static_cast<int>(blockIdx.x) / a.chunks;
    const int b = key / a.Hq, hq = key % a.Hq, r = static_cast<int>(threadIdx.x) % 64;
    const int pair = static_cast<int>(threadIdx.x) / 64, t = tile_step(a, c, r);
    const bool own = r >= a.halo && t < a.T, dropped = own && rate.task.drop && rate.task.drop[b * rate.task.T + t];
    step_scalars scalars = {};
    if (own && pair < a.group) scalars = scalars_of_step(rate.task, b, hq * a.group + pair, t);
    if (rate.kind == rate_kind::falcon) {
        key_norms<K, threads>(a, b, hq, c, norms);
        __syncthreads();
        if (pair == 0) {
            energy[r] = own ? mean_energy(rate.task, b, t, norms, r) : 0.0f;
            rate.energy[static_cast<int64_t>(blockIdx.x) * 64 + r] = energy[r];
        }
        __syncthreads();
    }
    const int turns = (a.group + threads / 64 - 1) / (threads / 64) * (threads / 64);
    const float E = rate.kind == rate_kind::falcon ? energy[r] : 0.0f;
    for (int h = pair; h < turns; h += threads / 64) {
        const int64_t head = static_cast<int64_t>(b) * a.H + hq * a.group + h;
        if (own && h > pair && h < a.group) scalars = scalars_of_step(rate.task, b, hq * a.group + h, t);
        tile_gates(a, to, gates_of_step(rate, scalars, E), dropped, h < a.group ? (head * a.chunks + c) * 64 : -1,
                   rows[pair], r);
    }
}

} // namespace

namespace fwa {

fwa_status chunk_rate_forward(cudaStream_t stream, const chunk_rate &rate, const chunk_task &task,
                              const chunk_gates &to) {
    const auto blocks = static_cast<unsigned>(task.B * task.Hq * task.chunks);
    if (rate.task.K == 64)
        FWA_LAUNCH(chunk_rate_kernel<64>, blocks, threads, 0, stream, rate, task, to);
    else
        FWA_LAUNCH(chunk_rate_kernel<128>, blocks, threads, 0, stream, rate, task, to);
    return FWA_OK;
}

} // namespace fwa
