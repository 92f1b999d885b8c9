// Gates of the chunk kernels (chunk_rate.cuh). A block takes a tile of a query/key head: warps take the squares of the
// lengths of its keys, then a warp a value head, a lane two rows: step, decay, and the running sum of its logarithm.
// Cost: the keys are read once; nothing but the gates is written.
#include "kernels/cuda/chunk_rate.cuh"

namespace {

using namespace fwa;

constexpr int threads = 256;
constexpr float log2_e = 1.4426950408889634f;

// |x_r|^2 of the rows of a tile.
template <int K> __device__ void key_norms(const chunk_task &a, int64_t b, int64_t hq, int c, float *norms) {
    constexpr int lanes = K / 8, rows = threads / lanes;
    const int lane = static_cast<int>(threadIdx.x) % lanes, first = static_cast<int>(threadIdx.x) / lanes;
    const int t0 = tile_step(a, c, 0), begin = a.shift - t0, end = a.T - t0;
    const __nv_bfloat16 *from = a.k.row(b, t0 - a.shift + first, hq) + lane * 8;
    const __nv_bfloat16 *head = a.first_x ? a.first_x + (b * a.Hq + hq) * ((a.halo + 1) * K) + lane * 8 : nullptr;
#pragma unroll
    for (int row = first; row < 64; row += rows, from += rows * a.k.time) {
        const __nv_bfloat16 *at = row >= begin ? from : head ? head + row * K : nullptr;
        float sum = 0.0f;
        if (at && row < end) {
            const pack<__nv_bfloat16, 8> x = load<8>(at);
#pragma unroll
            for (int e = 0; e < 8; e++) sum += to_float(x.at[e]) * to_float(x.at[e]);
        }
        sum = lanes_sum(sum, lanes);
        if (lane == 0) norms[row] = sum;
    }
}

// Mean of the norms of the window of row r.
__device__ float mean_energy(const mixer_task &a, int64_t b, int64_t t, const float *norms, int r) {
    const int pairs = window_pairs(a, b, t);
    float sum = 0.0f;
    for (int e = 0; e < pairs; e++) sum += norms[r - e];
    return pairs > 0 ? sum / static_cast<float>(pairs) : 0.0f;
}

// Gates of rows 2 lane and 2 lane + 1 of a value head.
__device__ void tile_gates(const chunk_rate &rate, const chunk_task &a, const chunk_gates &to, const float *energy,
                           int64_t b, int64_t h, int c, float *u, float *w, float *pairs) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    float log_decay[2];
#pragma unroll
    for (int e = 0; e < 2; e++) {
        const int r = lane * 2 + e, t = tile_step(a, c, r);
        const bool own = r >= a.halo && t < a.T;
        const step_gates g = own ? gates_of_step(rate, b, h, t, energy[r]) : step_gates{};
        const bool dropped = own && rate.task.drop && rate.task.drop[b * a.T + t];
        log_decay[e] = dropped ? log_least : g.log_decay;
        w[r] = g.w;
        pairs[r] = g.pairs;
    }
    float sum = log_decay[0] + log_decay[1];
    for (int reach = 1; reach < 32; reach *= 2) {
        const float other = __shfl_up_sync(0xffffffffu, sum, reach);
        if (lane >= reach) sum += other;
    }
    u[lane * 2] = (sum - log_decay[1]) * log2_e;
    u[lane * 2 + 1] = sum * log2_e;
    __syncwarp();
    const int64_t at = ((b * a.H + h) * a.chunks + c) * 64;
    for (int r = lane; r < 64; r += 32) {
        to.u[at + r] = u[r];
        to.w[at + r] = w[r];
        if (a.halo == 0) continue;
        float weight[halo_most + 1] = {}, sum = 0.0f; // 0, 1, 2, 3 steps later
        for (int e = 0; e <= a.halo && r + e < 64; e++) {
            if (e > 0) sum *= power2(u[r + e] - u[r + e - 1]);
            if (pairs[r + e] > static_cast<float>(e)) sum += w[r + e];
            weight[e] = sum;
        }
        to.far[at + r] = weight[a.halo];
        to.band[at + r] = make_float2(weight[1], weight[2]);
        to.pairs[at + r] = pairs[r];
    }
    __syncwarp();
}

template <int K>
__global__ void __launch_bounds__(threads)
    chunk_rate_kernel(const __grid_constant__ chunk_rate rate, const __grid_constant__ chunk_task a, chunk_gates to) {
    __shared__ float norms[64], energy[64], rows[threads / 32][3][64];
    const int c = static_cast<int>(blockIdx.x) % a.chunks, key = static_cast<int>(blockIdx.x) / a.chunks;
    const int b = key / a.Hq, hq = key % a.Hq, r = static_cast<int>(threadIdx.x), warp = r / 32;
    if (rate.kind == rate_kind::falcon) {
        key_norms<K>(a, b, hq, c, norms);
        __syncthreads();
        if (r < 64) {
            const int t = tile_step(a, c, r);
            energy[r] = r >= a.halo && t < a.T ? mean_energy(rate.task, b, t, norms, r) : 0.0f;
            rate.energy[static_cast<int64_t>(blockIdx.x) * 64 + r] = energy[r];
        }
        __syncthreads();
    }
    for (int h = hq * a.group + warp; h < (hq + 1) * a.group; h += threads / 32)
        tile_gates(rate, a, to, energy, b, h, c, rows[warp][0], rows[warp][1], rows[warp][2]);
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
