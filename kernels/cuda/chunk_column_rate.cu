// What the columns of a step share in the chunk kernels of the column core (chunk_column.cuh): energy, ridge and
// denominator, equations (4.4), (4.16). A block takes a tile of a query/key head: all threads take the squares of the
// lengths of its keys, then one a row and value head. Cost: the keys are read once.
#include "kernels/cuda/chunk_column.cuh"

namespace {

using namespace fwa;

constexpr int threads = 256;

// Documents that start in the chunk up to and with step t.
__device__ int started(const mixer_task &a, int64_t b, int64_t first, int64_t t) {
    int count = 0;
    if (a.drop)
        for (int64_t i = first; i <= t && i < a.T; i++) count += a.drop[b * a.T + i];
    return count;
}

template <int K>
__global__ void __launch_bounds__(threads)
    column_rate_kernel(const __grid_constant__ column_task a, const __grid_constant__ chunk_rate rate) {
    __shared__ float norms[64];
    const int c = static_cast<int>(blockIdx.x) % a.chunks, key = static_cast<int>(blockIdx.x) / a.chunks;
    const int b = key / a.Hq, hq = key % a.Hq, r = static_cast<int>(threadIdx.x) % 64, t = tile_step(a, c, r);
    key_norms<K, threads>(a, b, hq, c, static_cast<int>(threadIdx.x), norms);
    __syncthreads();
    const float segment = static_cast<float>(started(rate.task, b, t - r, t));
    for (int i = static_cast<int>(threadIdx.x) / 64; i < a.group; i += threads / 64) {
        const int h = hq * a.group + i;
        float4 token = make_float4(0.0f, 0.0f, segment, 0.0f);
        if (t < a.T) {
            const step_scalars s = scalars_of_step(rate.task, b, h, t);
            if (s.pairs > 0) token.w = norms[r];
            const step_gates g = gates_of_step(rate, s, token.w);
            if (g.writes) token.x = 1.0f / g.denominator, token.y = g.lambda;
        }
        a.tokens[((static_cast<int64_t>(b) * a.H + h) * a.chunks + c) * 64 + r] = token;
    }
}

} // namespace

namespace fwa {

fwa_status chunk_column_rate(cudaStream_t stream, const column_task &task, const chunk_rate &rate) {
    const auto blocks = static_cast<unsigned>(task.B * task.Hq * task.chunks);
    if (rate.task.K == 64)
        FWA_LAUNCH(column_rate_kernel<64>, blocks, threads, 0, stream, task, rate);
    else
        FWA_LAUNCH(column_rate_kernel<128>, blocks, threads, 0, stream, task, rate);
    return FWA_OK;
}

} // namespace fwa
