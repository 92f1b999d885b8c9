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
};

// Weights with which rows that are complete enter a sum of a later step, steps and rows in the order in which they are
// taken: of step 16 b + k, rows of blocks before b in far[8 b (b - 1) + row][k], those of the same block in inner.
struct window_weights {
    float far[96][16], inner[64][16];
};

// Where the weights of a step are; row < step. `far` and `inner` are those of row 0.
struct weight_row {
    float *far, *inner;
    int first; // row of its block
    __device__ weight_row(window_weights &weights, int step) {
        const int b = step / 16;
        far = weights.far[8 * b * (b - 1)] + step % 16, inner = weights.inner[step] - b * 16, first = b * 16;
    }
    // lag: rows of the block itself start that many before it.
    __device__ void set(int row, float weight, int lag = 0) const {
        *(row + lag < first ? far + row * 16 : inner + row + lag) = weight;
    }
};

template <int K, int W> struct window_memory {
    __nv_bfloat16 q[64 * K], x[64 * K];
    __nv_bfloat16 rows[64 * 64]; // of v, then what reads take of pairs that are not complete; of the gradient of o
    float columns[64 * 64];      // column_place; what a step starts from, then what its row is in the end
    union {
        struct {
            window_weights weights;
            window_step<W> steps[64];
        };
        __nv_bfloat16 p[2][64 * 64]; // masked reads: high, low; then rows on their way out
    };
    float gram[64][W], reads[64][W];
    float u[64 + W], seen[64]; // u stays behind the end
};

// Place of row l, column v: four rows of eight columns, 2 t, are in different banks.
__device__ inline int column_place(int l, int v) {
    return l * 64 + (v ^ (l >> 1 & 3) << 3);
}

template <int K, int W> struct window_block : segment_place {
    static constexpr int D = W - 1;
    const window_task &a;
    window_memory<K, W> &m;
    int thread, warp;

    __device__ window_block(const window_task &task, window_memory<K, W> &memory, const serial_pass &pass)
        : segment_place(task, pass), a(task), m(memory) {
        thread = static_cast<int>(threadIdx.x), warp = thread / 32;
    }

    // Keeps addresses of one phase of the loop from being prepared, and held in registers, in front of it.
    __device__ void renew() {
        asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
        asm volatile("" : "+r"(head), "+r"(b), "+r"(h), "+r"(v));
        warp = thread / 32;
    }

    // Row 0 of a chunk's tile of a matrix [64,V], the first column of this block.
    __device__ int64_t rows_at(int c) const {
        return (static_cast<int64_t>(head) * a.chunks + c) * 64 * V + v;
    }

    __device__ void load_keys_queries(int c) const {
        load_keys<K, window_threads>(m.x, thread, a, b, h / a.group, c);
        load_steps<K, window_threads>(m.q, thread, a, a.q, b, h / a.group, c);
    }
    // Returns w and B_t of the thread's row.
    __device__ float2 write_gates(int c) const {
        const int64_t at = (static_cast<int64_t>(head) * a.chunks + c) * 64 + thread;
        if (thread < 64) m.u[thread] = a.u[at], m.seen[thread] = a.seen[at];
        if (thread >= 64 && thread < 64 + W) m.u[thread] = a.u[at - thread + 63];
        return thread < 64 ? make_float2(a.w[at], a.pairs[at]) : make_float2(0.0f, 0.0f);
    }

    // Rows of chunk c into the second level of the cache: `view` has the columns of this block.
    __device__ void prefetch_chunk(const chunk_view &view, int c) const {
        const int row = thread / 2, t = tile_step(a, c, row), at = thread % 2 * 64;
        if (thread < 8) {
            const int64_t gates = (static_cast<int64_t>(head) * a.chunks + c) * 64 + thread % 2 * 32;
            prefetch((thread < 2 ? a.u : thread < 4 ? a.w : thread < 6 ? a.seen : a.pairs) + gates);
        }
        if (t < a.shift || t >= a.T) return;
        if (K == 128 || at == 0) {
            prefetch_far(a.q.row(b, t, h / a.group) + at);
            prefetch_far(a.k.row(b, t - a.shift, h / a.group) + at);
        }
        if (at == 0 && view.data) prefetch_far(view.row(b, t, h) + v);
    }

    // What nothing writes later on: pairs before the tile.
    __device__ void clear_edges() const {
        for (int n = thread; n < D * W; n += window_threads) m.gram[n / W][n % W] = m.reads[n / W][n % W] = 0.0f;
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

    // Takes from what the steps of a block start from what earlier blocks give: a warp has four steps, a thread two
    // columns. Steps go from the first to the last, a row being that of the pair; or back, rows then from the last.
    template <bool back> __device__ void far_sums(int block) const {
        const int column = thread % 32 * 2, own = warp * 4;
        float2 sum[4] = {};
        const float *weights = m.weights.far[8 * block * (block - 1)] + own;
#pragma unroll 1
        for (int row = 0; row < block * 16; row += 8, weights += 8 * 16) {
            const float *from = m.columns + (back ? 56 - row : row) * 64;
#pragma unroll
            for (int n = 0; n < 8; n++) {
                const float4 by = *reinterpret_cast<const float4 *>(weights + n * 16);
                const float2 x = *reinterpret_cast<const float2 *>(from + column_place(back ? 7 - n : n, column));
                sum[0].x += by.x * x.x, sum[0].y += by.x * x.y, sum[1].x += by.y * x.x, sum[1].y += by.y * x.y;
                sum[2].x += by.z * x.x, sum[2].y += by.z * x.y, sum[3].x += by.w * x.x, sum[3].y += by.w * x.y;
            }
        }
#pragma unroll
        for (int k = 0; k < 4; k++) {
            const int step = block * 16 + own + k;
            auto *to =
                reinterpret_cast<float2 *>(m.columns + column_place(back ? max(63 - D - step, 0) : step, column));
            to->x -= sum[k].x, to->y -= sum[k].y;
        }
    }

    // Which of the block's threads take a column through its steps, or below 0: blocks that share a multiprocessor use
    // different warps.
    __device__ int step_thread() const {
        const int first = static_cast<int>(blockIdx.x) / 132 % 2 * 64;
        return thread - first < 64 ? thread - first : -1;
    }

    // P = A X^T of the tiles of A and X.
    __device__ void products_with_keys(float (&P)[32], const __nv_bfloat16 *tile) const {
        const operand_tile A(tile), x(m.x);
        products_begin();
#pragma unroll
        for (int k = 0; k < K; k += 16) {
            const int at = k / 64 * 4096 + k % 64;
            product<64, 0, 0>(P, A.k(at), x.k(at), k > 0);
        }
        products_commit();
        products_wait<0>();
        products_done(P);
    }

    // visit(i, l, value) for the entries of this thread of a matrix [64,64] in the blocks of 16 x 16 on the diagonal
    // and below, or above.
    template <bool above, typename F> __device__ void each_entry(const float (&P)[32], F visit) const {
        const int lane = thread % 32, t = lane % 4, i = warp * 16 + lane / 4;
#pragma unroll
        for (int j = 0; j < 4; j++) {
            if (above ? j < warp : j > warp) continue;
#pragma unroll
            for (int n = 0; n < 8; n++)
                visit(i + n % 4 / 2 * 8, j * 16 + n / 4 * 8 + t * 2 + n % 2, n % 4 / 2, P[j * 8 + n]);
        }
    }

    // q_i . x_{i-p} of pairs that reads find incomplete.
    __device__ void near_reads() const {
        float P[32];
        products_with_keys(P, m.q);
        each_entry<false>(P, [&](int i, int l, int, float x) {
            if (i >= l && i - l < W) m.reads[i][i - l] = x;
        });
    }

    // Weights of complete pairs l + D <= i in the reads, e^{u_i - u_{l+D}} q_i . x_l, in two parts.
    __device__ void far_reads() const {
        float P[32];
        products_with_keys(P, m.q);
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

    // Columns of V of the warp, rows of the tile, between accumulators and `columns`.
    __device__ void put_columns(const float (&d)[32]) const {
        const int lane = thread % 32, t = lane % 4, own = warp * 16 + lane / 4;
#pragma unroll
        for (int n = 0; n < 32; n++) m.columns[column_place(n / 4 * 8 + t * 2 + n % 2, own + n % 4 / 2 * 8)] = d[n];
    }
    __device__ void get_columns(float (&d)[32]) const {
        const int lane = thread % 32, t = lane % 4, own = warp * 16 + lane / 4;
#pragma unroll
        for (int n = 0; n < 32; n++) d[n] = m.columns[column_place(n / 4 * 8 + t * 2 + n % 2, own + n % 4 / 2 * 8)];
    }

    // The same columns times by(row), as first operands.
    template <typename F> __device__ void scaled_columns(uint32_t (&to)[4][4], F by) const {
        const int lane = thread % 32, t = lane % 4, own = warp * 16 + lane / 4;
#pragma unroll
        for (int j = 0; j < 8; j++) {
            const int l = j * 8 + t * 2;
            const float first = by(l), second = by(l + 1);
#pragma unroll
            for (int high = 0; high < 2; high++) {
                const int column = own + high * 8;
                to[j / 2][j % 2 * 2 + high] = bf16_pair(first * m.columns[column_place(l, column)],
                                                        second * m.columns[column_place(l + 1, column)]);
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
