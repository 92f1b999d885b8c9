// What the two serial kernels of the window core share (chunk_window_forward.cu, chunk_window_scan.cu): a warpgroup
// holds 64 columns of V, transposed, and goes from chunk to chunk; in a chunk two threads take a column through its
// steps, each with every other of the earlier rows. Three blocks a multiprocessor where W = 4: 75 KB each.
#ifndef FWA_KERNELS_CUDA_CHUNK_WINDOW_SERIAL_CUH
#define FWA_KERNELS_CUDA_CHUNK_WINDOW_SERIAL_CUH

#include "kernels/cuda/chunk_delta_serial.cuh"
#include "kernels/cuda/chunk_window.cuh"

namespace fwa {

constexpr int window_threads = 128;

// Rows of weights of pairs that are complete, of which row n has n + 1 in use: as two halves, of the even and of the
// odd ones, each of a multiple of 4 floats.
constexpr int far_floats = 32 * 8 * 9;
__device__ inline int far_half(int n) {
    return 4 * (n / 8 + 1);
}
__device__ inline int far_row(int n) {
    return 32 * (n / 8) * (n / 8 + 1) + 2 * far_half(n) * (n % 8);
}

template <int K, int W> struct window_memory {
    __nv_bfloat16 q[64 * K], x[64 * K];
    __nv_bfloat16 rows[64 * 64]; // of v, then what reads take of pairs that are not complete; of the gradient of o
    float columns[64 * 64];      // column_place; what a step starts from, then what its row is in the end
    union {
        float far[far_floats];
        __nv_bfloat16 p[2][64 * 64]; // masked reads: high, low; then rows on their way out
    };
    float gram[64][W], reads[64][W];
    window_gate gates[64];
};

// Place of row l, column v: rows 2 t, 2 t + 1 of eight columns are in different banks, and so are two rows of sixteen.
__device__ inline int column_place(int l, int v) {
    return l * 64 + (v ^ ((l & 1) << 4 | (l >> 1 & 3) << 3));
}

// sum_n weights[n] rows[n] over every other n up to `last`, from two threads; row n is n, or 63 - n from behind.
template <bool behind>
__device__ inline float far_sum(const float *far, const float *columns, int last, int half, int v) {
    float sum[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    if (last >= 0) {
        const int count = far_half(last);
        const float *weights = far + far_row(last) + half * count, *rows[4];
#pragma unroll
        for (int k = 0; k < 4; k++) {
            const int n = 2 * k + half;
            rows[k] = columns + column_place(behind ? 63 - n : n, v);
        }
#pragma unroll 2
        for (int n = 0; n < count; n += 4) {
            const float4 by = *reinterpret_cast<const float4 *>(weights + n);
            const int at = behind ? -n * 128 : n * 128;
            sum[0] += by.x * rows[0][at], sum[1] += by.y * rows[1][at];
            sum[2] += by.z * rows[2][at], sum[3] += by.w * rows[3][at];
        }
    }
    const float own = (sum[0] + sum[1]) + (sum[2] + sum[3]);
    return own + __shfl_xor_sync(0xffffffffu, own, 1);
}

// Decays of step i: of the state; of what its residuals see since the step before; of the state since they saw it.
struct step_decays {
    float keep, sight, rest;
    __device__ step_decays(const window_gate &g, float u_before)
        : keep(power2(g.u - u_before)), sight(power2(g.seen - u_before)), rest(power2(g.u - g.seen)) {}
};

template <int K, int W> struct window_block {
    static constexpr int D = W - 1;
    const window_task &a;
    window_memory<K, W> &m;
    int head, b, h, V, v, thread, warp;

    __device__ window_block(const window_task &task, window_memory<K, W> &memory, int slices) : a(task), m(memory) {
        head = static_cast<int>(blockIdx.x) / slices, b = head / a.H, h = head % a.H, V = slices * 64;
        v = static_cast<int>(blockIdx.x) % slices * 64;
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
    __device__ void write_gates(int c) const {
        if (thread >= 64) return;
        const int64_t at = (static_cast<int64_t>(head) * a.chunks + c) * 64 + thread;
        m.gates[thread] = {a.u[at], a.seen[at], a.w[at], a.pairs[at]};
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

    // visit(i, l, value) for every entry of this thread of a matrix [64,64].
    template <typename F> __device__ void each_entry(const float (&P)[32], F visit) const {
        const int lane = thread % 32, t = lane % 4, i = warp * 16 + lane / 4;
#pragma unroll
        for (int n = 0; n < 32; n++) visit(i + n % 4 / 2 * 8, n / 4 * 8 + t * 2 + n % 2, P[n]);
    }

    // q_i . x_{i-p} of pairs that reads find incomplete.
    __device__ void near_reads() const {
        float P[32];
        products_with_keys(P, m.q);
        each_entry(P, [&](int i, int l, float x) {
            if (i >= l && i - l < W) m.reads[i][i - l] = x;
        });
    }

    // Weights of complete pairs l + D <= i in the reads, e^{u_i - u_{l+D}} q_i . x_l, in two parts.
    __device__ void far_reads() const {
        float P[32];
        products_with_keys(P, m.q);
        const int lane = thread % 32, t = lane % 4, i = warp * 16 + lane / 4;
        const float u_low = m.gates[i].u, u_high = m.gates[i + 8].u;
        const int to = swizzled<64>(warp * 16 + lane % 16, lane / 16 * 8);
#pragma unroll
        for (int j = 0; j < 4; j++) {
            uint32_t high[4] = {}, low[4] = {};
            if (j <= warp) {
#pragma unroll
                for (int n = 0; n < 8; n++) {
                    const int l = j * 16 + n / 4 * 8 + t * 2 + n % 2, below = n % 4 / 2;
                    const float u = m.gates[min(l + D, 63)].u;
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
        return power2(m.gates[63].u - m.gates[min(l + D, 63)].u);
    }

    // d = S^T B^T for B [64,K], some columns of K at a time to spare registers.
    template <int columns>
    __device__ void state_product(float (&d)[32], const float (&S)[K / 2], const __nv_bfloat16 *tile) const {
        const operand_tile B(tile);
#pragma unroll
        for (int k = 0; k < K; k += columns) {
            uint32_t rows[columns / 16][4];
#pragma unroll
            for (int step = 0; step < columns / 16; step++) fragment(rows[step], S, k / 16 + step);
            products_begin();
#pragma unroll
            for (int step = 0; step < columns / 16; step++)
                product<64, 0>(d, rows[step], B.k(k / 64 * 4096 + k % 64 + step * 16), k + step > 0);
            products_commit();
            products_wait<0>();
            products_done(d);
        }
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
