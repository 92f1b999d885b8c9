// What the kernels of the column core share that have columns of V as rows of accumulators (chunk_column_forward.cu,
// _scan.cu, _gates.cu): a warpgroup has 64 columns of V of a chunk, a warp 16, a quad of lanes two, g and g + 8, in
// the order of an m16n8 accumulator: element 4 j + e is step 8 j + 2 t + e % 2 of column g + e / 2 * 8.
//
// Steps go in blocks of eight. Between blocks are products in tf32 with masked 8x8 blocks of P = Q X^T and G = X X^T in
// fp32 (36 of them on and below the diagonal); inside a block G is solved with by substitution, a quad a column.
#ifndef FWA_KERNELS_CUDA_CHUNK_COLUMN_STEPS_CUH
#define FWA_KERNELS_CUDA_CHUNK_COLUMN_STEPS_CUH

#include "kernels/cuda/chunk_column.cuh"
#include "kernels/cuda/chunk_rows.cuh"

namespace fwa {

constexpr int column_threads = 128, lower_floats = 36 * 64, half_floats = 10 * 64;

// Block (i, s), s <= i, of a lower matrix.
__device__ inline int lower_at(int i, int s) {
    return (i * (i + 1) / 2 + s) * 64;
}

// Where row i of an 8x8 block stands in it: reads of rows and of columns meet no bank twice.
__device__ inline int block_row(int i) {
    return (i ^ i / 4) * 8;
}

// Where element (row, column) of a tile [64,64] in fp32 stands: reads of eight columns of four pairs of rows meet no
// bank twice.
__device__ inline int float_place(int row, int column) {
    return row * 64 + (column ^ (row >> 1 & 3) << 3);
}

// 64 columns of beta from v on, element (row, column) to place(row, column) of the tile; zeros behind the end.
template <int (*place)(int, int) = float_place>
__device__ inline void load_beta(float *tile, int thread, const column_task &a, int b, int h, int c, int v) {
    const int first = thread / 16, column = thread % 16 * 4, end = a.T - c * 64;
    const float *from = a.beta.row(b, c * 64 + first, h) + v + column;
#pragma unroll
    for (int row = first; row < 64; row += 8, from += 8 * a.beta.time)
        copy_async(tile + place(row, column), row < end ? from : a.beta.data, row < end);
}
__device__ inline void load_tokens(float4 *to, int thread, const column_task &a, int64_t head, int c) {
    if (thread < 64) copy_async(to + thread, tokens_at(a, head, c) + thread);
}

// Steps of block j of the quad's two columns, relative to the middle of the block, behind its fourth step.
struct eight_steps {
    float eta[4], at[4], back[4]; // e^{u_i - m}, e^{m - u_i}
    float from[4];                // e^{u_{i-1} - m}
    float middle[2], rest[2];     // log2 of the decay up to m, and from there to the end
};
// Of the quad's columns of block j: beta's first of both columns, and what its steps share.
struct step_source {
    float *beta[2];
    const float4 *tokens;
    __device__ step_source(float *tile, const float4 *rows, int warp) {
        const int lane = static_cast<int>(threadIdx.x) % 32, t = lane % 4, column = warp * 16 + lane / 4;
        beta[0] = tile + float_place(t * 2, column), beta[1] = tile + float_place(t * 2, column + 8);
        tokens = rows + t * 2;
    }
    __device__ float *at(int j, int e) const {
        return beta[e / 2] + (j * 8 + e % 2) * 64;
    }
    // 1 / denominator and lambda
    __device__ float2 shared(int j, int e) const {
        return *reinterpret_cast<const float2 *>(tokens + j * 8 + e % 2);
    }
};
__device__ inline void get_steps(eight_steps &to, const column_task &a, const step_source &from, int j) {
    const int lane = static_cast<int>(threadIdx.x) % 32, t = lane % 4;
    const float2 shared[2] = {from.shared(j, 0), from.shared(j, 1)};
    float decay[4];
#pragma unroll
    for (int e = 0; e < 4; e++) {
        const column_step s = step_of(a, shared[e % 2].x, shared[e % 2].y, *from.at(j, e));
        to.eta[e] = s.eta;
        decay[e] = log2_of(s.gamma);
    }
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const float pair = decay[h * 2] + decay[h * 2 + 1];
        float sum = pair, other = __shfl_up_sync(everyone, sum, 1);
        if (t >= 1) sum += other;
        other = __shfl_up_sync(everyone, sum, 2);
        if (t >= 2) sum += other;
        to.middle[h] = __shfl_sync(everyone, sum, (lane & ~3) | 1);
        to.rest[h] = __shfl_sync(everyone, sum, lane | 3) - to.middle[h];
        const float second = sum - to.middle[h], first = second - decay[h * 2 + 1];
        to.from[h * 2] = power2(second - pair);
        to.at[h * 2] = to.from[h * 2 + 1] = power2(first);
        to.at[h * 2 + 1] = power2(second);
        to.back[h * 2] = power2(-first);
        to.back[h * 2 + 1] = power2(-second);
    }
}

// Steps of another document than `of` become zeros.
template <int n> __device__ inline void keep_document(float (&d)[n], const float4 *tokens, float of) {
    const int t = static_cast<int>(threadIdx.x) % 4;
#pragma unroll
    for (int i = 0; i < n; i++)
        if (tokens[i / 4 * 8 + t * 2 + i % 2].z != of) d[i] = 0.0f;
}

// x rounded to tf32; the same where what follows drops the bits behind tf32's.
__device__ inline float rounded(float x) {
    return __uint_as_float((__float_as_uint(x) + 0x1000u) & 0xffffe000u);
}
__device__ inline float nearly_rounded(float x) {
    return __uint_as_float(__float_as_uint(x) + 0x1000u);
}
// Block of accumulators as a first operand in tf32, which drops bits: the contracted eight in the order 0, 2, 4, 6, 1,
// 3, 5, 7.
__device__ inline void eight_operand(uint32_t (&to)[4], const float (&d)[4]) {
    to[0] = __float_as_uint(d[0]), to[1] = __float_as_uint(d[2]);
    to[2] = __float_as_uint(d[1]), to[3] = __float_as_uint(d[3]);
}
__device__ inline void rounded_operand(uint32_t (&to)[4], const float (&d)[4]) {
    eight_operand(to, d);
#pragma unroll
    for (int e = 0; e < 4; e++) to[e] += 0x1000u;
}
// d += a B^T, B an 8x8 block; lanes as in an accumulator.
__device__ inline void add_product(float *d, const uint32_t (&a)[4], const float *block) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const float2 B = *reinterpret_cast<const float2 *>(block + block_row(lane / 4) + lane % 4 * 2);
    mma_tf32(*reinterpret_cast<float(*)[4]>(d), a, __float_as_uint(B.x), __float_as_uint(B.y));
}
// d += a B
__device__ inline void add_product_of_rows(float *d, const uint32_t (&a)[4], const float *block) {
    const int lane = static_cast<int>(threadIdx.x) % 32, row = lane % 4 * 2;
    const float *B = block + lane / 4;
    mma_tf32(*reinterpret_cast<float(*)[4]>(d), a, __float_as_uint(B[block_row(row)]),
             __float_as_uint(B[block_row(row + 1)]));
}

// Pairs of different documents in the warp's rows of a product [64,64] become zeros.
__device__ inline void keep_pairs(float (&d)[32], const float4 *tokens, int warp) {
    const int row = warp * 16 + static_cast<int>(threadIdx.x) % 32 / 4, t = static_cast<int>(threadIdx.x) % 4;
#pragma unroll
    for (int i = 0; i < 32; i++)
        if (tokens[i / 4 * 8 + t * 2 + i % 2].z != tokens[row + i % 4 / 2 * 8].z) d[i] = 0.0f;
}

// Rows 8 i .. of the warp of a product [64,64], masked, as blocks, rounded to tf32; G's on the diagonal as they are.
// x: rows g, columns 2 t and 2 t + 1 of block s.
template <bool system> __device__ inline void place_block(float *to, float x, float y, int i, int s) {
    const int lane = static_cast<int>(threadIdx.x) % 32, g = lane / 4, t = lane % 4;
    auto *pair = reinterpret_cast<float2 *>(to + block_row(g) + t * 2);
    if (s < i)
        *pair = make_float2(nearly_rounded(x), nearly_rounded(y));
    else if (s == i && system)
        *pair = make_float2(t * 2 < g ? x : 0.0f, t * 2 + 1 < g ? y : 0.0f);
    else if (s == i)
        *pair = make_float2(t * 2 <= g ? nearly_rounded(x) : 0.0f, t * 2 + 1 <= g ? nearly_rounded(y) : 0.0f);
}
template <bool system> __device__ inline void place_lower(float *to, const float (&d)[32], int warp) {
#pragma unroll
    for (int high = 0; high < 2; high++) {
        const int i = warp * 2 + high;
#pragma unroll
        for (int s = 0; s < 8; s++)
            place_block<system>(to + lower_at(i, s), d[s * 4 + high * 2], d[s * 4 + high * 2 + 1], i, s);
    }
}
// The same of pairs in one half of a chunk alone, one half behind the other.
template <bool system> __device__ inline void place_halves(float *to, const float (&d)[32], int warp) {
    const bool second = warp >= 2;
    to += second ? half_floats : 0;
#pragma unroll
    for (int high = 0; high < 2; high++) {
        const int i = warp % 2 * 2 + high;
#pragma unroll
        for (int s = 0; s < 4; s++) {
            const float *x = d + s * 4 + high * 2;
            place_block<system>(to + lower_at(i, s), second ? x[16] : x[0], second ? x[17] : x[1], i, s);
        }
    }
}

// Step i out of eight of both columns of the quad, from the lane that owns it.
__device__ inline float2 of_step(const float (&d)[4], int i) {
    const int from = (static_cast<int>(threadIdx.x) % 32 & ~3) | i / 2;
    return make_float2(__shfl_sync(everyone, d[i % 2], from), __shfl_sync(everyone, d[2 + i % 2], from));
}

// Blocks j and j + 1 of the warp's columns of a tile [64,64] of bf16, j even: block j + e is pairs 2 e and 2 e + 1.
__device__ inline void get_columns(uint32_t (&to)[4], const __nv_bfloat16 *tile, int j, int warp) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    load_matrix_transposed(to, tile + swizzled<64>(j * 8 + lane / 16 * 8 + lane % 8, warp * 16 + lane / 8 % 2 * 8));
}
__device__ inline void unpack_block(float (&to)[4], const uint32_t (&pairs)[4], int j) {
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const uint32_t pair = pairs[j % 2 * 2 + h];
        to[h * 2] = __uint_as_float(pair << 16), to[h * 2 + 1] = __uint_as_float(pair & 0xffff0000u);
    }
}
// The same back: block j, one of both, into `to`; both into the tile.
__device__ inline void pack_block(uint32_t (&to)[4], const float (&d)[4], int j) {
    to[j % 2 * 2] = bf16_pair(d[0], d[1]), to[j % 2 * 2 + 1] = bf16_pair(d[2], d[3]);
}
__device__ inline void place_columns(__nv_bfloat16 *tile, const uint32_t (&from)[4], int j, int warp) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    store_matrix_transposed(tile + swizzled<64>(j * 8 + lane / 16 * 8 + lane % 8, warp * 16 + lane / 8 % 2 * 8),
                            from[0], from[1], from[2], from[3]);
}

// 64 columns of V of a chunk [K,64] in a block of 128 threads.
template <int K> struct column_place {
    int head, b, h, V, v, thread, warp, slice;

    __device__ column_place(const column_task &a, int head_slice, int slices) {
        head = head_slice / slices, b = head / a.H, h = head % a.H, V = slices * 64, slice = head_slice % slices;
        v = slice * 64, thread = static_cast<int>(threadIdx.x), warp = thread / 32;
    }

    // Keeps addresses of one phase from being prepared, and held in registers, in front of it.
    __device__ void renew() {
        asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
        asm volatile("" : "+r"(head), "+r"(b), "+r"(h), "+r"(v));
        warp = thread / 32;
    }
    __device__ void load_keys_queries(__nv_bfloat16 *q, __nv_bfloat16 *x, const column_task &a, int c) const {
        load_keys<K, column_threads>(x, thread, a, b, h / a.group, c);
        load_steps<K, column_threads>(q, thread, a, a.q, b, h / a.group, c);
    }
    // 64 columns of v, of the gradient of o and the like.
    __device__ void load_columns(__nv_bfloat16 *tile, const column_task &a, chunk_view view, int c) const {
        if (view.data) view.data += v;
        load_steps<64, column_threads>(tile, thread, a, view, b, h, c);
    }
    // What chunk c needs into the second level of the cache; view: of v or the gradient of o.
    __device__ void prefetch_chunk(const column_task &a, const chunk_view &view, int c) const {
        const int t = c * 64 + thread / 2, half = thread % 2, hq = h / a.group;
        if (t >= a.T) return;
        prefetch_far(a.beta.row(b, t, h) + v + half * 32);
        if (half == 0 && view.data) prefetch_far(view.row(b, t, h) + v);
        if (K == 64 && half > 0) return;
        prefetch_far(a.q.row(b, t, hq) + half * 64);
        if (t >= a.shift) prefetch_far(a.k.row(b, t - a.shift, hq) + half * 64);
    }
};

// d (+)= S b^T from column k0 of K on, S the warp's columns of a part of a state as operands.
template <int K>
__device__ inline void state_product(float (&d)[32], const uint32_t (&S)[K / 16][4], const operand_tile &b,
                                     int k0 = 0) {
    products_begin();
#pragma unroll
    for (int k = 0; k < K; k += 16) product<64, 0>(d, S[k / 16], b.k(tile_column(k0 + k)), k0 + k > 0);
    products_commit();
    products_wait<0>();
    products_done(d);
}

// The warp's rows of d = a b^T of tiles [64,K], without pairs of different documents.
template <int K>
__device__ inline void masked_product(float (&d)[32], const __nv_bfloat16 *a, const __nv_bfloat16 *b,
                                      const float4 *tokens, bool documents, int warp) {
    tile_product<K>(d, operand_tile(a), operand_tile(b));
    if (!documents) return;
    keep_pairs(d, tokens, warp);
    products_done(d); // else the compiler waits within later products
}
// The same into its blocks: P, or G where `system`; `halves`: of both halves of a chunk alone.
template <int K, bool system, bool halves = false>
__device__ inline void place_product(float *to, const __nv_bfloat16 *a, const __nv_bfloat16 *b, const float4 *tokens,
                                     bool documents, int warp) {
    float d[32];
    masked_product<K>(d, a, b, tokens, documents, warp);
    if constexpr (halves)
        place_halves<system>(to, d, warp);
    else
        place_lower<system>(to, d, warp);
}

} // namespace fwa
#endif
