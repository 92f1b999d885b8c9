// What chunk-parallel backward kernels share, of a block of 256 threads for a chunk: a thread's place; gradients of
// scalars; accumulators of a warpgroup, rows of the warp times the warpgroup's half of the columns, which go with
// elements of a tile, and out through a tile.
#ifndef FWA_KERNELS_CUDA_CHUNK_ROWS_CUH
#define FWA_KERNELS_CUDA_CHUNK_ROWS_CUH

#include "kernels/cuda/chunk_rate.cuh"

namespace fwa {

// A thread's place: rows g and g + 8 of its warp, columns 2 t, 2 t + 1 of every eight. Made anew in every phase, so
// that the compiler does not keep addresses of one phase in registers for another.
struct place {
    int thread, group, warp, lane, g, t, row;
    __device__ place() {
        asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
        group = thread / 128 % 2, warp = thread / 32 % 4, lane = thread % 32;
        g = lane / 4, t = lane % 4, row = warp * 16 + g;
    }
};

// Gradients of two gates: of w and of the log of the decay.
struct gate_pair {
    float dw[2], dlg[2];
};

// Gradients of the scalars of a value head in row r; returns that of the energy over B_t.
__device__ inline float scalar_grads(const chunk_rate &rate, const chunk_task &a, float dw, float dlg, int b, int hq,
                                     int h, int c, int r) {
    const int t = tile_step(a, c, r);
    if (r < a.halo || t >= a.T) return 0.0f;
    const float E = rate.energy ? rate.energy[((static_cast<int64_t>(b) * a.Hq + hq) * a.chunks + c) * 64 + r] : 0.0f;
    return gates_backward(rate, b, h, t, E, dw, dlg);
}
// In the lane's two rows; adds those of the energies.
__device__ inline void scalar_grads(const chunk_rate &rate, const chunk_task &a, const gate_pair &gates, int b, int hq,
                                    int h, int c, float (&energy)[2]) {
    const place at;
#pragma unroll
    for (int e = 0; e < 2; e++)
        energy[e] += scalar_grads(rate, a, gates.dw[e], gates.dlg[e], b, hq, h, c, at.lane * 2 + e);
}

// Where this warpgroup's half of the columns of a tile [rows,columns] starts.
template <int columns> __device__ inline int own_columns(int group, int rows = 64) {
    return columns == 128 ? group * rows * 64 : group * 32;
}

// The column of the tile whose sum a thread keeps, of its warpgroup's 32.
__device__ inline int kept_column() {
    const place at;
    return at.group * 32 + at.g / 2 * 8 + at.t * 2 + at.g % 2;
}

// Sums over the warp's rows of a thread's columns [block of 16][accumulator column]; returns that of kept_column().
__device__ inline float spread_columns(const float (&column)[2][4]) {
    const place at;
    float four[4], two[2];
#pragma unroll
    for (int n = 0; n < 4; n++) {
        const bool up = at.g & 4;
        four[n] = (up ? column[1][n] : column[0][n]) + __shfl_xor_sync(everyone, up ? column[0][n] : column[1][n], 16);
    }
#pragma unroll
    for (int n = 0; n < 2; n++) {
        const bool up = at.g & 2;
        two[n] = (up ? four[n + 2] : four[n]) + __shfl_xor_sync(everyone, up ? four[n] : four[n + 2], 8);
    }
    const bool up = at.g & 1;
    return (up ? two[1] : two[0]) + __shfl_xor_sync(everyone, up ? two[0] : two[1], 4);
}

__device__ inline float dot_pair(uint32_t a, uint32_t b) {
    return __uint_as_float(a << 16) * __uint_as_float(b << 16) +
           __uint_as_float(a & 0xffff0000u) * __uint_as_float(b & 0xffff0000u);
}

// What a tile [64,columns] has where a thread's accumulators are: columns 8 j + 2 t, + 1 of its rows g and g + 8, which
// are swizzled alike. half: where this warpgroup's columns start.
template <int columns> struct own_pairs {
    const __nv_bfloat16 *tile;
    int base, first;
    __device__ explicit own_pairs(const __nv_bfloat16 *half) {
        const place at;
        base = columns == 128 ? 0 : at.group * 32;
        tile = half - base, first = swizzled<64>(at.row, at.t * 2);
    }
    __device__ float4 get(int j) const {
        const __nv_bfloat16 *from = tile + (first ^ (base + j * 8));
        const uint32_t low = *reinterpret_cast<const uint32_t *>(from);
        const uint32_t high = *reinterpret_cast<const uint32_t *>(from + 8 * 64);
        return make_float4(__uint_as_float(low << 16), __uint_as_float(low & 0xffff0000u), __uint_as_float(high << 16),
                           __uint_as_float(high & 0xffff0000u));
    }
};

// d [64,columns/2] times `tile` elementwise, summed over the columns: rows g and g + 8.
template <int columns> __device__ inline float2 row_dots(const float (&d)[columns / 4], const __nv_bfloat16 *half) {
    const own_pairs<columns> tile(half);
    float low = 0.0f, high = 0.0f;
#pragma unroll
    for (int j = 0; j < columns / 16; j++) {
        const float4 x = tile.get(j);
        low += d[j * 4] * x.x + d[j * 4 + 1] * x.y;
        high += d[j * 4 + 2] * x.z + d[j * 4 + 3] * x.w;
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
    const __nv_bfloat16 *from = half - base + swizzled<64>(first, base + piece * 8);
    __nv_bfloat16 *out = to + first * stride + at.group * (columns / 2) + piece * 8;
    __syncwarp();
#pragma unroll
    for (int i = 0; i < 16 / rows; i++, out += rows * stride) {
        const int row = first + i * rows;
        const __nv_bfloat16 *piece_at =
            rows % 8 == 0 ? from + i * rows * 64 : half - base + swizzled<64>(row, base + piece * 8);
        if (row >= begin && row < end) *reinterpret_cast<uint4 *>(out) = *reinterpret_cast<const uint4 *>(piece_at);
    }
}

// d += diag(by) times `tile`: rows of the warp, columns of the warpgroup.
template <int columns>
__device__ inline void add_rows(float (&d)[columns / 4], const __nv_bfloat16 *half, const float *by) {
    const place at;
    const own_pairs<columns> tile(half);
    const float low = by[at.row], high = by[at.row + 8];
#pragma unroll
    for (int j = 0; j < columns / 16; j++) {
        const float4 x = tile.get(j);
        d[j * 4] += low * x.x, d[j * 4 + 1] += low * x.y, d[j * 4 + 2] += high * x.z, d[j * 4 + 3] += high * x.w;
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

// G = X X^T of a tile [64,K] of keys, one warpgroup.
template <int K> __device__ inline void gram(float (&G)[32], const __nv_bfloat16 *tile) {
    const operand_tile x(tile);
    tile_product<K>(G, x, x);
}

} // namespace fwa
#endif
