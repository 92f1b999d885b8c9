// Adds the parts of value heads that share a query/key head (chunk_shared.cuh). A block has a row of a tile, a thread a
// column.
#include "kernels/cuda/chunk_shared.cuh"

namespace {

using namespace fwa;

__global__ void add_parts_kernel(const __grid_constant__ chunk_task a, const float *dq_parts, const float *dx_parts,
                                 int K) {
    const int r = static_cast<int>(blockIdx.x) % 64, tile = static_cast<int>(blockIdx.x) / 64, c = tile % a.chunks;
    const int key = tile / a.chunks, b = key / a.Hq, hq = key % a.Hq, t = tile_step(a, c, r);
    const int k = static_cast<int>(threadIdx.x), edge = edge_row(a, c, r, a.shift);
    float dq = 0.0f, dx = 0.0f;
    for (int h = 0; h < a.group; h++) {
        const int64_t head = static_cast<int64_t>(b) * a.H + hq * a.group + h;
        const int64_t at = ((head * a.chunks + c) * 64 + r) * K + k;
        dq += dq_parts[at], dx += dx_parts[at];
    }
    if (edge >= 0 && a.edge_x) a.edge_x[(static_cast<int64_t>(tile) * (2 * a.halo + 1) + edge) * K + k] = dx;
    if (t >= a.T) return;
    if (a.dq.data && r >= a.halo) a.dq.row(b, t, hq)[k] = __float2bfloat16(dq);
    if (!a.dk.data) return;
    if (edge < 0) a.dk.row(b, t - a.shift, hq)[k] = __float2bfloat16(dx);
    if (a.shift && t == a.T - 1) a.dk.row(b, t, hq)[k] = __float2bfloat16(0.0f);
}

} // namespace

namespace fwa {

fwa_status chunk_add_parts(cudaStream_t stream, const chunk_task &task, const float *dq_parts, const float *dx_parts,
                           int K) {
    FWA_LAUNCH(add_parts_kernel, static_cast<unsigned>(task.B * task.Hq * task.chunks * 64), K, 0, stream, task,
               dq_parts, dx_parts, K);
    return FWA_OK;
}

} // namespace fwa
