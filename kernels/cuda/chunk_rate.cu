// Gates of the chunk kernels (chunk_rate.cuh). Two warps a value head, a thread a row: step, decay, and the running sum
// of its logarithm. Before, the threads of a tile take the squares of the lengths of its keys. Heads with keys of their
// own: two tiles a block, two warps each; where many share keys, one tile of eight warps. Cost: the keys are read once;
// nothing but the gates is written.
#include "kernels/cuda/chunk_rate.cuh"

#include "core/shape.h"

namespace {

using namespace fwa;

template <int pairs> constexpr int tiles = pairs == 1 ? 2 : 1; // of a block, `pairs` pairs of warps each
// Blocks a multiprocessor.
template <int pairs, bool norms, int W> constexpr int rate_blocks = pairs > 1 ? 4 : norms ? 5 : W > 1 ? 8 : 16;
constexpr int loads_ahead = 16;

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

// u, w, B_t of row r in shared memory: weights of its pair up to W - 1 steps later; behind the tile the last one stays.
template <int W> __device__ void window_gates(const chunk_gates &to, const pair_rows &rows, int64_t at, int r) {
    float weight[8] = {}, sum = 0.0f;
#pragma unroll
    for (int e = 0; e < W; e++) {
        const int t = min(r + e, 63);
        const float decay = e > 0 ? power2(rows.u[t] - rows.u[max(t - 1, r)]) : 1.0f;
        const float more = rows.pairs[t] > static_cast<float>(e) ? rows.w[t] : 0.0f;
        sum = r + e < 64 ? sum * decay + more : sum;
        weight[e] = sum;
    }
    to.far[at + r] = weight[W - 1];
    to.pairs[at + r] = rows.pairs[r];
    rotate(weight, -r);
    auto *band = reinterpret_cast<float4 *>(to.band + at + r);
    band[0] = make_float4(weight[0], weight[1], weight[2], weight[3]);
    band[1] = make_float4(weight[4], weight[5], weight[6], weight[7]);
}

// Gates of row r of a value head, by the 64 threads of a pair of warps; the whole block comes here. at: of row 0; below
// 0: no head, nothing is written.
template <int W>
__device__ void tile_gates(const chunk_gates &to, const step_gates &g, bool dropped, int64_t at, pair_rows &rows,
                           int r) {
    float sum = warp_prefix_sum(dropped ? log_least : g.log_decay, r % 32);
    if (r == 31) rows.carry = sum;
    __syncthreads();
    if (r >= 32) sum += rows.carry;
    const float u = sum * log2_e;
    if (at >= 0) to.u[at + r] = u, to.w[at + r] = g.w;
    if constexpr (W > 1) {
        rows.u[r] = u, rows.w[r] = g.w, rows.pairs[r] = g.pairs;
        __syncthreads();
        if (at >= 0) window_gates<W>(to, rows, at, r);
    }
    __syncthreads();
}

// with_norms: the rule asks for them.
template <int K, int pairs, bool with_norms, int W>
__global__ void __launch_bounds__(64 * pairs * tiles<pairs>, rate_blocks<pairs, with_norms, W>)
    chunk_rate_kernel(const __grid_constant__ chunk_rate rate, const __grid_constant__ chunk_task a, chunk_gates to) {
    __shared__ float norms[tiles<pairs>][with_norms ? 64 : 1], energy[tiles<pairs>][with_norms ? 64 : 1];
    __shared__ pair_rows rows[tiles<pairs>][pairs];
    const int r = static_cast<int>(threadIdx.x) % 64, pair = static_cast<int>(threadIdx.x) / 64 % pairs;
    const int own_tile = static_cast<int>(threadIdx.x) / (64 * pairs);
    const int tile = static_cast<int>(blockIdx.x) * tiles<pairs> + own_tile;
    const bool there = tile < a.B * a.Hq * a.chunks;
    const int c = tile % a.chunks, key = there ? tile / a.chunks : 0, b = key / a.Hq, hq = key % a.Hq;
    const int t = tile_step(a, c, r);
    const bool own = there && r >= a.halo && t < a.T,
               dropped = own && rate.task.drop && rate.task.drop[static_cast<int64_t>(b) * a.T + t];
    step_scalars scalars = {};
    if (own && pair < a.group) scalars = scalars_of_step(rate.task, b, hq * a.group + pair, t);
    if constexpr (with_norms) {
        key_norms<K, 64 * pairs, loads_ahead>(a, b, hq, c, static_cast<int>(threadIdx.x) % (64 * pairs),
                                              norms[own_tile]);
        __syncthreads();
        if (pair == 0) {
            energy[own_tile][r] = own ? mean_energy(rate.task, b, t, norms[own_tile], r) : 0.0f;
            if (there) rate.energy[static_cast<int64_t>(tile) * 64 + r] = energy[own_tile][r];
        }
        __syncthreads();
    }
    const int turns = (a.group + pairs - 1) / pairs * pairs;
    const float E = with_norms ? energy[own_tile][with_norms ? r : 0] : 0.0f;
    for (int h = pair; h < turns; h += pairs) {
        const int64_t head = static_cast<int64_t>(b) * a.H + hq * a.group + h;
        if (own && h > pair && h < a.group) scalars = scalars_of_step(rate.task, b, hq * a.group + h, t);
        tile_gates<W>(to, gates_of_step(rate, scalars, E), dropped,
                      there && h < a.group ? (head * a.chunks + c) * 64 : -1, rows[own_tile][pair], r);
    }
}

template <int K, int pairs, bool with_norms, int W>
fwa_status launch_rate(cudaStream_t stream, const chunk_rate &rate, const chunk_task &task, const chunk_gates &to) {
    constexpr int threads = 64 * pairs * tiles<pairs>;
    const int64_t blocks = fwa_ceil_div(static_cast<int64_t>(task.B) * task.Hq * task.chunks, tiles<pairs>);
    const auto kernel = chunk_rate_kernel<K, pairs, with_norms, W>;
    FWA_LAUNCH(kernel, static_cast<unsigned>(blocks), threads, 0, stream, rate, task, to);
    return FWA_OK;
}

template <int K, bool with_norms, int W>
fwa_status pick_rate(cudaStream_t stream, const chunk_rate &rate, const chunk_task &task, const chunk_gates &to) {
    return task.group < 4 ? launch_rate<K, 1, with_norms, W>(stream, rate, task, to)
                          : launch_rate<K, 4, with_norms, W>(stream, rate, task, to);
}
template <int W>
fwa_status pick_rate(cudaStream_t stream, const chunk_rate &rate, const chunk_task &task, const chunk_gates &to) {
    if (energy_of(rate.kind) == energy_kind::none) return pick_rate<64, false, W>(stream, rate, task, to); // no keys
    return rate.task.K == 64 ? pick_rate<64, true, W>(stream, rate, task, to)
                             : pick_rate<128, true, W>(stream, rate, task, to);
}

} // namespace

namespace fwa {

fwa_status chunk_rate_forward(cudaStream_t stream, const chunk_rate &rate, const chunk_task &task,
                              const chunk_gates &to) {
    const int W = window_made(task.halo);
    return W == 1   ? pick_rate<1>(stream, rate, task, to)
           : W == 4 ? pick_rate<4>(stream, rate, task, to)
                    : pick_rate<8>(stream, rate, task, to);
}

} // namespace fwa
