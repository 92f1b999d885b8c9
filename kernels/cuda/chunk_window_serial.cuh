// What the two serial kernels of the window core share (chunk_window_forward.cu, chunk_window_scan.cu): a warpgroup
// holds 64 columns of V, transposed, and goes from chunk to chunk. In a chunk a thread takes a column through its
// steps, 16 at a time; what they get from rows of earlier blocks all threads sum before. Three blocks a multiprocessor
// where W = 4: 75 KB each.
#ifndef FWA_KERNELS_CUDA_CHUNK_WINDOW_SERIAL_CUH
#define FWA_KERNELS_CUDA_CHUNK_WINDOW_SERIAL_CUH

#include "kernels/cuda/chunk_delta_serial.cuh"
#include "kernels/cuda/chunk_window.cuh"

namespace fwa {

constexpr int window_threads = 128;

// What the gates of a step do: weights of the members; what is left of the state, of what its residuals see since the
// step before, of the state since they saw it.
template <int W> struct __align__(16) window_step {
    float weight[W], keep, sight, rest, lost;
    __device__ float4 decays() const { // keep, sight, rest, lost
        return *reinterpret_cast<const float4 *>(&keep);
    }
};

// Weights with which rows that are complete enter a sum of a later step, steps and rows in the order in which they are
// taken. Of step 16 b + k, rows of the same block in inner[16 b + k]. What the steps of block b take of rows of block c
// before it is a first operand [16,16] in two parts, pairs of rows of one tile together: far[part][b (b - 1) / 2 + c].
struct window_weights {
    uint32_t far[2][6][16 * 8];
    float inner[64][16];

    // Place of pair p of a row: pieces of eight rows of an operand are in different banks.
    __device__ static int far_place(int row, int pair) {
        return row * 8 + (pair ^ (row & 4));
    }
    __device__ void set_far(int b, int c, int row, int pair, float first, float second) {
        const int block = b * (b - 1) / 2 + c, to = far_place(row, pair);
        split_pair(far[0][block][to], far[1][block][to], first, second);
    }
};

template <int K, int W> struct window_memory {
    __nv_bfloat16 q[64 * K], x[64 * K];
    __nv_bfloat16 rows[64 * 64]; // of v, then what reads take of pairs that are not complete; of the gradient of o
    // column_place; what a step starts from, fp32; then of rows that are complete, 2 r and 2 r + 1 as a pair in two
    // parts
    uint32_t columns[64 * 64];
    union {
        struct {
            window_weights weights;
            window_step<W> steps[64];
        };
        __nv_bfloat16 p[2][64 * 64]; // masked reads: high, low; then rows on their way out
    };
    alignas(16) float gram[64][W];
    float reads[64][W];
    float u[64 + W], seen[64]; // u stays behind the end
    int place[6];              // head, b, h, hq, v of the block; its first thread that takes steps
};

// Place of row l, column v: four rows of eight columns, 2 t, are in different banks.
__device__ inline int column_place(int l, int v) {
    return l * 64 + (v ^ (l >> 1 & 3) << 3);
}

template <int K, int W> struct window_block : segment_place {
    static constexpr int D = W - 1;
    const window_task &a;
    window_memory<K, W> &m;
    int hq, thread, warp;

    __device__ window_block(const window_task &task, window_memory<K, W> &memory, const serial_pass &pass)
        : segment_place(task, pass), a(task), m(memory) {
        hq = h / a.group, thread = static_cast<int>(threadIdx.x), warp = thread / 32;
        if (thread > 0) return;
        m.place[0] = head, m.place[1] = b, m.place[2] = h, m.place[3] = hq, m.place[4] = v;
        m.place[5] = static_cast<int>(blockIdx.x) / a.multiprocessors % 2 * 64;
    }

    // Row l + more of a column, l a multiple of 8, more from 0 on and known to the compiler: one instruction for the
    // place. Of `columns` with shift 1 and mask 3, of `rows` with 0 and 7.
    template <typename T, int shift, int mask> __device__ static T &element(T *tile, int l, int column, int more) {
        constexpr int size = sizeof(T);
        const int first = (l * 64 + column) * size;
        return *reinterpret_cast<T *>(reinterpret_cast<char *>(tile) + (first ^ (more >> shift & mask) * 8 * size) +
                                      more * 64 * size);
    }
    // What step l + more, or in the scan the oldest member of one, starts from.
    __device__ float side(int l, int column, int more) const {
        return __uint_as_float(element<uint32_t, 1, 3>(m.columns, l, column, more));
    }
    __device__ __nv_bfloat16 &value(int l, int column, int more) const {
        return element<__nv_bfloat16, 0, 7>(m.rows, l, column, more);
    }

    // Keeps what one phase of the loop needs from being prepared, and held in registers, in front of it.
    __device__ void renew() {
        asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread)::"memory");
        head = m.place[0], b = m.place[1], h = m.place[2], hq = m.place[3], v = m.place[4];
        warp = thread / 32;
    }

    // Row 0 of a chunk's tile of a matrix [64,V], the first column of this block.
    __device__ int64_t rows_at(int c) const {
        return (static_cast<int64_t>(head) * a.chunks + c) * 64 * V + v;
    }

    __device__ void load_keys_queries(int c) const {
        load_keys<K, window_threads>(m.x, thread, a, b, hq, c);
        load_steps<K, window_threads>(m.q, thread, a, a.q, b, hq, c);
    }
    // x_r . x_{r-p} of a tile of keys, row r.
    __device__ const float *band_at(int c, int r) const {
        return a.gram + ((static_cast<int64_t>(b) * a.Hq + hq) * a.chunks + c) * (64 * W) + r * W;
    }
    // Returns w and B_t of the thread's row. G of pairs lies with the later row, or with the earlier one.
    template <bool earlier> __device__ float2 write_gates(int c) const {
        const int64_t at = (static_cast<int64_t>(head) * a.chunks + c) * 64 + thread;
        if (thread >= 64 && thread < 64 + W) m.u[thread] = a.u[at - thread + 63];
        if (thread >= 64) return make_float2(0.0f, 0.0f);
        float band[W];
#pragma unroll
        for (int p = 0; p < W; p += 4)
            *reinterpret_cast<float4 *>(band + p) = *reinterpret_cast<const float4 *>(band_at(c, thread) + p);
        m.u[thread] = a.u[at], m.seen[thread] = a.seen[at];
#pragma unroll
        for (int p = 0; p < W; p++)
            if (!earlier || thread >= p) m.gram[earlier ? thread - p : thread][p] = band[p];
        return make_float2(a.w[at], a.pairs[at]);
    }

    // Rows of chunk c into the second level of the cache: `view` has the columns of this block.
    __device__ void prefetch_chunk(const chunk_view &view, int c) const {
        const int row = thread / 2, t = tile_step(a, c, row), at = thread % 2 * 64;
        if (thread < 8) {
            const int64_t gates = (static_cast<int64_t>(head) * a.chunks + c) * 64 + thread % 2 * 32;
            prefetch((thread < 2 ? a.u : thread < 4 ? a.w : thread < 6 ? a.seen : a.pairs) + gates);
        } else if (thread < 8 + 2 * W) {
            prefetch(band_at(c, 0) + (thread - 8) * 32);
        }
        if (t < a.shift || t >= a.T) return;
        if (K == 128 || at == 0) {
            prefetch_far(a.q.row(b, t, hq) + at);
            prefetch_far(a.k.row(b, t - a.shift, hq) + at);
        }
        if (at == 0 && view.data) prefetch_far(view.row(b, t, h) + v);
    }

    // What nothing writes later on: pairs before the tile.
    __device__ void clear_edges() const {
        for (int n = thread; n < D * W; n += window_threads) m.reads[n / W][n % W] = 0.0f;
        __syncthreads();
    }

    // by: as write_gates.
    __device__ void place_steps(float2 by) const {
        if (thread >= 64) return;
        const float u = m.u[thread], seen = m.seen[thread], u_before = thread > 0 ? m.u[thread - 1] : 0.0f;
        const float keep = power2(u - u_before);
        auto &to = m.steps[thread];
#pragma unroll
        for (int j = 0; j < W; j++) to.weight[j] = static_cast<float>(D - j) < by.y ? by.x : 0.0f;
        to.keep = keep, to.sight = power2(seen - u_before), to.rest = power2(u - seen), to.lost = 1.0f - keep;
    }

    // Rows 2 r = l and l + 1 of a column, complete; l: from a multiple of 8 on.
    __device__ void put_pair(int l, int column, int more, float first, float second) const {
        uint32_t *to = &element<uint32_t, 1, 3>(m.columns, l, column, more);
        split_pair(to[0], to[64], first, second);
    }

    // Takes from what the steps of a block start from what earlier blocks give: a warp has 16 columns. Steps go from
    // the first to the last; or back, blocks of rows then from the last.
    template <bool back> __device__ void far_sums(int block) const {
        const int lane = thread % 32, g = lane / 4, t = lane % 4, own = warp * 16;
        float sum[2][4] = {};
        const int row = window_weights::far_place(lane % 16, lane / 16 * 4);
#pragma unroll 1
        for (int c = 0; c < block; c++) {
            const int at = block * (block - 1) / 2 + c, first = (back ? 48 - c * 16 : c * 16) + t * 2;
            uint32_t high[4], low[4];
            load_matrix(high, m.weights.far[0][at] + row);
            load_matrix(low, m.weights.far[1][at] + row);
#pragma unroll
            for (int e = 0; e < 2; e++) {
                const uint32_t *from = m.columns + column_place(first, own + e * 8 + g);
                const uint32_t x[2] = {from[0], from[8 * 64]}, rest[2] = {from[64], from[9 * 64]};
                mma_bf16(sum[e], high, x[0], x[1]);
                mma_bf16(sum[e], high, rest[0], rest[1]);
                mma_bf16(sum[e], low, x[0], x[1]);
            }
        }
#pragma unroll
        for (int n = 0; n < 4; n++) {
            const int step = block * 16 + g + n / 2 * 8;
            if (back && step > 63 - D) continue;
            const int place = column_place(back ? 63 - D - step : step, own + n % 2 * 8 + t * 2);
            auto *to = reinterpret_cast<float2 *>(m.columns + place);
            to->x -= sum[n % 2][n / 2 * 2], to->y -= sum[n % 2][n / 2 * 2 + 1];
        }
    }

    // Which of the block's threads take a column through its steps, or below 0: blocks that share a multiprocessor use
    // different warps.
    __device__ int step_thread() const {
        const int first = m.place[5];
        return thread >= first && thread < first + 64 ? thread - first : -1;
    }

    // P = A X^T of the tiles of A and X, under way.
    __device__ void start_products_with_keys(float (&P)[32], const __nv_bfloat16 *tile) const {
        tile_product_start<K>(P, operand_tile(tile), operand_tile(m.x));
    }
    __device__ void products_with_keys(float (&P)[32], const __nv_bfloat16 *tile) const {
        tile_product<K>(P, operand_tile(tile), operand_tile(m.x));
    }

    // visit(i, l, high, j, two values) for the pairs of columns l, l + 1 that this thread has in row i of a matrix
    // [64,64], of the blocks j of 16 columns from first to last; high: which of its two rows.
    template <typename F> __device__ void each_pair(const float (&P)[32], int first, int last, F visit) const {
        const int lane = thread % 32, t = lane % 4, i = warp * 16 + lane / 4;
#pragma unroll
        for (int j = 0; j < 4; j++) {
            if (j < first || j > last) continue;
#pragma unroll
            for (int n = 0; n < 4; n++)
                visit(i + n % 2 * 8, j * 16 + n / 2 * 8 + t * 2, n % 2, j, P[j * 8 + n * 2], P[j * 8 + n * 2 + 1]);
        }
    }

    // q_i . x_{i-p} of pairs that reads find incomplete, from P = Q X^T.
    __device__ void near_reads(const float (&P)[32]) const {
        each_pair(P, warp - 1, warp, [&](int i, int l, int, int, float x, float y) {
            if (i >= l && i - l < W) m.reads[i][i - l] = x;
            if (i > l && i - l <= W) m.reads[i][i - l - 1] = y;
        });
    }

    // Weights of complete pairs l + D <= i in the reads, e^{u_i - u_{l+D}} q_i . x_l, in two parts, in the place of P.
    __device__ void far_reads(float (&P)[32]) const {
        const int lane = thread % 32, t = lane % 4, i = warp * 16 + lane / 4;
        const float u_low = m.u[i], u_high = m.u[i + 8];
        const int to = swizzled<64>(warp * 16 + lane % 16, lane / 16 * 8);
#pragma unroll
        for (int j = 0; j < 4; j++) {
            uint32_t high[4] = {}, low[4] = {};
            if (j <= warp) {
#pragma unroll
                for (int n = 0; n < 8; n++) {
                    const int l = j * 16 + n / 4 * 8 + t * 2 + n % 2, below = n % 4 / 2;
                    const float u = m.u[l + D];
                    P[j * 8 + n] *= l + D <= i + below * 8 ? power2((below ? u_high : u_low) - u) : 0.0f;
                }
#pragma unroll
                for (int n = 0; n < 4; n++) split_pair(high[n], low[n], P[j * 8 + n * 2], P[j * 8 + n * 2 + 1]);
            }
            store_matrix(m.p[0] + (to ^ j * 16), high[0], high[1], high[2], high[3]);
            store_matrix(m.p[1] + (to ^ j * 16), low[0], low[1], low[2], low[3]);
        }
    }

    // What is left of the coefficient of pair l behind the chunk.
    __device__ float leave(int l) const {
        return power2(m.u[63] - m.u[l + D]);
    }

    __device__ void keep_state(uint4 *states, const float (&S)[K / 2], int c) const {
        uint32_t rows[K / 16][4];
#pragma unroll
        for (int step = 0; step < K / 16; step++) fragment(rows[step], S, step);
        keep_blocks<K>(blocks_at<K>(states, a, head, c, V, v + warp * 16), rows);
    }

    // Columns of V of the warp, rows of the tile, from accumulators.
    __device__ void put_columns(const float (&d)[32]) const {
        const int lane = thread % 32, t = lane % 4, own = warp * 16 + lane / 4;
#pragma unroll
        for (int n = 0; n < 32; n++)
            m.columns[column_place(n / 4 * 8 + t * 2 + n % 2, own + n % 4 / 2 * 8)] = __float_as_uint(d[n]);
    }
    // Rows that are complete, as a first operand in two parts.
    __device__ void complete_rows(split_rows<32> &to) const {
        const int lane = thread % 32, t = lane % 4, own = warp * 16 + lane / 4;
#pragma unroll
        for (int i = 0; i < 16; i++) {
            const uint32_t *from = m.columns + column_place(i / 2 * 8 + t * 2, own + i % 2 * 8);
            to.high[i / 4][i % 4] = from[0], to.low[i / 4][i % 4] = from[64];
        }
    }

    // The same times by(row), rounded once.
    template <typename F> __device__ void scaled_rows(uint32_t (&to)[4][4], F by) const {
        const int lane = thread % 32, t = lane % 4, own = warp * 16 + lane / 4;
#pragma unroll
        for (int j = 0; j < 8; j++) {
            const int l = j * 8 + t * 2;
            const float first = by(l), second = by(l + 1);
#pragma unroll
            for (int below = 0; below < 2; below++) {
                const uint32_t *from = m.columns + column_place(l, own + below * 8);
                const uint32_t high = from[0], low = from[64];
                to[j / 2][j % 2 * 2 + below] =
                    bf16_pair(first * (__uint_as_float(high << 16) + __uint_as_float(low << 16)),
                              second * (__uint_as_float(high & 0xffff0000u) + __uint_as_float(low & 0xffff0000u)));
            }
        }
    }

    // S += rows^T X for the tile X
    __device__ void add_to_state(float (&S)[K / 2], const uint32_t (&rows)[4][4], const __nv_bfloat16 *tile) const {
        const operand_tile x(tile);
        products_begin();
#pragma unroll
        for (int step = 0; step < 4; step++) product<K, 1>(S, rows[step], x.mn(step * 16 * 64, 64), true);
        products_commit();
        products_wait<0>();
        products_done(S);
    }
};

} // namespace fwa
#endif
