// Chunk form of the window core, backward, the chunk-parallel rest (docs/kernels.md). With C the coefficients of pairs
// at their last step, D the gradients of residuals at their first one, Y = dO S^T, W = D S^T, Z = C dS'^T:
//
//   dP_il = e^{u_i - u_C(l)} dO_i . C_l for l <= i - D, else near        dG_jl = -e^{seen_j - u_C(l)} D_j . C_l for
//   l <= j - W, else near, and of the largest eigenvalue, with its unit eigenvectors z: dE_t / B_t z_t z_t^T
//   dQ = dP X + diag(h) Y      dX = dP^T Q + (dG + dG^T) X - diag(e^seen) W + diag(e^{u_C - u_C(l)}) Z
//
// bf16 operands, fp32 sums; overwritten, the same bits every time. A block takes a chunk of a value head, 8 warps: each
// warpgroup has half of the columns of every product. S and then dS' use one tile, dP and dG those of dO and D. Value
// heads that share keys leave fp32 parts, which chunk_add_parts adds in their order.
#include "kernels/cuda/chunk_grads.cuh"
#include "kernels/cuda/chunk_window.cuh"

namespace {

using namespace fwa;

constexpr int threads = grads_threads;

template <int K, int V> struct grads_memory {
    __nv_bfloat16 q[64 * K], x[64 * K];       // later dq, dx
    __nv_bfloat16 d_o[64 * V], pulls[64 * V]; // later dP, dG; then sums, and dG of the eigenvalue
    __nv_bfloat16 coefficients[64 * V];
    __nv_bfloat16 state[K * V]; // rows of S^T, then of dS'^T: [V,K]
    float u[64], seen[64];
};

static_assert(sizeof(grads_parts) <= 64 * 64 * 2, "fits the place of dO");

// D [64,32] times the decay of pairs `first` and more rows back, and near ones, packed; the sums of P o D of the far
// pairs over the columns of the thread's two rows and, added, over these rows of its columns. P and D have the columns
// of the tile from 32 group on.
__device__ void apply_mask(uint32_t (&to)[8], const float (&P)[16], const float (&D)[16], const float *from,
                           const float *u, int halo, int first, const float *near, float (&column)[8],
                           float (&row)[2]) {
    const place at;
    row[0] = row[1] = 0.0f;
#pragma unroll
    for (int j = 0; j < 2; j++) {
        float masked[8] = {};
        if (at.group * 2 + j <= at.warp) {
#pragma unroll
            for (int n = 0; n < 8; n++) {
                const int s = (at.group * 2 + j) * 16 + n / 4 * 8 + at.t * 2 + n % 2, high = n % 4 / 2;
                const int i = at.row + high * 8, back = i - s, k = j * 8 + n;
                const float decay = back >= first ? power2(from[i] - u[min(s + halo, 63)]) : 0.0f;
                column[j * 4 + n / 4 * 2 + n % 2] += decay * P[k] * D[k];
                row[high] += decay * P[k] * D[k];
                masked[n] = D[k] * decay;
                if (at.group * 2 + j + 1 >= at.warp && back >= 0 && back < first)
                    masked[n] = near[i * (halo + 1) + back];
            }
        }
#pragma unroll
        for (int n = 0; n < 4; n++) to[j * 4 + n] = bf16_pair(masked[n * 2], masked[n * 2 + 1]);
    }
}

// What chunk_window_near left of the block's chunk.
__device__ const float *close_of(const window_task &a) {
    return a.close + static_cast<int64_t>(blockIdx.x) * window_close(a.window);
}

// Gradients of the gates by one warp: lane l has rows 2 l and 2 l + 1. With a_i the sum of row i of P o dP, n_j of G o
// dG, b_l of column l of both, far pairs alone, and h_i Q_i . Y_i in a_i, -e^{seen_j} X_j . W_j in n_j, dw and a share
// of dlg coming from near ones:
//   dlg_t = sum_{i >= t} a_i + sum_{j > t} n_j - sum_{l + D >= t} b_l + sum_{l + D < t} e^{u_C - u_C(l)} X_l . Z_l
//           + h_C <S, dS'>
template <int K, int V>
__device__ gate_pair gate_grads(const grads_memory<K, V> &m, const grads_parts &parts, const float *close, int halo) {
    const place at;
    float behind[2], before[2], residual[2], state = 0.0f;
    gate_pair to;
    for (int i = 0; i < 8; i++) state += parts.state[i];
#pragma unroll
    for (int e = 0; e < 2; e++) {
        const int r = at.lane * 2 + e, l = r - halo;
        float column = 0.0f;
        before[e] = 0.0f;
        if (l >= 0) {
            column = (parts.column[0][l] + parts.column[1][l]) + (parts.column[2][l] + parts.column[3][l]);
            before[e] = (parts.leave[0][l] + parts.leave[1][l]) * power2(m.u[63] - m.u[r]);
        }
        to.dw[e] = close[64 * 2 * (halo + 1) + r];
        to.dlg[e] = close[64 * (2 * (halo + 1) + 1) + r];
        residual[e] =
            parts.residual[0][r] + parts.residual[1][r] - power2(m.seen[r]) * (parts.sight[0][r] + parts.sight[1][r]);
        behind[e] = parts.row[0][r] + parts.row[1][r] - column +
                    power2(m.u[r]) * (parts.history[0][r] + parts.history[1][r]) + residual[e];
    }
    const float all_before = warp_prefix_sum(before[0] + before[1], at.lane) - before[0] - before[1];
    const float all_behind = warp_suffix_sum(behind[0] + behind[1], at.lane);
    const float through = power2(m.u[63]) * state;
    to.dlg[0] += all_behind - residual[0] + all_before + through;
    to.dlg[1] += all_behind - behind[0] - residual[1] + all_before + before[0] + through;
    return to;
}

// Tiles as operands, and where this warpgroup's columns start. Made anew in every phase, as `place` is, out of one
// register.
template <int K, int V> struct operands {
    int group;
    operand_tile q, x, d_o, pulls, coefficients, state;
    __device__ explicit operands(const grads_memory<K, V> &m)
        : group(place().group), q(operand_tile::anew(m.q)), x(q, 64 * K), d_o(x, 64 * K), pulls(d_o, 64 * V),
          coefficients(pulls, 64 * V), state(coefficients, 64 * V) {}
    // Rows 32 group .. of these are columns of the product.
    __device__ uint64_t rows_along(const operand_tile &tile, int k) const {
        return tile.k(group * 2048 + tile_column(k));
    }
    __device__ uint64_t states(int v) const {
        return state.mn(own_columns<K>(group, V) + v * 64, V);
    }
    __device__ uint64_t rows_of(const operand_tile &tile, int s) const {
        return tile.mn(own_columns<K>(group) + s * 64, 64);
    }
};

template <int K, int V>
__device__ void load_operands(grads_memory<K, V> &m, const window_task &a, const chunk_rate &rate) {
    const tile_of tile(a);
    const int thread = place().thread, c = tile.c, b = tile.b, h = tile.h, hq = tile.hq;
    const int64_t row = static_cast<int64_t>(blockIdx.x) * 64;
    load_steps<K, threads>(m.q, thread, a, a.q, b, hq, c);
    load_keys<K, threads>(m.x, thread, a, b, hq, c);
    load_steps<V, threads>(m.d_o, thread, a, a.d_o, b, h, c);
    const int stride = V * a.window;
    const __nv_bfloat16 *rows = a.members + row * stride;
    load_tile<V, threads>(m.coefficients, thread, {rows, stride, 0, 64, nullptr, 0, nullptr});
    load_tile<V, threads>(m.pulls, thread, {rows + V, stride, 0, 64, nullptr, 0, nullptr});
    load_blocks<V, K, threads>(m.state, thread, blocks_at<K>(a.states, blockIdx.x, V, 0));
    copy_commit();
    if (thread < 64) {
        m.u[thread] = a.u[row + thread], m.seen[thread] = a.seen[row + thread];
        const int t = tile_step(a, c, thread);
        if (t >= 0 && t < a.T) prefetch_scalars(rate.task, b, h, t);
        prefetch(rate.energy + ((static_cast<int64_t>(b) * a.Hq + hq) * a.chunks + c) * 64 + thread);
        if (thread < window_close(a.window) / 32) prefetch(close_of(a) + thread * 32);
    } else if (thread < 64 + 2 * a.window) {
        prefetch(a.top + (static_cast<int64_t>(b) * a.Hq + hq) * a.chunks * (64 * a.window) +
                 static_cast<int64_t>(c) * (64 * a.window) + (thread - 64) * 32);
    }
    if (thread < K * V / 64) prefetch_far(blocks_at<K>(a.d_states, blockIdx.x, V, 0) + thread * 8);
    copy_wait<0>();
    publish();
    __syncthreads();
}

template <int K, int V> __device__ void masked_products(masked_tiles &to, grads_memory<K, V> &m, const window_task &a) {
    const operands<K, V> at(m);
    const float *close = close_of(a);
    float P[16], D[16], column[8] = {};
    products_begin();
#pragma unroll
    for (int k = 0; k < K; k += 16) product<32, 0, 0>(P, at.q.k(tile_column(k)), at.rows_along(at.x, k), k > 0);
#pragma unroll
    for (int v = 0; v < V; v += 16)
        product<32, 0, 0>(D, at.d_o.k(tile_column(v)), at.rows_along(at.coefficients, v), v > 0);
    products_commit();
    products_wait<0>();
    products_done(P);
    products_done(D);
    apply_mask(to.reads, P, D, m.u, m.u, a.halo, a.halo, close + 64 * a.window, column, to.row);
    products_begin();
#pragma unroll
    for (int k = 0; k < K; k += 16) product<32, 0, 0>(P, at.x.k(tile_column(k)), at.rows_along(at.x, k), k > 0);
#pragma unroll
    for (int v = 0; v < V; v += 16)
        product<32, 0, 0>(D, at.pulls.k(tile_column(v)), at.rows_along(at.coefficients, v), v > 0);
    products_commit();
    products_wait<0>();
    products_done(P);
    products_done(D);
#pragma unroll
    for (int i = 0; i < 16; i++) D[i] = -D[i];
    apply_mask(to.keys, P, D, m.seen, m.u, a.halo, a.window, close, column, to.residual);
    to.column = column_sum(column);
}

// dq = diag(h) Y, dx = -diag(e^seen) W
template <int K, int V>
__device__ void state_products(float (&dq)[K / 4], float (&dx)[K / 4], row_sums &sums, const grads_memory<K, V> &m) {
    const operands<K, V> at(m);
    const place own;
    products_begin();
#pragma unroll
    for (int v = 0; v < V; v += 16) {
        product<K / 2, 0, 1>(dq, at.d_o.k(tile_column(v)), at.states(v), v > 0);
        product<K / 2, 0, 1>(dx, at.pulls.k(tile_column(v)), at.states(v), v > 0);
    }
    products_commit();
    products_wait<0>();
    products_done(dq);
    products_done(dx);
    sums.history = row_dots<K>(dq, m.q + own_columns<K>(own.group));
    sums.sight = row_dots<K>(dx, m.x + own_columns<K>(own.group));
    scale_rows(dq, power2(m.u[own.row]), power2(m.u[own.row + 8]));
    scale_rows(dx, -power2(m.seen[own.row]), -power2(m.seen[own.row + 8]));
}

// dx += diag(leave) Z
template <int K, int V>
__device__ void leaving_products(float (&dx)[K / 4], row_sums &sums, const grads_memory<K, V> &m, int halo) {
    const operands<K, V> at(m);
    const place own;
    float Z[K / 4];
    products_begin();
#pragma unroll
    for (int v = 0; v < V; v += 16) product<K / 2, 0, 1>(Z, at.coefficients.k(tile_column(v)), at.states(v), v > 0);
    products_commit();
    products_wait<0>();
    products_done(Z);
    sums.leave = row_dots<K>(Z, m.x + own_columns<K>(own.group));
    const float low = power2(m.u[63] - m.u[min(own.row + halo, 63)]);
    const float high = power2(m.u[63] - m.u[min(own.row + 8 + halo, 63)]);
#pragma unroll
    for (int i = 0; i < K / 4; i++) dx[i] += (i % 4 < 2 ? low : high) * Z[i];
}

// dx += dP^T Q + (dG + dG^T) X
template <int K, int V> __device__ void key_products(float (&dx)[K / 4], const grads_memory<K, V> &m) {
    const operands<K, V> at(m);
    products_begin();
#pragma unroll
    for (int s = 0; s < 64; s += 16) {
        product<K / 2, 1, 1>(dx, at.d_o.mn(s * 64, 64), at.rows_of(at.q, s), true);
        product<K / 2, 0, 1>(dx, at.pulls.k(s), at.rows_of(at.x, s), true);
        product<K / 2, 1, 1>(dx, at.pulls.mn(s * 64, 64), at.rows_of(at.x, s), true);
    }
    products_commit();
    products_wait<0>();
    products_done(dx);
}

// 2 sum_t dE_t / B_t z_t z_t^T of the chunk's steps, into a tile of zeros; pull: dE_t / B_t.
__device__ void place_energies(__nv_bfloat16 *tile, const float *pull, const window_task &a, const tile_of &of) {
    const int W = a.window, D = a.halo, bits = W == 8 ? 3 : 2;
    const float *top = a.top + ((static_cast<int64_t>(of.b) * a.Hq + of.hq) * a.chunks + of.c) * (64 * W);
    for (int n = place().thread; n < 64 * W; n += threads) {
        const int row = n >> bits, column = row - (n & D);
        float sum = 0.0f;
        if (column < 0) continue;
        for (int i = max(row, D); i <= min(column + D, 63); i++)
            sum += 2.0f * pull[i] * top[i * W + row - i + D] * top[i * W + column - i + D];
        tile[swizzled<64>(row, column)] = tile[swizzled<64>(column, row)] = __float2bfloat16(sum);
    }
}

// dx += A X for the symmetric A of place_energies.
template <int K, int V> __device__ void energy_products(float (&dx)[K / 4], const grads_memory<K, V> &m) {
    const operands<K, V> at(m);
    products_begin();
#pragma unroll
    for (int s = 0; s < 64; s += 16) product<K / 2, 0, 1>(dx, at.pulls.k(s), at.rows_of(at.x, s), true);
    products_commit();
    products_wait<0>();
    products_done(dx);
}

// With K 128 and V 64 the compiler finds no way to do with 128 registers without a wait behind every product.
template <int K, int V>
__global__ void __launch_bounds__(threads, K > V ? 1 : 2)
    window_grads_kernel(const __grid_constant__ window_task a, const __grid_constant__ chunk_rate rate) {
    extern __shared__ __align__(1024) unsigned char memory[];
    auto &m = *reinterpret_cast<grads_memory<K, V> *>(memory);
    auto &parts = *reinterpret_cast<grads_parts *>(m.d_o);
    load_operands(m, a, rate);
    masked_tiles masked;
    masked_products(masked, m, a);
    float dq[K / 4], dx[K / 4], state;
    row_sums sums;
    state_products(dq, dx, sums, m);
    __syncthreads();
    place_masked(m.d_o, masked.reads);
    place_masked(m.pulls, masked.keys);
    { state = replace_state<K, V>(m.state, blocks_at<K>(a.d_states, blockIdx.x, V, 0)); }
    publish();
    __syncthreads();
    uint32_t dq_pairs[K / 8];
    {
        const operands<K, V> at(m);
        products_begin();
#pragma unroll
        for (int s = 0; s < 64; s += 16) product<K / 2, 0, 1>(dq, at.d_o.k(s), at.rows_of(at.x, s), true);
        products_commit();
        products_wait<0>();
        products_done(dq);
        if (a.dq_parts) keep_part<K>(a.dq_parts, dq);
        pack_pairs(dq_pairs, dq);
    }
    leaving_products(dx, sums, m, a.halo);
    key_products(dx, m);
    __syncthreads();
    place_sums(parts, masked, sums, state);
    if (place().thread == 0) parts.tile = tile_of(a);
    for (int i = place().thread; i < 64 * 64 / 8; i += threads)
        reinterpret_cast<uint4 *>(m.pulls)[i] = make_uint4(0, 0, 0, 0);
    __syncthreads();
    if (place().thread < 64) { // one of the lane's two rows in each warp
        const place at;
        const gate_pair gates = gate_grads(m, parts, close_of(a), a.halo);
        const tile_of &tile = parts.tile;
        const int row = at.lane * 2 + at.warp;
        parts.pull[row] = scalar_grads(rate, a, at.warp ? gates.dw[1] : gates.dw[0],
                                       at.warp ? gates.dlg[1] : gates.dlg[0], tile.b, tile.hq, tile.h, tile.c, row);
    }
    if (a.dq.data && !a.dq_parts) write_queries<K>(m.q, dq_pairs, a, parts.tile);
    __syncthreads();
    place_energies(m.pulls, parts.pull, a, parts.tile);
    publish();
    __syncthreads();
    energy_products(dx, m);
    __syncthreads();
    if (a.dx_parts)
        keep_part<K>(a.dx_parts, dx);
    else
        write_keys<K>(m.x, dx, a, parts.tile);
}

template <int K, int V> fwa_status launch_grads(cudaStream_t stream, const window_task &task, const chunk_rate &rate) {
    constexpr int bytes = sizeof(grads_memory<K, V>);
    const auto kernel = window_grads_kernel<K, V>;
    FWA_CUDA_TRY(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
    FWA_LAUNCH(kernel, static_cast<unsigned>(task.B * task.H * task.chunks), threads, bytes, stream, task, rate);
    if (task.dq_parts) FWA_TRY(chunk_add_parts(stream, task, task.dq_parts, task.dx_parts, K));
    return FWA_OK;
}

} // namespace

namespace fwa {

fwa_status chunk_window_grads(cudaStream_t stream, const window_task &task, const chunk_rate &rate) {
    const bool narrow = rate.task.V == 64;
    if (rate.task.K == 64)
        return narrow ? launch_grads<64, 64>(stream, task, rate) : launch_grads<64, 128>(stream, task, rate);
    return narrow ? launch_grads<128, 64>(stream, task, rate) : launch_grads<128, 128>(stream, task, rate);
}

} // namespace fwa
