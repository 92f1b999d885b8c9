// Chunk form of the column core, backward, what sums over V (docs/kernels.md). With the references m_b of blocks of 16
// steps, b(i) the block of i, and r = v, no dr in falcon2a:
//
//   YO_i = e^{u_i} dO_i        YR_i = e^{u_{i-1}} dr_i        Z_s = e^{u_C - u_s} eta_s r_s      columns alone
//   M_is = sum_j (e^{u_i - m_b(i)} dO_i e^{m_b(i) - m_b(s)}) (e^{m_b(s) - u_s} eta_s r_s)        s <= i
//   N_is = the same of e^{u_{i-1} - m_b(i)} dr_i                                                 s < i
//   dQ = M X + YO S^T      dX = M^T Q - (N + N^T) X + Z dS'^T - YR S^T + 2 dE X
//
// bf16 operands, fp32 sums; overwritten, the same bits every time. A block takes a chunk of a value head, 8 warps: each
// warpgroup has half of the columns of dQ and dX. States come 64 rows at a time, M and N take the tile of dO, so that
// two blocks fit a multiprocessor. Value heads that share keys leave fp32 parts, which chunk_add_parts adds in
// their order.
#include "kernels/cuda/chunk_column.cuh"
#include "kernels/cuda/chunk_shared.cuh"

namespace {

using namespace fwa;

constexpr int threads = 256;

template <bool delta> constexpr int state_tiles = delta ? 1 : 2;

template <int K, int V, bool delta> struct grads_memory {
    __nv_bfloat16 q[64 * K], x[64 * K];               // later dq, dx
    __nv_bfloat16 d_o[64 * V < 8192 ? 8192 : 64 * V]; // dO at its references; later M, N
    __nv_bfloat16 y[64 * V], dr[delta ? 64 * V : 512];
    __nv_bfloat16 state[state_tiles<delta>][64 * K]; // 64 rows of S^T, of dS'^T: [V,K]
    // e^{m_b}, e^{u_C - m_b}, and e^{m_b - m_a} for (b, a) = (1, 0), (2, 0), (2, 1), (3, 0), (3, 1), (3, 2)
    __nv_bfloat16 first[4][V], last[4][V], between[6][V];
    float4 tokens[64];
    float pull[64];
};

__device__ void scale_pair(__nv_bfloat16 *pair, float x, float y) {
    auto *to = reinterpret_cast<uint32_t *>(pair);
    *to = scaled(*to, make_float2(x, y));
}

template <int K, int V, bool delta> __device__ void load_operands(grads_memory<K, V, delta> &m, const column_task &a) {
    const tile_of tile(a);
    const int thread = place().thread, c = tile.c, b = tile.b, h = tile.h, hq = tile.hq;
    if (thread < 64) copy_async(m.tokens + thread, tokens_at(a, tile.head, c) + thread);
    copy_commit();
    load_steps<V, threads>(m.d_o, thread, a, a.d_o, b, h, c);
    load_steps<V, threads>(m.y, thread, a, delta ? a.r : a.v, b, h, c);
    if (delta) load_steps<V, threads>(m.dr, thread, a, a.dv, b, h, c);
    copy_commit();
    load_steps<K, threads>(m.q, thread, a, a.q, b, hq, c);
    load_keys<K, threads>(m.x, thread, a, b, hq, c);
    copy_commit();
}

// log2 of the decays up to the middle of a block of 16 steps and to its end, [2][4][V], where the states come later.
template <int K, int V, bool delta> __device__ float *logs_of(grads_memory<K, V, delta> &m) {
    static_assert(sizeof m.state >= 8 * V * sizeof(float), "");
    return reinterpret_cast<float *>(m.state[0]);
}

// A thread takes two columns of a block of 16 steps. References are powers of two, so that factors between them are
// exact in bf16.
template <int K, int V, bool delta> struct two_columns {
    grads_memory<K, V, delta> &m;
    float2 eta[16], decay[16];

    __device__ explicit two_columns(grads_memory<K, V, delta> &memory) : m(memory) {}
    __device__ static int own_block() {
        return place().thread / (V / 2);
    }
    __device__ static int own_column() {
        return place().thread % (V / 2) * 2;
    }
    __device__ void read(const column_task &a) {
        const tile_of tile(a);
        const int block = own_block(), v = own_column(), begin = tile.c * 64 + block * 16,
                  inside = block < 4 ? a.T - begin : 0;
        const float *from = a.beta.row(tile.b, begin, tile.h) + v;
#pragma unroll
        for (int i = 0; i < 16; i++, from += a.beta.time)
            eta[i] = i < inside ? *reinterpret_cast<const float2 *>(from) : make_float2(0.0f, 0.0f);
    }
    // Steps, and the logs of the block.
    __device__ void find_steps(const column_task &a) {
        const int block = own_block(), v = own_column();
        if (block >= 4) return;
        float2 u = make_float2(0.0f, 0.0f);
#pragma unroll
        for (int i = 0; i < 16; i++) {
            const float2 token = *reinterpret_cast<const float2 *>(m.tokens + block * 16 + i);
            const column_step x = step_of(a, token.x, token.y, eta[i].x), y = step_of(a, token.x, token.y, eta[i].y);
            eta[i] = make_float2(x.eta, y.eta);
            decay[i] = make_float2(log2_of(x.gamma), log2_of(y.gamma));
            u.x += decay[i].x, u.y += decay[i].y;
            if (i == 7) *reinterpret_cast<float2 *>(logs_of(m) + block * V + v) = u;
        }
        *reinterpret_cast<float2 *>(logs_of(m) + (4 + block) * V + v) = u;
    }
    // dO, r and dr in their tiles become dO, y and dr at the block's reference.
    __device__ void place_operands() {
        const int block = own_block(), v = own_column();
        if (block >= 4) return;
        float2 u = make_float2(0.0f, 0.0f);
        for (int b = 0; b < block; b++) {
            const float2 all = *reinterpret_cast<const float2 *>(logs_of(m) + (4 + b) * V + v);
            u.x += all.x, u.y += all.y;
        }
        const float2 middle = *reinterpret_cast<const float2 *>(logs_of(m) + block * V + v);
        u.x -= rintf(u.x + middle.x), u.y -= rintf(u.y + middle.y);
        float2 before = make_float2(power2(u.x), power2(u.y));
        const int tiles = v / 64 * 4096 + block * (16 * 64);
#pragma unroll
        for (int i = 0; i < 16; i++) {
            const int to = tiles + swizzled<64>(i, v % 64);
            u.x += decay[i].x, u.y += decay[i].y;
            if constexpr (delta) scale_pair(m.dr + to, before.x, before.y);
            before = make_float2(power2(u.x), power2(u.y));
            scale_pair(m.d_o + to, before.x, before.y);
            scale_pair(m.y + to, eta[i].x * power2(-u.x), eta[i].y * power2(-u.y));
        }
    }
};

// Factors of a column: two threads have one.
template <int K, int V, bool delta> __device__ void place_factors(grads_memory<K, V, delta> &m) {
    const int thread = place().thread, v = thread % V, part = thread / V;
    if (part >= 2) return;
    float at[4], u = 0.0f;
#pragma unroll
    for (int b = 0; b < 4; b++) {
        at[b] = rintf(u + logs_of(m)[b * V + v]);
        u += logs_of(m)[(4 + b) * V + v];
    }
#pragma unroll
    for (int b = 0; b < 4; b++) {
        if (part == 0)
            m.first[b][v] = __float2bfloat16(power2(at[b])), m.last[b][v] = __float2bfloat16(power2(u - at[b]));
        else
            for (int e = 0; e < b; e++) m.between[b * (b - 1) / 2 + e][v] = __float2bfloat16(power2(at[b] - at[e]));
    }
}

// Rows of the warp of 16 columns of a tile, as a first operand of rows 16 block.
__device__ void get_rows(uint32_t (&to)[4], const __nv_bfloat16 *tile, int block, int column, int lane) {
    // The swizzle of columns 16 n .. is that of column 0, turned by 16 n.
    const int at = block * 1024 + swizzled<64>(lane % 16, lane / 16 * 8);
    load_matrix(to, tile + column / 64 * 4096 + (at ^ column % 64));
}
// The same times a factor a column, from column `column` of `by` on.
__device__ uint32_t product_of_pairs(uint32_t a, uint32_t b) {
    const __nv_bfloat162 d =
        __hmul2(*reinterpret_cast<const __nv_bfloat162 *>(&a), *reinterpret_cast<const __nv_bfloat162 *>(&b));
    return *reinterpret_cast<const uint32_t *>(&d);
}
__device__ void scale_columns(uint32_t (&rows)[4], const __nv_bfloat16 *by, int lane) {
    const uint32_t low = *reinterpret_cast<const uint32_t *>(by + lane % 4 * 2);
    const uint32_t high = *reinterpret_cast<const uint32_t *>(by + 8 + lane % 4 * 2);
    rows[0] = product_of_pairs(rows[0], low), rows[1] = product_of_pairs(rows[1], low);
    rows[2] = product_of_pairs(rows[2], high), rows[3] = product_of_pairs(rows[3], high);
}

// Block (i, s) of 16x16 of M or N, masked, packed for its tile; zeros above the diagonal.
template <int K, int V, bool delta>
__device__ void weights(uint32_t (&to)[4], const __nv_bfloat16 *reads, const grads_memory<K, V, delta> &m, int i, int s,
                        bool diagonal, bool minus, bool documents) {
    const place at;
    float d[2][4] = {};
    to[0] = to[1] = to[2] = to[3] = 0;
    if (s > i) return;
#pragma unroll
    for (int v = 0; v < V; v += 16) {
        uint32_t A[4], B[4];
        get_rows(A, reads, i, v, at.lane);
        get_rows(B, m.y, s, v, at.lane);
        if (s < i) scale_columns(A, m.between[i * (i - 1) / 2 + s] + v, at.lane);
        mma_bf16(d[0], A, B[0], B[2]);
        mma_bf16(d[1], A, B[1], B[3]);
    }
#pragma unroll
    for (int n = 0; n < 2; n++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const int row = i * 16 + at.g + e / 2 * 8, column = s * 16 + n * 8 + at.t * 2 + e % 2;
            if (diagonal ? column > row : column >= row) d[n][e] = 0.0f;
            if (documents && m.tokens[row].z != m.tokens[column].z) d[n][e] = 0.0f;
            if (minus) d[n][e] = -d[n][e];
        }
#pragma unroll
    for (int n = 0; n < 4; n++) to[n] = bf16_pair(d[n / 2][n % 2 * 2], d[n / 2][n % 2 * 2 + 1]);
}

// A warp's blocks of M and of -N.
struct weight_blocks {
    uint32_t reads[2][4], residuals[2][4];
    __device__ static int row(int i) {
        return (place().thread / 32 + i * 8) / 4;
    }
    __device__ static int column() {
        return place().thread / 32 % 4;
    }
};
__device__ void place_weights(__nv_bfloat16 *tile, const uint32_t (&d)[2][4]) {
    const int lane = place().lane;
#pragma unroll
    for (int i = 0; i < 2; i++)
        store_matrix(
            tile + swizzled<64>(weight_blocks::row(i) * 16 + lane % 16, weight_blocks::column() * 16 + lane / 16 * 8),
            d[i][0], d[i][1], d[i][2], d[i][3]);
}

// 64 columns of V of a state: read from device memory, placed as rows of a tile [64,K].
template <int K> constexpr int pieces = K / 32;
template <int K, int V> __device__ void read_state(uint4 (&to)[pieces<K>], uint4 *states, const column_task &a, int v) {
    const tile_of tile(a);
    const place at;
    const uint4 *from = state_at<K>(states, a, tile.head, tile.c, V, v) + at.thread;
#pragma unroll
    for (int i = 0; i < pieces<K>; i++) to[i] = from[i * threads];
}
template <int K> __device__ void place_state(__nv_bfloat16 *tile, const uint4 (&from)[pieces<K>]) {
    const place at;
#pragma unroll
    for (int i = 0; i < pieces<K>; i++) {
        const int block = i * 8 + at.thread / 32, row = block / (K / 16) * 16 + at.lane % 16,
                  column = block % (K / 16) * 16 + at.lane / 16 * 8;
        store_matrix(tile + column / 64 * 4096 + swizzled<64>(row, column % 64), from[i].x, from[i].y, from[i].z,
                     from[i].w);
    }
}

// d (+)= diag(live) (tile o by) state: 64 columns of V from v on, `by` a factor a column.
template <int K, bool minus>
__device__ void state_product(float (&d)[K / 4], const __nv_bfloat16 *tile, const __nv_bfloat16 *by,
                              const float (&live)[2], const __nv_bfloat16 *state, int v, bool add) {
    const place at;
    uint32_t rows[4][4];
#pragma unroll
    for (int step = 0; step < 4; step++) {
        get_rows(rows[step], tile, at.warp, v + step * 16, at.lane);
        scale_columns(rows[step], by + v + step * 16, at.lane);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            if (minus) rows[step][i] ^= 0x80008000u;
            if (live[i % 2] == 0.0f) rows[step][i] = 0;
        }
    }
    const operand_tile operand(state);
    products_begin();
#pragma unroll
    for (int step = 0; step < 4; step++)
        product<K / 2, 1>(d, rows[step], operand.mn(own_columns<K>(at.group) + step * 16 * 64, 64), add || step > 0);
    products_commit();
    products_wait<0>();
    products_done(d);
}

// dq = YO S^T, dx = Z dS'^T - YR S^T
template <int K, int V, bool delta>
__device__ void state_products(float (&dq)[K / 4], float (&dx)[K / 4], grads_memory<K, V, delta> &m,
                               const column_task &a) {
    const place at;
    float first[2] = {1.0f, 1.0f}, last[2] = {1.0f, 1.0f};
#pragma unroll
    for (int e = 0; a.documents && e < 2; e++) {
        const float document = m.tokens[at.row + e * 8].z;
        first[e] = document == 0.0f ? 1.0f : 0.0f, last[e] = document == m.tokens[63].z ? 1.0f : 0.0f;
    }
    __nv_bfloat16 *behind = m.state[state_tiles<delta> - 1];
#pragma unroll 1
    for (int v = 0; v < V; v += 64) {
        if (v > 0) __syncthreads();
        uint4 piece[pieces<K>];
        read_state<K, V>(piece, a.states, a, v);
        place_state<K>(m.state[0], piece);
        read_state<K, V>(piece, a.d_states, a, v);
        if (!delta) place_state<K>(behind, piece);
        publish();
        __syncthreads();
        state_product<K, false>(dq, m.d_o, m.first[at.warp], first, m.state[0], v, v > 0);
        if constexpr (delta) {
            state_product<K, true>(dx, m.dr, m.first[at.warp], first, m.state[0], v, v > 0);
            __syncthreads();
            place_state<K>(behind, piece);
            publish();
            __syncthreads();
        }
        state_product<K, false>(dx, m.y, m.last[at.warp], last, behind, v, delta || v > 0);
    }
}

// dq += M X, dx += M^T Q - (N + N^T) X
template <int K, int V, bool delta>
__device__ void weight_products(float (&dq)[K / 4], float (&dx)[K / 4], const grads_memory<K, V, delta> &m) {
    const int half = own_columns<K>(place().group);
    const operand_tile q(m.q), x(m.x), M(m.d_o), N(m.d_o + 4096);
    products_begin();
#pragma unroll
    for (int s = 0; s < 64; s += 16) {
        product<K / 2, 0, 1>(dq, M.k(s), x.mn(half + s * 64, 64), true);
        product<K / 2, 1, 1>(dx, M.mn(s * 64, 64), q.mn(half + s * 64, 64), true);
        if constexpr (delta) {
            product<K / 2, 0, 1>(dx, N.k(s), x.mn(half + s * 64, 64), true);
            product<K / 2, 1, 1>(dx, N.mn(s * 64, 64), x.mn(half + s * 64, 64), true);
        }
    }
    products_commit();
    products_wait<0>();
    products_done(dq);
    products_done(dx);
}

// dlambda of a step, and 2 dE into pull. A thread a step, of the warps that have the fewest blocks of M.
template <int K, int V, bool delta>
__device__ void scalar_grads(grads_memory<K, V, delta> &m, const column_task &a, const chunk_rate &rate) {
    const tile_of tile(a);
    const place at;
    if (at.warp != 3) return;
    const int r = at.group * 32 + at.lane, t = tile.c * 64 + r;
    const fwa_mixer_options &options = rate.task.options;
    const float4 token = m.tokens[r];
    float d_lambda = 0.0f, d_energy = 0.0f, dlbar = 0.0f;
    for (int slice = 0; slice < V / 64; slice++) {
        const float2 part = a.sums[((static_cast<int64_t>(tile.head) * (V / 64) + slice) * a.chunks + tile.c) * 64 + r];
        d_lambda += part.x, d_energy += part.y;
    }
    if (options.step == FWA_STEP_DIRECT) d_energy = 0.0f;
    d_lambda += d_energy;
    if (t < a.T && token.x != 0.0f && options.ridge != FWA_RIDGE_NONE) {
        const bool coupled = options.ridge == FWA_RIDGE_COUPLED;
        dlbar = coupled ? token.w * d_lambda : d_lambda;
        if (coupled && !options.detach_scale) d_energy += rate.task.lambda.get(tile.b, t, tile.h) * d_lambda;
    }
    m.pull[r] = 2.0f * d_energy;
    if (t < a.T && rate.task.dlambda.present()) rate.task.dlambda.set(dlbar, tile.b, t, tile.h);
}

template <int K, int V, bool delta>
__global__ void __launch_bounds__(threads, 2)
    column_grads_kernel(const __grid_constant__ column_task a, const __grid_constant__ chunk_rate rate) {
    extern __shared__ __align__(1024) unsigned char memory[];
    auto &m = *reinterpret_cast<grads_memory<K, V, delta> *>(memory);
    load_operands(m, a);
    {
        two_columns<K, V, delta> own(m);
        own.read(a);
        copy_wait<2>();
        __syncthreads();
        own.find_steps(a);
        copy_wait<1>();
        __syncthreads();
        own.place_operands();
        place_factors(m);
    }
    __syncthreads();
    scalar_grads(m, a, rate);
    weight_blocks own;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        weights(own.reads[i], m.d_o, m, own.row(i), own.column(), true, false, a.documents);
        if (delta) weights(own.residuals[i], m.dr, m, own.row(i), own.column(), false, true, a.documents);
    }
    float dq[K / 4], dx[K / 4];
    state_products<K, V, delta>(dq, dx, m, a);
    copy_wait<0>();
    __syncthreads();
    place_weights(m.d_o, own.reads);
    if (delta) place_weights(m.d_o + 4096, own.residuals);
    publish();
    __syncthreads();
    weight_products<K, V, delta>(dq, dx, m);
    __syncthreads();
    if (a.dq_parts)
        keep_part<K>(a.dq_parts, dq);
    else if (a.dq.data) {
        uint32_t pairs[K / 8];
        pack_pairs(pairs, dq);
        write_queries<K>(m.q, pairs, a, tile_of(a));
    }
    add_rows<K>(dx, m.x + own_columns<K>(place().group), m.pull);
    if (a.dx_parts)
        keep_part<K>(a.dx_parts, dx);
    else
        write_keys<K>(m.x, dx, a, tile_of(a));
}

template <int K, int V, bool delta>
fwa_status launch_grads(cudaStream_t stream, const column_task &task, const chunk_rate &rate) {
    constexpr int bytes = sizeof(grads_memory<K, V, delta>);
    const auto kernel = column_grads_kernel<K, V, delta>;
    FWA_CUDA_TRY(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
    FWA_LAUNCH(kernel, static_cast<unsigned>(task.B * task.H * task.chunks), threads, bytes, stream, task, rate);
    if (task.dq_parts) FWA_TRY(chunk_add_parts(stream, task, task.dq_parts, task.dx_parts, K));
    return FWA_OK;
}

template <int K, int V>
fwa_status pick_grads(cudaStream_t stream, const column_task &task, const chunk_rate &rate, bool delta) {
    return delta ? launch_grads<K, V, true>(stream, task, rate) : launch_grads<K, V, false>(stream, task, rate);
}

} // namespace

namespace fwa {

fwa_status chunk_column_grads(cudaStream_t stream, const column_task &task, const chunk_rate &rate, bool delta) {
    const bool narrow = rate.task.V == 64;
    if (rate.task.K == 64)
        return narrow ? pick_grads<64, 64>(stream, task, rate, delta) : pick_grads<64, 128>(stream, task, rate, delta);
    return narrow ? pick_grads<128, 64>(stream, task, rate, delta) : pick_grads<128, 128>(stream, task, rate, delta);
}

} // namespace fwa
