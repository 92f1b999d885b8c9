// What the chunk-parallel gradient kernels of the delta and the window core share: blocks of 256 threads with two
// masked tiles, of reads and of pairs of keys, and the sums over their rows and columns from which those of gates come.
#ifndef FWA_KERNELS_CUDA_CHUNK_GRADS_CUH
#define FWA_KERNELS_CUDA_CHUNK_GRADS_CUH

#include "kernels/cuda/chunk_shared.cuh"

namespace fwa {

constexpr int grads_threads = 256;

// Both tiles [64,64] of the chunk, packed, and their sums over the columns of a thread's two rows and over the rows of
// the column it keeps (column_sum).
struct masked_tiles {
    uint32_t reads[8], keys[8];
    float row[2], residual[2], column;
};

// Dots of rows, in the two rows of a thread.
struct row_sums {
    float2 history, sight, leave;
};

// Parts of sums over rows and columns, by warpgroup, warp or all warps, and what the block is for.
struct grads_parts {
    float row[2][64], residual[2][64], history[2][64], sight[2][64], leave[2][64], column[4][64], state[8];
    float pull[64];
    tile_of tile;
};

// Packed rows of the warp, 32 columns of the warpgroup, into a tile [64,64].
__device__ inline void place_masked(__nv_bfloat16 *tile, const uint32_t (&d)[8]) {
    const place at;
#pragma unroll
    for (int j = 0; j < 2; j++)
        store_matrix(tile + swizzled<64>(at.warp * 16 + at.lane % 16, (at.group * 2 + j) * 16 + at.lane / 16 * 8),
                     d[j * 4], d[j * 4 + 1], d[j * 4 + 2], d[j * 4 + 3]);
}

// The sum over the warp's rows of the column that this thread keeps.
__device__ inline float column_sum(float (&column)[8]) {
    const place at;
    float kept = 0.0f;
#pragma unroll
    for (int n = 0; n < 8; n++) {
        for (int offset = 4; offset < 32; offset *= 2) column[n] += __shfl_xor_sync(everyone, column[n], offset);
        if (at.g == n) kept = column[n];
    }
    return kept;
}

// Leaves a thread's sums in `parts`; state: the warp's part of <S, dS'>.
__device__ inline void place_sums(grads_parts &parts, masked_tiles &masked, const row_sums &sums, float state) {
    const place at;
#pragma unroll
    for (int e = 0; e < 2; e++)
        masked.row[e] = quad_sum(masked.row[e]), masked.residual[e] = quad_sum(masked.residual[e]);
    if (at.t == 0) {
        const int low = at.row, high = at.row + 8;
        parts.row[at.group][low] = masked.row[0], parts.row[at.group][high] = masked.row[1];
        parts.residual[at.group][low] = masked.residual[0], parts.residual[at.group][high] = masked.residual[1];
        parts.history[at.group][low] = sums.history.x, parts.history[at.group][high] = sums.history.y;
        parts.sight[at.group][low] = sums.sight.x, parts.sight[at.group][high] = sums.sight.y;
        parts.leave[at.group][low] = sums.leave.x, parts.leave[at.group][high] = sums.leave.y;
    }
    parts.column[at.warp][kept_column()] = masked.column;
    if (at.lane == 0) parts.state[at.thread / 32] = state;
}

// Puts dS' in the place of S, some pieces at a time; returns the warp's part of <S, dS'>.
template <int K, int V> __device__ inline float replace_state(__nv_bfloat16 *tile, const uint4 *from) {
    using pieces = block_pieces<V, K, grads_threads>;
    constexpr int batch = pieces::count < 4 ? pieces::count : 4;
    const place at;
    __nv_bfloat16 *own = tile + pieces::first(at.thread);
    float sum = 0.0f;
    from += at.thread;
#pragma unroll
    for (int i = 0; i < pieces::count; i += batch) {
        uint4 behind[batch];
#pragma unroll
        for (int e = 0; e < batch; e++) behind[e] = from[(i + e) * grads_threads];
#pragma unroll
        for (int e = 0; e < batch; e++) {
            auto *to = reinterpret_cast<uint4 *>(own + (i + e) * pieces::step);
            const uint4 S = *to;
            sum += (dot_pair(S.x, behind[e].x) + dot_pair(S.y, behind[e].y)) +
                   (dot_pair(S.z, behind[e].z) + dot_pair(S.w, behind[e].w));
            *to = behind[e];
        }
    }
    return warp_sum(sum);
}

} // namespace fwa
#endif
