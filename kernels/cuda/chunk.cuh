// What the bf16 chunk kernels share: the task, tiles and their loaders, the decay mask of a tile.
//
// A sequence is cut into chunks of C = 64 - halo steps. The tile of a chunk is 64 rows: `halo` = window - 1 steps
// before the chunk, whose pairs its first steps still write, then its own steps. Row r of tile c is step c C - halo +
// r. Gates lie in tile order, prepared by the rate (chunk_rate.cuh), for every value head, [B,H,chunks,64]:
//
//   u      log2 of the decay from the start of the chunk up to and with the step; 0 before, constant behind the end;
//          in equations the natural log: e^u there is power2(u) in the code
//   w      write weight; 0 for rows that are not steps of the chunk
//   pairs  B_t, how many pairs the step writes
//   band   weights of the pair of a row s behind the steps that write it: behind row i in entry i mod 8
//   far    its whole weight, halo steps later; pairs, band and far where halo > 0
//
// Kernels with a window are made for W = 4 and W = 8 (1: without one), a window of at most W pairs, and a halo of W - 1
// rows also where the window is shorter.
//
// States between chunks are stored as S^T in bf16, [B H,chunks,V,K], in blocks (below).
#ifndef FWA_KERNELS_CUDA_CHUNK_CUH
#define FWA_KERNELS_CUDA_CHUNK_CUH

#include "kernels/cuda/chunk_products.cuh"
#include "kernels/cuda/numeric.cuh"

namespace fwa {

constexpr int tile_rows_64 = 64;
constexpr int window_most = 8;

// W of kernels for this halo.
__host__ __device__ constexpr int window_made(int halo) {
    return halo == 0 ? 1 : halo < 4 ? 4 : 8;
}
// A row of a band. Rows of accumulators are eight apart: of a thread's two one at most is in the band of a column, and
// both have the same entry of it. P o D of the band stands alike.
struct alignas(32) band_row {
    float at[window_most];
};

// bf16 tensor [B,T,H,width] with dense, 16-byte aligned rows.
struct chunk_view {
    __nv_bfloat16 *data;
    int64_t batch, time, head;
    __device__ __nv_bfloat16 *row(int64_t b, int64_t t, int64_t h) const {
        return data + b * batch + t * time + h * head;
    }
};

// fp32 state [B,H,K,V]; absent: null.
struct chunk_state {
    float *data;
    int64_t batch, head, row;
    __device__ float *at(int64_t b, int64_t h, int64_t k) const {
        return data + b * batch + h * head + k * row;
    }
};

struct chunk_task {
    int B, T, Hq, H, group, chunks; // group: H / Hq
    int halo, shift;                // shift 1: the pair of step t has key t - 1
    int multiprocessors;            // of the GPU
    int segments, length;           // of the sequence for serial passes (chunk_split.cuh); chunks of one
    chunk_view q, k, v, o, d_o, dq, dk, dv;
    // Pairs of steps before the first key: rows of steps -halo .. 0, [B,Hq,halo+1,K], [B,H,halo+1,V]; null: zeros.
    const __nv_bfloat16 *first_x, *first_v;
    chunk_state S0, S_end, dS_end, dS0;
    const float *u, *w, *pairs, *far; // [B,H,chunks,64]; pairs, far, band where halo > 0
    const band_row *band;             // [B,H,chunks,64]
    uint4 *states, *d_states;         // S before, dS behind every chunk
    // Scratch where there are several segments: the state before (gradient: behind) each, [B,H,segments,K,V], and what
    // is left of a state over it, [B,H,segments].
    float *starts, *decays;
    float *transitions;   // or a matrix, [B,H,segments,K,K]; kept for the backward pass
    float *band_products; // scratch of the backward pass: P o D of the band, [B,Hq,chunks,64,8]; where halo > 0
    // fp32 gradients of rows of a tile that are no rows of dk or dv, or only in part: the first halo + 1, then the last
    // halo. [B,Hq,chunks,2 halo+1,K], [B,H,chunks,2 halo+1,V]; null: nobody asks for them.
    float *edge_x, *edge_v;
};

// Step of row r of tile c.
__device__ inline int tile_step(const chunk_task &a, int c, int r) {
    return c * (tile_rows_64 - a.halo) - a.halo + r;
}

// The place of row r of tile c in edge_x or edge_v; -1: the row is that of step - shift, and whole.
__device__ inline int edge_row(const chunk_task &a, int c, int r, int shift) {
    if (r < a.halo || tile_step(a, c, r) < shift) return r;
    return r >= tile_rows_64 - a.halo && c + 1 < a.chunks ? a.halo + 1 + r - (tile_rows_64 - a.halo) : -1;
}

// 64 rows in device memory: row r stands at row0 + r stride where begin <= r < end; rows before `begin` at head + r
// head_stride, or they are zeros, as are those from `end` on.
struct row_source {
    const __nv_bfloat16 *row0;
    int64_t stride;
    int begin, end;
    const __nv_bfloat16 *head;
    int64_t head_stride;
    const __nv_bfloat16 *any; // some memory, for rows that are not read
};

// Into tiles of 64 columns. Every tile but the first and the last of a sequence takes the short way.
template <int columns, int threads>
__device__ inline void load_tile(__nv_bfloat16 *tile, int thread, const row_source &source) {
    constexpr int pieces = columns / 8, rows = threads / pieces;
    static_assert(rows % 8 == 0, "the swizzle of a thread's rows is the same");
    const int first = thread / pieces, piece = thread % pieces;
    __nv_bfloat16 *to = tile + piece / 8 * (tile_rows_64 * 64) + swizzled<64>(first, piece % 8 * 8);
    const __nv_bfloat16 *from = source.row0 + first * source.stride + piece * 8;
    const int64_t step = rows * source.stride;
    if (source.begin <= 0 && source.end >= tile_rows_64) {
#pragma unroll
        for (int row = 0; row < tile_rows_64; row += rows, from += step) copy_async(to + row * 64, from);
        return;
    }
#pragma unroll 1
    for (int row = first; row < tile_rows_64; row += rows, from += step, to += rows * 64) {
        const bool inside = row >= source.begin && row < source.end, before = row < source.begin && source.head;
        const __nv_bfloat16 *other = before ? source.head + row * source.head_stride + piece * 8 : source.any;
        copy_async(to, inside ? from : other, inside || before);
    }
}

// Rows of q or of the gradient of o (absent: zeros): steps of the tile inside the sequence.
template <int columns, int threads>
__device__ inline void load_steps(__nv_bfloat16 *tile, int thread, const chunk_task &a, const chunk_view &view, int b,
                                  int h, int c) {
    const int first = tile_step(a, c, 0), end = view.data ? a.T - first : 0;
    load_tile<columns, threads>(tile, thread, {view.row(b, first, h), view.time, -first, end, nullptr, 0, a.q.data});
}

template <int K, int threads>
__device__ inline void load_keys(__nv_bfloat16 *tile, int thread, const chunk_task &a, int b, int hq, int c) {
    const int first = tile_step(a, c, 0);
    const __nv_bfloat16 *head =
        a.first_x ? a.first_x + static_cast<int64_t>(b * a.Hq + hq) * ((a.halo + 1) * K) : nullptr;
    load_tile<K, threads>(tile, thread,
                          {a.k.row(b, first - a.shift, hq), a.k.time, a.shift - first, a.T - first, head, K, a.q.data});
}

// 64 columns of v, from column v0.
template <int threads>
__device__ inline void load_values(__nv_bfloat16 *tile, int thread, const chunk_task &a, int V, int v0, int b, int h,
                                   int c) {
    const int first = tile_step(a, c, 0);
    const __nv_bfloat16 *head =
        a.first_v ? a.first_v + static_cast<int64_t>(b * a.H + h) * ((a.halo + 1) * V) + v0 : nullptr;
    load_tile<64, threads>(tile, thread, {a.v.row(b, first, h) + v0, a.v.time, -first, a.T - first, head, V, a.q.data});
}

// The mask of a tile: with which weight pair s stands in the state after step i. `band`, near the diagonal alone, may
// lie in device memory.
template <int W> struct tile_mask {
    const float *u, *w, *far; // [64]
    const band_row *band;     // [64]
    static constexpr int halo = W - 1;

    __device__ float at(int i, int s, float u_i) const {
        if constexpr (W == 1) return s <= i ? w[s] * power2(u_i - u[s]) : 0.0f;
        const int d = i - s;
        float weight = d >= halo ? far[s] * power2(u_i - u[min(s + halo, 63)]) : 0.0f;
        if (d >= 0 && d < halo) weight = band[s].at[i % 8];
        return weight;
    }
};

// Turns a row of a band: to[i] = v[i + by], both mod 8.
__device__ inline void rotate(float (&v)[8], int by) {
#pragma unroll
    for (int bit = 1; bit < 8; bit *= 2) {
        float from[8];
#pragma unroll
        for (int i = 0; i < 8; i++) from[i] = v[i];
#pragma unroll
        for (int i = 0; i < 8; i++) v[i] = by & bit ? from[(i + bit) % 8] : from[i];
    }
}

// A thread's entries of a block of 16 columns of a tile are those of accumulators: entry n is in row i + 8 (n % 4 / 2),
// column s + 8 (n / 4) + n % 2. Rows of a warp start at multiples of 16.
struct mask_rows {
    int i;
    float u[2], first, decay[2]; // u of both rows and of the warp's first one, e^{u - first}
    template <int W> __device__ mask_rows(const tile_mask<W> &mask, int row) : i(row) {
        first = mask.u[row / 16 * 16];
#pragma unroll
        for (int high = 0; high < 2; high++) u[high] = mask.u[row + high * 8], decay[high] = power2(u[high] - first);
    }
};

// Of the block's columns s, s + 1, s + 8, s + 9.
struct mask_columns {
    float w[4], decay[4];
    // The whole weight, and what is left of it at the warp's first row: of blocks that end before it, with a window a
    // block before.
    template <int W> __device__ mask_columns(const tile_mask<W> &mask, const mask_rows &rows, int s) {
#pragma unroll
        for (int c = 0; c < 4; c++) {
            const int at = s + c / 2 * 8 + c % 2;
            w[c] = W > 1 ? mask.far[at] : mask.w[at];
            decay[c] = power2(rows.first - mask.u[W > 1 ? at + mask.halo : at]);
        }
    }
};

// Weights of entries of any block on or below the diagonal. No branches: half of a warp would take each.
template <int W>
__device__ inline void mask_block(float (&weight)[8], const tile_mask<W> &mask, const mask_rows &rows, int s) {
    const int entry = rows.i % 8;
#pragma unroll
    for (int c = 0; c < 4; c++) {
        const int at = s + c / 2 * 8 + c % 2;
        const float u_s = mask.u[W > 1 ? min(at + mask.halo, 63) : at], whole = W > 1 ? mask.far[at] : mask.w[at];
        const float part = W > 1 ? mask.band[at].at[entry] : 0.0f;
#pragma unroll
        for (int high = 0; high < 2; high++) {
            const int d = rows.i + high * 8 - at;
            const float value = W > 1 && d < mask.halo ? part : whole * power2(rows.u[high] - u_s);
            weight[c / 2 * 4 + high * 2 + c % 2] = d >= 0 ? value : 0.0f;
        }
    }
}

// The same of a block before, as a product of a row's and a column's decay.
template <int W>
__device__ inline void far_block(float (&weight)[8], const tile_mask<W> &mask, const mask_rows &rows, int s) {
    const mask_columns columns(mask, rows, s);
#pragma unroll
    for (int n = 0; n < 8; n++)
        weight[n] = rows.decay[n % 4 / 2] * (columns.w[n / 4 * 2 + n % 2] * columns.decay[n / 4 * 2 + n % 2]);
}

// Into the first, the second level of the cache.
__device__ inline void prefetch(const void *p) {
    asm volatile("prefetch.global.L1 [%0];" ::"l"(p));
}
__device__ inline void prefetch_far(const void *p) {
    asm volatile("prefetch.global.L2 [%0];" ::"l"(p));
}

// What leaves a pass, and of how many segments it is asked what they make of an empty state: of the last one where
// something leaves.
__host__ __device__ inline const chunk_state &leaving_state(const chunk_task &a, bool forward) {
    return forward ? a.S_end : a.dS0;
}
__host__ __device__ inline int asked_segments(const chunk_task &a, bool forward) {
    return leaving_state(a, forward).data ? a.segments : a.segments - 1;
}

// What stands in `starts` for a segment.
__device__ inline chunk_state segment_state(const chunk_task &a, int segment, int K, int V) {
    const int64_t size = static_cast<int64_t>(K) * V, head = a.segments * size;
    return {a.starts + segment * size, a.H * head, head, V};
}

// S^T of 64 columns, from and to [K,V].
template <int K>
__device__ inline void get_state(float (&S)[K / 2], const chunk_state &from, int64_t b, int64_t h, int v) {
    const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
    for (int i = 0; i < K / 2; i++) S[i] = 0.0f;
    if (!from.data) return;
#pragma unroll
    for (int i = 0; i < K / 2; i++) S[i] = from.at(b, h, i / 4 * 8 + t * 2 + i % 2)[v + g + i % 4 / 2 * 8];
}
template <int K>
__device__ inline void set_state(const float (&S)[K / 2], const chunk_state &to, int64_t b, int64_t h, int v) {
    const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
    for (int i = 0; i < K / 2; i++) to.at(b, h, i / 4 * 8 + t * 2 + i % 2)[v + g + i % 4 / 2 * 8] = S[i];
}

// First operand of the warp's 16 rows out of accumulators, 16 columns at a time.
template <int n> __device__ inline void fragment(uint32_t (&to)[4], const float (&d)[n], int step) {
    const float *from = d + step * 8;
    to[0] = bf16_pair(from[0], from[1]);
    to[1] = bf16_pair(from[2], from[3]);
    to[2] = bf16_pair(from[4], from[5]);
    to[3] = bf16_pair(from[6], from[7]);
}

// Columns 16 warp .. of a tile, transposed: first operands for a contraction along its rows.
__device__ inline void transposed_fragments(uint32_t (&to)[4][4], const __nv_bfloat16 *tile, int warp) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int step = 0; step < 4; step++)
        load_matrix_transposed(to[step],
                               tile + swizzled<64>(step * 16 + lane / 16 * 8 + lane % 8, warp * 16 + lane / 8 % 2 * 8));
}

__device__ inline uint32_t scaled(uint32_t pair, float2 by) {
    return bf16_pair(__uint_as_float(pair << 16) * by.x, __uint_as_float(pair & 0xffff0000u) * by.y);
}

// Scales the contracted rows.
__device__ inline void scale_fragments(uint32_t (&f)[4][4], const float *by) {
    const int t = threadIdx.x % 4;
#pragma unroll
    for (int step = 0; step < 4; step++) {
        const float2 low = *reinterpret_cast<const float2 *>(by + step * 16 + t * 2);
        const float2 high = *reinterpret_cast<const float2 *>(by + step * 16 + 8 + t * 2);
        f[step][0] = scaled(f[step][0], low);
        f[step][1] = scaled(f[step][1], low);
        f[step][2] = scaled(f[step][2], high);
        f[step][3] = scaled(f[step][3], high);
    }
}

// The warp's 16 columns of `stage` [64,64] to rows of a tensor, whose first column is v.
__device__ inline void copy_columns(const __nv_bfloat16 *stage, const chunk_task &a, const chunk_view &view, int64_t b,
                                    int64_t h, int c, int v, int warp) {
    const int lane = threadIdx.x % 32;
    __syncwarp();
    const int first = lane / 2, column = warp * 16 + lane % 2 * 8, end = a.T - tile_step(a, c, 0);
    __nv_bfloat16 *to = view.row(b, tile_step(a, c, first), h) + v + column;
#pragma unroll
    for (int row = first; row < 64; row += 16, to += 16 * view.time)
        if (row >= a.halo && row < end)
            *reinterpret_cast<uint4 *>(to) = *reinterpret_cast<const uint4 *>(stage + swizzled<64>(row, column));
}
// The warp's 16 columns of V of steps `first` .. of a tile [64,64], transposed, as bf16 into its columns of `stage`.
template <int n> __device__ inline void stage_columns(__nv_bfloat16 *stage, const float (&d)[n], int first, int warp) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int j = 0; j < n / 4; j += 2)
        store_matrix_transposed(
            stage + swizzled<64>(first + j * 8 + lane / 16 * 8 + lane % 8, warp * 16 + lane / 8 % 2 * 8),
            bf16_pair(d[j * 4], d[j * 4 + 1]), bf16_pair(d[j * 4 + 2], d[j * 4 + 3]),
            bf16_pair(d[j * 4 + 4], d[j * 4 + 5]), bf16_pair(d[j * 4 + 6], d[j * 4 + 7]));
}
// Through it to rows.
__device__ inline void write_columns(__nv_bfloat16 *stage, const float (&d)[32], const chunk_task &a,
                                     const chunk_view &view, int64_t b, int64_t h, int c, int v, int warp) {
    stage_columns(stage, d, 0, warp);
    copy_columns(stage, a, view, b, h, c, v, warp);
}

// Matrices that one kernel leaves for another as 8x8 blocks of 128 bytes: a warp writes a block out of its accumulators
// at once, and a row of a block is a piece that is copied into a tile without registers.

// Piece 0 of row v of a matrix [V,columns] of tile `tile`, which is head x chunks + chunk.
template <int columns> __device__ inline uint4 *blocks_at(uint4 *matrices, int64_t tile, int V, int v) {
    return matrices + (tile * V + v) * (columns / 8);
}
template <int columns>
__device__ inline uint4 *blocks_at(uint4 *matrices, const chunk_task &a, int64_t head, int c, int V, int v) {
    return blocks_at<columns>(matrices, head * a.chunks + c, V, v);
}
// The warp's 16 rows, as first operands, 16 columns each from 16 `first` on; to: of the first of these rows.
template <int columns, int steps = columns / 16>
__device__ inline void keep_blocks(uint4 *to, const uint32_t (&d)[steps][4], int first = 0) {
    auto *own = reinterpret_cast<uint32_t *>(to) + first * 64 + threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < steps * 4; i++) own[(i % 2 * (columns / 8) + i / 4 * 2 + i % 4 / 2) * 32] = d[i / 4][i % 4];
}
// Where piece p of a matrix [rows,columns] stands in its tiles.
template <int rows, int columns> __device__ inline int block_place(int p) {
    const int block = p / 8, column = block % (columns / 8) * 8;
    return column / 64 * (rows * 64) + swizzled<64>(block / (columns / 8) * 8 + p % 8, column % 64);
}
// The same for threads that go along a matrix together: from one piece of a thread to its next are `step` elements.
template <int rows, int columns, int threads> struct block_pieces {
    static_assert(threads % columns == 0, "whole rows of blocks a step");
    static constexpr int count = rows * columns / 8 / threads, step = threads / columns * 8 * 64;
    static_assert(count > 0, "every thread has a piece");
    __device__ static int first(int thread) {
        const int block = thread / 8, column = block % (columns / 8) * 8;
        return column / 64 * (rows * 64) + swizzled<64>(block / (columns / 8) * 8 + thread % 8, column % 64);
    }
};
template <int rows, int columns, int threads>
__device__ inline void load_blocks(__nv_bfloat16 *tile, int thread, const uint4 *from) {
    using pieces = block_pieces<rows, columns, threads>;
    __nv_bfloat16 *to = tile + pieces::first(thread);
    from += thread;
#pragma unroll
    for (int i = 0; i < pieces::count; i++) copy_async(to + i * pieces::step, from + i * threads);
}

// bf16 fragments of S^T to device memory, [B H,chunks,V/16,K/16,lane] of 16 bytes, in the order in which an m16n8k16
// product takes its first operand: for kernels that read them into registers.
template <int K> __device__ inline void keep_state(uint4 *to, const uint32_t (&S)[K / 16][4]) {
#pragma unroll
    for (int step = 0; step < K / 16; step++)
        to[step * 32 + threadIdx.x % 32] = make_uint4(S[step][0], S[step][1], S[step][2], S[step][3]);
}

// The same out of accumulators, 16 columns rounded at a time.
template <int K> __device__ inline void keep_state(uint4 *to, const float (&S)[K / 2]) {
#pragma unroll
    for (int step = 0; step < K / 16; step++) {
        uint32_t rows[1][4];
        fragment(rows[0], S, step);
        keep_state<16>(to + step * 32, rows);
    }
}

// Where the fragments of 16 columns v of S^T behind or before chunk c lie.
template <int K>
__device__ inline uint4 *state_at(uint4 *states, const chunk_task &a, int64_t head, int c, int V, int v) {
    return states + ((head * a.chunks + c) * (V / 16) + v / 16) * (K / 16 * 32);
}

} // namespace fwa
#endif
