// Accumulators of a warpgroup in the backward pass of the additive core (chunk_additive_backward.cu): rows of the warp
// times the warpgroup's half of the columns, which go with elements of a tile, and out through a tile.
#ifndef FWA_KERNELS_CUDA_CHUNK_ADDITIVE_ROWS_CUH
#define FWA_KERNELS_CUDA_CHUNK_ADDITIVE_ROWS_CUH

#include "kernels/cuda/chunk_additive_gates.cuh"

namespace fwa {

__device__ inline float quad_sum(float x) {
    x += __shfl_xor_sync(everyone, x, 1);
    return x + __shfl_xor_sync(everyone, x, 2);
}

// d [64,columns/2] times `tile` elementwise, summed over the columns: rows g and g + 8.
template <int columns> __device__ inline float2 row_dots(const float (&d)[columns / 4], const __nv_bfloat16 *half) {
    const place at;
    float low = 0.0f, high = 0.0f;
#pragma unroll
    for (int j = 0; j < columns / 16; j++) {
        const int base = columns == 128 ? 0 : at.group * 32;
        const __nv_bfloat16 *tile = half - base;
        const auto a = __bfloat1622float2(
            *reinterpret_cast<const __nv_bfloat162 *>(tile + swizzled<64>(at.row, base + j * 8 + at.t * 2)));
        const auto b = __bfloat1622float2(
            *reinterpret_cast<const __nv_bfloat162 *>(tile + swizzled<64>(at.row + 8, base + j * 8 + at.t * 2)));
        low += d[j * 4] * a.x + d[j * 4 + 1] * a.y;
        high += d[j * 4 + 2] * b.x + d[j * 4 + 3] * b.y;
    }
    return make_float2(quad_sum(low), quad_sum(high));
}

template <int n> __device__ inline void scale_rows(float (&d)[n], float low, float high) {
#pragma unroll
    for (int i = 0; i < n; i += 4) d[i] *= low, d[i + 1] *= low, d[i + 2] *= high, d[i + 3] *= high;
}

// Rows of the warp, columns of the warpgroup, as bf16 into a tile [64,columns].
template <int columns> __device__ inline void place_rows(__nv_bfloat16 *half, const uint32_t (&d)[columns / 8]) {
    const place at;
    const int base = columns == 128 ? 0 : at.group * 32;
#pragma unroll
    for (int j = 0; j < columns / 16; j += 2)
        store_matrix(half - base + swizzled<64>(at.warp * 16 + at.lane % 16, base + j * 8 + at.lane / 16 * 8), d[j * 2],
                     d[j * 2 + 1], d[j * 2 + 2], d[j * 2 + 3]);
}
template <int n> __device__ inline void pack_pairs(uint32_t (&to)[n], const float (&from)[2 * n]) {
#pragma unroll
    for (int i = 0; i < n; i++) to[i] = bf16_pair(from[2 * i], from[2 * i + 1]);
}

// The same rows to device memory, those from `begin` to before `end`; to: row 0, `stride` elements a row.
template <int columns>
__device__ inline void copy_rows(const __nv_bfloat16 *half, __nv_bfloat16 *to, int64_t stride, int begin, int end) {
    constexpr int pieces = columns / 16, rows = 32 / pieces;
    const place at;
    const int base = columns == 128 ? 0 : at.group * 32, piece = at.lane % pieces,
              first = at.warp * 16 + at.lane / pieces;
    __nv_bfloat16 *out = to + first * stride + at.group * (columns / 2) + piece * 8;
    __syncwarp();
#pragma unroll
    for (int row = first; row < at.warp * 16 + 16; row += rows, out += rows * stride)
        if (row >= begin && row < end)
            *reinterpret_cast<uint4 *>(out) =
                *reinterpret_cast<const uint4 *>(half - base + swizzled<64>(row, base + piece * 8));
}

// d += diag(by) times `tile`: rows of the warp, columns of the warpgroup.
template <int columns>
__device__ inline void add_rows(float (&d)[columns / 4], const __nv_bfloat16 *half, const float *by) {
    const place at;
    const int base = columns == 128 ? 0 : at.group * 32;
    const float low = by[at.row], high = by[at.row + 8];
#pragma unroll
    for (int j = 0; j < columns / 16; j++) {
        const auto x = __bfloat1622float2(
            *reinterpret_cast<const __nv_bfloat162 *>(half - base + swizzled<64>(at.row, base + j * 8 + at.t * 2)));
        const auto y = __bfloat1622float2(
            *reinterpret_cast<const __nv_bfloat162 *>(half - base + swizzled<64>(at.row + 8, base + j * 8 + at.t * 2)));
        d[j * 4] += low * x.x, d[j * 4 + 1] += low * x.y, d[j * 4 + 2] += high * y.x, d[j * 4 + 3] += high * y.y;
    }
    __syncwarp();
}

// The thread's rows among those that are kept in fp32, [2 halo+1,columns] of this tile.
template <int columns>
__device__ inline void keep_edges(float *to, const float (&d)[columns / 4], const chunk_task &a, int c, int shift) {
    const place at;
    if (!to) return;
#pragma unroll
    for (int high = 0; high < 2; high++) {
        const int row = edge_row(a, c, at.row + high * 8, shift);
        if (row < 0) continue;
        float *out = to + row * columns + at.group * (columns / 2) + at.t * 2;
#pragma unroll
        for (int j = 0; j < columns / 16; j++)
            *reinterpret_cast<float2 *>(out + j * 8) = make_float2(d[j * 4 + high * 2], d[j * 4 + high * 2 + 1]);
    }
}

// Rows that are whole, as bf16 through their tile.
template <int columns>
__device__ inline void write_rows(__nv_bfloat16 *half, const float (&d)[columns / 4], float *edges, const chunk_task &a,
                                  const chunk_view &to, int b, int h, int c, int shift) {
    uint32_t pairs[columns / 8];
    keep_edges<columns>(edges, d, a, c, shift);
    pack_pairs(pairs, d);
    place_rows<columns>(half, pairs);
    const int first = tile_step(a, c, 0) - shift, whole = c + 1 < a.chunks ? tile_rows_64 - a.halo : tile_rows_64;
    if (to.data)
        copy_rows<columns>(half, to.row(b, first, h), to.time, max(a.halo, -first), min(whole, a.T - first - shift));
}

} // namespace fwa
#endif
