// What the two serial kernels of the delta core share (chunk_delta_forward.cu, chunk_delta_scan.cu): a warpgroup holds
// 64 columns of V, transposed, and goes from chunk to chunk. Three blocks a multiprocessor: 72 KB of tiles each.
#ifndef FWA_KERNELS_CUDA_CHUNK_DELTA_SERIAL_CUH
#define FWA_KERNELS_CUDA_CHUNK_DELTA_SERIAL_CUH

#include "kernels/cuda/chunk_delta.cuh"
#include "kernels/cuda/chunk_segments.cuh"

namespace fwa {

constexpr int serial_threads = 128, serial_blocks = 3;

template <int K> struct serial_memory {
    __nv_bfloat16 q[64 * K], x[64 * K];
    __nv_bfloat16 rows[64 * 64];       // of v or of the gradient of o
    __nv_bfloat16 inverse[2][64 * 64]; // T: high, low; zeros above the diagonal
    __nv_bfloat16 p[2][64 * 64];       // masked reads: high, low; then rows on their way out
    delta_gates gates;                 // all but `seen`
};

// Tiles as operands. Made anew in every phase, out of one register.
template <int K> struct serial_operands {
    operand_tile q, x, T_high, T_low, P_high, P_low;
    __device__ explicit serial_operands(const serial_memory<K> &m)
        : q(operand_tile::anew(m.q)), x(q, 64 * K), T_high(x, 64 * K + 4096), T_low(T_high, 4096), P_high(T_low, 4096),
          P_low(P_high, 4096) {}
};

// Eight elements of a thread in rows i and i + 8 times M: 16 columns from s0 on, before the warp's rows or the same.
__device__ inline void far_block(float *P, const mask_gates &gates, int s0, int warp, int i, int t) {
    const float low = gates.near[i], high = gates.near[i + 8];
#pragma unroll
    for (int n = 0; n < 8; n += 4) {
        const float2 far = *reinterpret_cast<const float2 *>(gates.far[warp - 1] + s0 + n * 2 + t * 2);
        P[n] *= low * far.x, P[n + 1] *= low * far.y, P[n + 2] *= high * far.x, P[n + 3] *= high * far.y;
    }
}
__device__ inline void near_block(float *P, const mask_gates &gates, int s0, int i, int t) {
    const float low = gates.u[i], high = gates.u[i + 8];
#pragma unroll
    for (int n = 0; n < 8; n++) {
        const int s = s0 + n / 4 * 8 + t * 2 + n % 2, below = n % 4 / 2;
        P[n] *= s <= i + below * 8 ? gates.w[s] * power2((below ? high : low) - gates.u[s]) : 0.0f;
    }
}

template <int K> struct serial_block : segment_place {
    const delta_task &a;
    serial_memory<K> &m;
    int hq, thread, warp;

    __device__ serial_block(const delta_task &task, serial_memory<K> &memory, const serial_pass &pass)
        : segment_place(task, pass), a(task), m(memory) {
        hq = h / a.group;
        thread = static_cast<int>(threadIdx.x), warp = thread / 32;
    }

    // Keeps addresses of one phase of the loop from being prepared, and held in registers, in front of it.
    __device__ void renew() {
        asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
        asm volatile("" : "+r"(head), "+r"(b), "+r"(h), "+r"(hq), "+r"(v));
        warp = thread / 32;
    }

    // T is written on and below the diagonal alone.
    __device__ void clear_inverse() const {
        auto *to = reinterpret_cast<uint4 *>(m.inverse[0]);
        for (int i = thread; i < 1024; i += serial_threads) to[i] = make_uint4(0, 0, 0, 0);
        __syncthreads();
    }
    __device__ void load_keys_queries(int c) const {
        load_keys<K, serial_threads>(m.x, thread, a, b, hq, c);
        load_steps<K, serial_threads>(m.q, thread, a, a.q, b, hq, c);
    }
    // 64 columns of v or of the gradient of o.
    __device__ void load_columns(chunk_view view, int c) const {
        if (view.data) view.data += v;
        load_steps<64, serial_threads>(m.rows, thread, a, view, b, h, c);
    }
    __device__ void load_inverse(int c) const {
        const uint4 *from = inverse_at(a, head, c) + thread;
        const int lane = thread % 32, row = lane / 16 * 8 + lane % 8, column = lane / 8 % 2 * 8;
#pragma unroll
        for (int n = 0; n < inverse_pieces / serial_threads; n++) {
            const inverse_place at(n, warp);
            copy_async(m.inverse[at.part] + swizzled<64>(at.row * 16 + row, at.column * 16 + column),
                       from + n * serial_threads);
        }
    }

    __device__ void load_gates(int c) const {
        const auto *from = reinterpret_cast<const uint4 *>(a.gates + tile_index(a, head, c));
        auto *to = reinterpret_cast<uint4 *>(&m.gates);
        copy_async(to + thread, from + thread);
        if (thread < 16) copy_async(to + serial_threads + thread, from + serial_threads + thread);
    }

    // Rows of chunk c into the second level of the cache: `view` has 64 columns of this block.
    __device__ void prefetch_chunk(const chunk_view &view, int c) const {
        const int row = thread / 2, t = tile_step(a, c, row), at = thread % 2 * 64;
        const auto *T = reinterpret_cast<const char *>(inverse_at(a, head, c));
        if (thread < inverse_pieces * 16 / 128)
            prefetch_far(T + thread * 128);
        else if (thread - inverse_pieces * 16 / 128 < static_cast<int>(sizeof(delta_gates)) / 128)
            prefetch_far(reinterpret_cast<const char *>(a.gates + tile_index(a, head, c)) +
                         (thread - inverse_pieces * 16 / 128) * 128);
        if (t >= a.T) return;
        if (K == 128 || at == 0) {
            prefetch_far(a.q.row(b, t, hq) + at);
            if (t >= a.shift) prefetch_far(a.k.row(b, t - a.shift, hq) + at);
        }
        if (at == 0 && view.data) prefetch_far(view.row(b, t, h) + v);
    }

    // P = (Q X^T) o M in two parts. Blocks of 16 columns beyond the warp's rows are zeros.
    __device__ void reads() const {
        float P[32];
        const serial_operands<K> tiles(m);
        tile_product<K>(P, tiles.q, tiles.x);
        const int lane = thread % 32, t = lane % 4, i = warp * 16 + lane / 4;
        const int to = swizzled<64>(warp * 16 + lane % 16, lane / 16 * 8);
#pragma unroll
        for (int j = 0; j < 4; j++) {
            uint32_t high[4] = {}, low[4] = {};
            if (j <= warp) {
                if (j < warp)
                    far_block(P + j * 8, m.gates, j * 16, warp, i, t);
                else
                    near_block(P + j * 8, m.gates, j * 16, i, t);
#pragma unroll
                for (int n = 0; n < 4; n++) split_pair(high[n], low[n], P[j * 8 + n * 2], P[j * 8 + n * 2 + 1]);
            }
            store_matrix(m.p[0] + (to ^ j * 16), high[0], high[1], high[2], high[3]);
            store_matrix(m.p[1] + (to ^ j * 16), low[0], low[1], low[2], low[3]);
        }
    }
};

// d (+)= a L^T, L lower triangular.
__device__ inline void lower_product(float (&d)[32], const uint32_t (&a)[4][4], const operand_tile &L, bool add) {
#pragma unroll
    for (int step = 0; step < 4; step++) product<64, 0>(d, a[step], L.k(step * 16), add || step > 0);
}
// d (+)= a L: contracted rows up to 32 do not reach the last 32 of d.
__device__ inline void upper_product(float (&d)[32], const uint32_t (&a)[4][4], const operand_tile &L, bool add) {
    product<64, 1>(d, a[2], L.mn(2048, 64), add);
    product<64, 1>(d, a[3], L.mn(3072, 64), true);
    auto &first = *reinterpret_cast<float(*)[16]>(d);
    product<32, 1>(first, a[0], L.mn(0, 64), true);
    product<32, 1>(first, a[1], L.mn(1024, 64), true);
}

// Columns of d, which are steps, times `by`.
template <int n> __device__ inline void scale_columns(float (&d)[n], const float *by) {
    const int t = static_cast<int>(threadIdx.x) % 4;
#pragma unroll
    for (int j = 0; j < n / 4; j++) {
        const float2 f = *reinterpret_cast<const float2 *>(by + j * 8 + t * 2);
        d[j * 4] *= f.x, d[j * 4 + 1] *= f.y, d[j * 4 + 2] *= f.x, d[j * 4 + 3] *= f.y;
    }
}

// d = S^T B^T for B [64,K], some columns of K at a time to spare registers.
template <int K, int columns>
__device__ inline void state_product(float (&d)[32], const float (&S)[K / 2], const operand_tile &B) {
#pragma unroll
    for (int k = 0; k < K; k += columns) {
        uint32_t rows[columns / 16][4];
#pragma unroll
        for (int step = 0; step < columns / 16; step++) fragment(rows[step], S, k / 16 + step);
        products_begin();
#pragma unroll
        for (int step = 0; step < columns / 16; step++)
            product<64, 0>(d, rows[step], B.k(tile_column(k) + step * 16), k + step > 0);
        products_commit();
        products_wait<0>();
        products_done(d);
    }
}

} // namespace fwa
#endif
