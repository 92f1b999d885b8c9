// What the passes of flash attention share (attention_flash_forward.cu, attention_flash_backward.cu): the task, tiles
// of bf16 in shared memory, their products, the mask, and rows on their way out.
//
// A block has two warpgroups of four warps; each warp owns 16 rows of what its block works out, so that probabilities
// go from the accumulators of one product into the operand of the next without leaving the registers. Products are
// wgmma on Hopper, ldmatrix and mma.sync elsewhere, with the same registers: of a row block of N columns a thread holds
// d[N/8][4], element e of piece i being row row_of(e), column column_of(i, e).
#ifndef FWA_KERNELS_CUDA_ATTENTION_FLASH_CUH
#define FWA_KERNELS_CUDA_ATTENTION_FLASH_CUH

#include "kernels/cuda/attention.cuh"
#include "kernels/cuda/numeric.cuh"
#include "kernels/cuda/wgmma.cuh"

namespace fwa::flash {

using bf16 = __nv_bfloat16;

constexpr int groups = 2, threads = 128 * groups, block_rows = 64 * groups;

// A tensor [B,T,heads,columns] of dense rows.
struct rows {
    bf16 *data;
    int64_t b, t, h; // strides in elements

    __device__ rows head(int64_t batch, int64_t which) const {
        return {data + batch * b + which * h, 0, t, 0};
    }
    __device__ bf16 *row(int64_t step) const {
        return data + step * t;
    }
};

// What the kernels are told; attention_task has the meaning.
// The kernels count keys through: the n earlier ones, which are rounded up to whole blocks, then the sequence's own.
// Own key j is number before + j, and numbers n .. before - 1 stand for nothing.
struct task {
    int B, T, Hq, H, group; // group: H / Hq
    int padded;             // T rounded up to block_rows
    int n, before;          // earlier keys, and rounded up to block_rows
    float scale;
    rows q, k, v, o, d_o, dq, dk, dv;
    rows earlier_k, earlier_v, d_earlier_k, d_earlier_v;
    float *lse;     // [B,H,T], null: not wanted
    float2 *sums;   // backward: [B,H,padded] log2(e) lse_t and D_t = d_o_t . o_t, 0 beyond T
    int32_t *first; // [B,T] number of the first key that a query sees; null: 0
};

__device__ inline int lane() {
    return static_cast<int>(threadIdx.x % 32);
}
// First row of the warp in its block, and of an accumulator's element in its warp.
__device__ inline int warp_row() {
    return static_cast<int>(threadIdx.x / 32) * 16;
}
__device__ inline int row_of(int e) {
    return lane() / 4 + e / 2 * 8;
}
__device__ inline int column_of(int i, int e) {
    return i * 8 + lane() % 4 * 2 + e % 2;
}
__device__ inline float power_of_two(float x) {
    float y;
    asm volatile("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x)); // volatile: stays between the waits around it
    return y;
}

// Rows of bf16 in shared memory: tiles of 64 columns one behind the other (wgmma.cuh).
template <int count, int columns> struct matrix {
    static constexpr int elements = count * columns, next = count * 64;
    bf16 *data;

    __device__ bf16 *at(int row, int column) const {
        return data + column / 64 * next + swizzled<64>(row, column % 64);
    }
    // Copies rows begin .. begin + count - 1 of a head; those from `end` on become zeros.
    __device__ void fetch(const rows &from, int begin, int end) const {
        constexpr int pieces = columns / 8, step = threads / pieces;
        static_assert(step % 8 == 0 && count % step == 0, "the swizzle of a thread stays the same");
        const int row = static_cast<int>(threadIdx.x) / pieces, column = static_cast<int>(threadIdx.x) % pieces * 8;
        bf16 *to = at(row, column);
        const bf16 *x = from.row(begin + row) + column;
#pragma unroll
        for (int i = 0; i < count; i += step, x += step * from.t) copy_async(to + i * 64, x, begin + row + i < end);
    }
};

// Keys or values of a head by their numbers. `cut`: there are earlier ones; else the code for them is left out.
template <bool cut> struct numbered {
    rows earlier, own;

    template <typename M> __device__ void fetch(const task &a, const M &to, int number) const {
        rows from = own;
        int row = number - (cut ? a.before : 0), end = a.T;
        if (cut && number < a.before) from = earlier, row = number, end = a.n;
        to.fetch(from, row, end);
    }
};
template <bool cut> __device__ inline numbered<cut> keys_of(const task &a, int b, int h) {
    return {a.earlier_k.head(b, h), a.k.head(b, h)};
}
template <bool cut> __device__ inline numbered<cut> values_of(const task &a, int b, int h) {
    return {a.earlier_v.head(b, h), a.v.head(b, h)};
}
// Number of the first own key.
template <bool cut> __device__ inline int before_of(const task &a) {
    return cut ? a.before : 0;
}
// Whether a number stands for nothing, and whether one of `count` from j0 on, up to a whole block, does.
template <bool cut> __device__ inline bool is_empty(const task &a, int j) {
    return cut && j >= a.n && j < a.before;
}
template <bool cut> __device__ inline bool has_empty(const task &a, int j0, int count) {
    return cut && j0 + count > a.n && j0 < a.before;
}

// n matrices that are filled in turn.
template <typename M, int n> struct ring {
    static constexpr int elements = n * M::elements;
    bf16 *data;
    __device__ M operator[](int i) const {
        return {data + i % n * M::elements};
    }
};

// Arrays of a block, one behind the other in its dynamic shared memory.
struct arena {
    unsigned char *free;
    template <typename M> __device__ M take() {
        M m = {reinterpret_cast<bf16 *>(free)};
        free += M::elements * sizeof(bf16);
        return m;
    }
};

// Copies of all threads that were waited for become visible to the block and to its products.
__device__ inline void meet() {
#if FWA_WGMMA
    shared_fence();
#endif
    __syncthreads();
}

// Products are started, committed and waited for as wgmma.cuh says; with mma.sync they are done at once.
__device__ inline void start() {
#if FWA_WGMMA
    wgmma_begin();
#endif
}
__device__ inline void commit() {
#if FWA_WGMMA
    wgmma_commit();
#endif
}
// All products but those of the last `under_way` commits are done, `d` is one of them.
template <int under_way, int n> __device__ inline void await(float (&d)[n][4]) {
#if FWA_WGMMA
    wgmma_wait<under_way>();
    settle(d);
#endif
}

// d = A B^T: the 64 rows of A that begin at the warpgroup's, all N rows of B.
template <int N, int A_rows, int K>
__device__ inline void multiply_rows(float (&d)[N / 8][4], const matrix<A_rows, K> &A, const matrix<N, K> &B) {
#if FWA_WGMMA
    const uint64_t a = wgmma_operand(A.at(warp_row() & ~63, 0)), b = wgmma_operand(B.data);
#pragma unroll
    for (int k = 0; k < K; k += 16) {
        const int in_tile = k % 64 * 2 / 16, tile = k / 64;
        wgmma(d, a + in_tile + tile * (A.next * 2 / 16), b + in_tile + tile * (B.next * 2 / 16), k > 0);
    }
#else
#pragma unroll
    for (int i = 0; i < N / 2; i++) d[i / 4][i % 4] = 0.0f;
#pragma unroll
    for (int k = 0; k < K; k += 16) {
        uint32_t a[4], b[4];
        load_matrix(a, A.at(warp_row() + lane() % 16, k + lane() / 16 * 8));
#pragma unroll
        for (int n = 0; n < N; n += 16) {
            load_matrix(b, B.at(n + lane() % 8 + lane() / 16 * 8, k + lane() / 8 % 2 * 8));
            mma_bf16(d[n / 8], a, b[0], b[1]);
            mma_bf16(d[n / 8 + 1], a, b[2], b[3]);
        }
    }
#endif
}

// d += A B: A in registers, B [K,N].
template <int K, int N>
__device__ inline void multiply(float (&d)[N / 8][4], const uint32_t (&a)[K / 16][4], const matrix<K, N> &B) {
#if FWA_WGMMA
    const uint64_t b = wgmma_operand(B.data, B.next * 2);
#pragma unroll
    for (int k = 0; k < K; k += 16) wgmma(d, a[k / 16], b + k * 128 / 16);
#else
#pragma unroll
    for (int k = 0; k < K; k += 16) {
#pragma unroll
        for (int n = 0; n < N; n += 16) {
            uint32_t b[4];
            load_matrix_transposed(b, B.at(k + lane() % 16, n + lane() / 16 * 8));
            mma_bf16(d[n / 8], a[k / 16], b[0], b[1]);
            mma_bf16(d[n / 8 + 1], a[k / 16], b[2], b[3]);
        }
    }
#endif
}

// Accumulators of K columns as the operand A of a product over them.
template <int n> __device__ inline void to_operand(uint32_t (&a)[n / 2][4], const float (&d)[n][4]) {
#pragma unroll
    for (int i = 0; i < n; i++) {
        a[i / 2][i % 2 * 2] = bf16_pair(d[i][0], d[i][1]);
        a[i / 2][i % 2 * 2 + 1] = bf16_pair(d[i][2], d[i][3]);
    }
}

template <int n> __device__ inline void clear(float (&d)[n][4]) {
#pragma unroll
    for (int i = 0; i < n * 4; i++) d[i / 4][i % 4] = 0.0f;
}

// The largest value over the four threads that share rows.
__device__ inline float quad_max(float x) {
    x = fmaxf(x, __shfl_xor_sync(everyone, x, 1));
    return fmaxf(x, __shfl_xor_sync(everyone, x, 2));
}

// Whether the thread is of the first warpgroup.
__device__ inline bool in_first_group() {
    return threadIdx.x < 128;
}

// Writes the warp's 16 rows of `to` from row `begin` on, d[][e] times factor[e / 2]; rows from `end` on are dropped.
// `space`, of the block or of the warpgroup, is read by no product any more.
template <int count, int columns>
__device__ inline void write_rows(const rows &to, int begin, int end, const float (&d)[columns / 8][4],
                                  const float (&factor)[2], const matrix<count, columns> &space) {
    constexpr int pieces = columns / 8, at_once = 32 / pieces;
    const int first = warp_row() % count;
    __syncwarp();
#pragma unroll
    for (int i = 0; i < columns / 8; i++) {
        *reinterpret_cast<uint32_t *>(space.at(first + row_of(0), column_of(i, 0))) =
            bf16_pair(d[i][0] * factor[0], d[i][1] * factor[0]);
        *reinterpret_cast<uint32_t *>(space.at(first + row_of(2), column_of(i, 0))) =
            bf16_pair(d[i][2] * factor[1], d[i][3] * factor[1]);
    }
    __syncwarp();
    const int row = lane() / pieces, column = lane() % pieces * 8;
#pragma unroll
    for (int i = 0; i < 16; i += at_once)
        if (begin + row + i < end)
            *reinterpret_cast<uint4 *>(to.row(begin + row + i) + column) =
                *reinterpret_cast<const uint4 *>(space.at(first + row + i, column));
}

// For heads of `head_size` = K = V = 64 or 128; the bytes are of the shared memory that a block needs.
int forward_bytes(int head_size);
int backward_bytes(int head_size);
fwa_status forward(const fwa_stream *stream, const task &a, int head_size);
fwa_status backward(const fwa_stream *stream, const task &a, int head_size);

// Blocks of queries in pairs, the r-th last and the r-th of a head, so that pairs are equal work under causality; the
// long one first. A thread block takes pairs blockIdx.x, + gridDim.x, ...: those of one head follow each other, so that
// its rows stay in the L2 cache.
struct walk {
    int pair, second;
    int b, h, begin; // sequence, head, first query

    static __device__ walk start(const task &a, int heads) {
        walk w = {static_cast<int>(blockIdx.x), 0, 0, 0, 0};
        w.enter(a, heads);
        return w;
    }
    __device__ void enter(const task &a, int heads) {
        const int blocks = a.padded / block_rows, half = (blocks + 1) / 2, head = pair / half, r = pair % half;
        b = head / heads, h = head % heads;
        begin = (second ? r : blocks - 1 - r) * block_rows;
    }
    __device__ bool over(const task &a) const {
        return b >= a.B;
    }
    __device__ walk next(const task &a, int heads) const {
        walk w = *this;
        const bool alone = 2 * begin + block_rows == a.padded; // the middle one
        w.second = !second && !alone;
        if (!w.second) w.pair += static_cast<int>(gridDim.x);
        w.enter(a, heads);
        return w;
    }
};
inline int64_t pairs_of(const task &a, int heads) {
    const int64_t blocks = a.padded / block_rows;
    return int64_t{a.B} * heads * ((blocks + 1) / 2);
}

} // namespace fwa::flash
#endif
