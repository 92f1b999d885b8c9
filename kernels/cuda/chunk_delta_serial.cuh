// What the two serial kernels of the delta core share (chunk_delta_forward.cu, chunk_delta_scan.cu): a warpgroup holds
// 64 columns of V, transposed, and goes from chunk to chunk. Three blocks a multiprocessor: 72 KB of tiles each.
#ifndef FWA_KERNELS_CUDA_CHUNK_DELTA_SERIAL_CUH
#define FWA_KERNELS_CUDA_CHUNK_DELTA_SERIAL_CUH

#include "kernels/cuda/chunk_delta.cuh"

namespace fwa {

constexpr int serial_threads = 128, serial_blocks = 3;

template <int K> struct serial_memory {
    __nv_bfloat16 q[64 * K], x[64 * K];
    __nv_bfloat16 rows[64 * 64];       // of v or of the gradient of o
    __nv_bfloat16 inverse[2][64 * 64]; // T: high, low; zeros above the diagonal
    __nv_bfloat16 p[2][64 * 64];       // masked reads: high, low; then rows on their way out
    float u[64], w[64];
    float history[64], seen[64], leave[64]; // e^{u_i}; of what the residual sees; w_s e^{u_C - u_s}
};

// Tiles as operands. Made anew in every phase, out of one register.
template <int K> struct serial_operands {
    operand_tile q, x, T_high, T_low, P_high, P_low;
    __device__ explicit serial_operands(const serial_memory<K> &m)
        : q(first(m)), x(q, 64 * K), T_high(x, 64 * K + 4096), T_low(T_high, 4096), P_high(T_low, 4096),
          P_low(P_high, 4096) {}

    __device__ static operand_tile first(const serial_memory<K> &m) {
        operand_tile q(m.q);
        asm volatile("" : "+r"(q.at));
        return q;
    }
};

template <int K> struct serial_block {
    const delta_task &a;
    serial_memory<K> &m;
    int head, b, h, V, v, thread, warp;

    __device__ serial_block(const delta_task &task, serial_memory<K> &memory, int slices) : a(task), m(memory) {
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

    // T is written on and below the diagonal alone.
    __device__ void clear_inverse() const {
        auto *to = reinterpret_cast<uint4 *>(m.inverse[0]);
        for (int i = thread; i < 1024; i += serial_threads) to[i] = make_uint4(0, 0, 0, 0);
        __syncthreads();
    }
    __device__ void load_keys_queries(int c) const {
        load_keys<K, serial_threads>(m.x, thread, a, b, h / a.group, c);
        load_steps<K, serial_threads>(m.q, thread, a, a.q, b, h / a.group, c);
    }
    // 64 columns of v or of the gradient of o.
    __device__ void load_columns(chunk_view view, int c) const {
        if (view.data) view.data += v;
        load_steps<64, serial_threads>(m.rows, thread, a, view, b, h, c);
    }
    __device__ void load_inverse(int c) const {
        const uint4 *from = inverse_at(a, head, c);
#pragma unroll
        for (int i = 0; i < 2 * inverse_pieces; i += serial_threads) {
            const int p = i + thread;
            if (p >= 2 * inverse_pieces) break;
            const bool low = p >= inverse_pieces;
            const inverse_place at(low ? p - inverse_pieces : p);
            copy_async(m.inverse[low] + swizzled<64>(at.row, at.column), from + p);
        }
    }

    __device__ void write_gates(int c) const {
        if (thread >= 64) return;
        const int64_t at = (static_cast<int64_t>(head) * a.chunks + c) * 64;
        const float u = a.u[at + thread], w = a.w[at + thread], last = a.u[at + 63];
        m.u[thread] = u, m.w[thread] = w;
        m.history[thread] = power2(u), m.seen[thread] = power2(a.seen[at + thread]);
        m.leave[thread] = w * power2(last - u);
    }

    // Rows of chunk c into the second level of the cache: `view` has 64 columns of this block.
    __device__ void prefetch_chunk(const chunk_view &view, int c) const {
        const int row = thread / 2, t = tile_step(a, c, row), at = thread % 2 * 64;
        const auto *T = reinterpret_cast<const char *>(inverse_at(a, head, c));
        if (thread < inverse_pieces * 2 * 16 / 128) prefetch_far(T + thread * 128);
        if (thread < 6) {
            const int64_t gates = (static_cast<int64_t>(head) * a.chunks + c) * 64 + thread % 2 * 32;
            prefetch((thread < 2 ? a.u : thread < 4 ? a.w : a.seen) + gates);
        }
        if (t >= a.T) return;
        if (K == 128 || at == 0) {
            prefetch_far(a.q.row(b, t, h / a.group) + at);
            if (t >= a.shift) prefetch_far(a.k.row(b, t - a.shift, h / a.group) + at);
        }
        if (at == 0 && view.data) prefetch_far(view.row(b, t, h) + v);
    }

    // P = (Q X^T) o M in two parts. Blocks of 16 columns beyond the warp's rows are zeros.
    __device__ void reads() const {
        float P[32];
        const serial_operands<K> tiles(m);
        products_begin();
#pragma unroll
        for (int k = 0; k < K; k += 16) {
            const int at = k / 64 * 4096 + k % 64;
            product<64, 0, 0>(P, tiles.q.k(at), tiles.x.k(at), k > 0);
        }
        products_commit();
        products_wait<0>();
        products_done(P);
        const int lane = thread % 32, t = lane % 4, i = warp * 16 + lane / 4;
        const float u_low = m.u[i], u_high = m.u[i + 8];
        const int to = swizzled<64>(warp * 16 + lane % 16, lane / 16 * 8);
#pragma unroll
        for (int j = 0; j < 4; j++) {
            uint32_t high[4] = {}, low[4] = {};
            if (j <= warp) {
#pragma unroll
                for (int n = 0; n < 8; n++) {
                    const int s = j * 16 + n / 4 * 8 + t * 2 + n % 2, below = n % 4 / 2;
                    P[j * 8 + n] *= s <= i + below * 8 ? m.w[s] * power2((below ? u_high : u_low) - m.u[s]) : 0.0f;
                }
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
__device__ inline void scale_columns(float (&d)[32], const float *by) {
    const int t = static_cast<int>(threadIdx.x) % 4;
#pragma unroll
    for (int j = 0; j < 8; j++) {
        const float2 f = *reinterpret_cast<const float2 *>(by + j * 8 + t * 2);
        d[j * 4] *= f.x, d[j * 4 + 1] *= f.y, d[j * 4 + 2] *= f.x, d[j * 4 + 3] *= f.y;
    }
}

} // namespace fwa
#endif
