// Chunk form of the delta core, backward, the chunk-parallel part (docs/kernels.md). With P = Q X^T, G = X X^T,
// D = dO R^T, U = dV, Y = dO S^T, W = U S^T, Z = R dS'^T and N_is = w_s e^{seen_i - u_s} for s < i:
//
//   dA = -U R^T below the diagonal, dG = dA o N
//   dQ = (D o M) X + diag(h) Y      dX = (D o M)^T Q + (dG + dG^T) X - diag(g) W + diag(M_C) Z
//   dM = P o D,  dN = dA o G,  dM_C = X . Z,  dh = Q . Y,  dg = -X . W,  dh_C = <S, dS'>, and from these those of gates
//
// bf16 operands, fp32 sums; overwritten, the same bits every time. A block takes a chunk of a value head, 8 warps: each
// warpgroup has half of the columns of every product. S and then dS' use one tile, D o M and dG those of dO and U, so
// that two blocks fit a multiprocessor where K = V = 128. Value heads that share keys leave fp32 parts, which
// chunk_add_parts adds in their order.
#include "kernels/cuda/chunk_delta.cuh"
#include "kernels/cuda/chunk_grads.cuh"

namespace {

using namespace fwa;

constexpr int threads = grads_threads;

template <int K, int V> struct grads_memory {
    __nv_bfloat16 q[64 * K], x[64 * K];         // later dq, dx
    __nv_bfloat16 d_o[64 * V], d_r[64 * V];     // dO, U; later D o M, dG; then sums
    __nv_bfloat16 r[V * 64];                    // rows of R^T
    __nv_bfloat16 state[K * V];                 // rows of S^T, then of dS'^T: [V,K]
    float u[64], w[64], seen[64], diagonal[64]; // diagonal: of P o D
};

static_assert(sizeof(grads_parts) <= 64 * 64 * 2, "fits the place of dO");

// D [64,32] times the mask, packed for m.d_o or m.d_r, and the sums of P o D over the columns of the thread's two rows
// and, without w and added, over these rows of its columns; P, D have columns 32 group .. of the tile. Row i decays
// from `from`[i]; on the diagonal the weight is w where there is room for P o D there, else 0.
__device__ void apply_mask(uint32_t (&to)[8], const float (&P)[16], const float (&D)[16], const float *from,
                           const float *u, const float *w, float *diagonal, float (&column)[8], float (&row)[2]) {
    const place at;
    const float u_low = from[at.row], u_high = from[at.row + 8];
    row[0] = row[1] = 0.0f;
#pragma unroll
    for (int j = 0; j < 2; j++) {
        float masked[8] = {};
        if (at.group * 2 + j <= at.warp) {
#pragma unroll
            for (int n = 0; n < 8; n++) {
                const int s = (at.group * 2 + j) * 16 + n / 4 * 8 + at.t * 2 + n % 2, high = n % 4 / 2;
                const int i = at.row + high * 8, k = j * 8 + n;
                const float decay = s < i ? power2((high ? u_high : u_low) - u[s]) : 0.0f, both = P[k] * D[k];
                column[j * 4 + n / 4 * 2 + n % 2] += decay * both;
                row[high] += w[s] * (decay * both);
                if (diagonal && s == i) diagonal[s] = both;
                masked[n] = D[k] * w[s] * (diagonal && s == i ? 1.0f : decay);
            }
        }
#pragma unroll
        for (int n = 0; n < 4; n++) to[j * 4 + n] = bf16_pair(masked[n * 2], masked[n * 2 + 1]);
    }
}

// Gradients of the gates by one warp: lane l has rows 2 l and 2 l + 1. With a_i = sum_{s<i} M_is (P o D)_is + h_i dh_i,
// n_i = sum_s N_is dN_is + g_i dg_i and b_s the sums of column s of both without w_s:
//   dw_s  = (P o D)_ss + b_s + e^{u_C - u_s} dM_Cs
//   dlg_t = sum_{i>=t} (a_i - w_i b_i) + sum_{i>t} n_i + sum_{s<t} M_Cs dM_Cs + h_C <S, dS'>
// and n_t as well where the decay acts first.
template <int K, int V>
__device__ gate_pair gate_grads(const grads_memory<K, V> &m, const grads_parts &parts, bool decay_first) {
    const place at;
    float behind[2], before[2], residual[2], state = 0.0f;
    gate_pair to;
    for (int i = 0; i < 8; i++) state += parts.state[i];
#pragma unroll
    for (int e = 0; e < 2; e++) {
        const int r = at.lane * 2 + e;
        const float column = (parts.column[0][r] + parts.column[1][r]) + (parts.column[2][r] + parts.column[3][r]);
        const float leave = (parts.leave[0][r] + parts.leave[1][r]) * power2(m.u[63] - m.u[r]);
        to.dw[e] = column + m.diagonal[r] + leave;
        before[e] = m.w[r] * leave;
        residual[e] =
            parts.residual[0][r] + parts.residual[1][r] - power2(m.seen[r]) * (parts.sight[0][r] + parts.sight[1][r]);
        behind[e] = parts.row[0][r] + parts.row[1][r] - m.w[r] * column +
                    power2(m.u[r]) * (parts.history[0][r] + parts.history[1][r]) + residual[e];
    }
    const float all_before = warp_prefix_sum(before[0] + before[1], at.lane) - before[0] - before[1];
    const float all_behind = warp_suffix_sum(behind[0] + behind[1], at.lane);
    const float through = power2(m.u[63]) * state;
    to.dlg[0] = all_behind + all_before + through;
    to.dlg[1] = all_behind - behind[0] + all_before + before[0] + through;
    if (!decay_first) to.dlg[0] -= residual[0], to.dlg[1] -= residual[1];
    return to;
}

// Tiles as operands, and where this warpgroup's columns start. Made anew in every phase, as `place` is, out of one
// register.
template <int K, int V> struct operands {
    int group;
    operand_tile q, x, d_o, d_r, r, state;
    __device__ explicit operands(const grads_memory<K, V> &m)
        : group(place().group), q(operand_tile::anew(m.q)), x(q, 64 * K), d_o(x, 64 * K), d_r(d_o, 64 * V),
          r(d_r, 64 * V), state(r, 64 * V) {}
    __device__ uint64_t keys(int k) const {
        return x.k(group * 2048 + tile_column(k));
    }
    __device__ uint64_t residuals(int v) const {
        return r.mn(group * 32 + v * 64, 64);
    }
    __device__ uint64_t states(int v) const {
        return state.mn(own_columns<K>(group, V) + v * 64, V);
    }
    __device__ uint64_t rows_of(const operand_tile &tile, int s) const {
        return tile.mn(own_columns<K>(group) + s * 64, 64);
    }
};

template <int K, int V>
__device__ void load_operands(grads_memory<K, V> &m, const delta_task &a, const chunk_rate &rate) {
    const tile_of tile(a);
    const int thread = place().thread, c = tile.c, b = tile.b, h = tile.h, hq = tile.hq;
    load_steps<K, threads>(m.q, thread, a, a.q, b, hq, c);
    load_keys<K, threads>(m.x, thread, a, b, hq, c);
    load_steps<V, threads>(m.d_o, thread, a, a.d_o, b, h, c);
    load_steps<V, threads>(m.d_r, thread, a, a.dv, b, h, c);
    load_blocks<V, 64, threads>(m.r, thread, blocks_at<64>(a.residuals, blockIdx.x, V, 0));
    load_blocks<V, K, threads>(m.state, thread, blocks_at<K>(a.states, blockIdx.x, V, 0));
    copy_commit();
    if (thread < 64) {
        const delta_gates &gates = a.gates[tile_index(a, tile.head, c)];
        m.u[thread] = gates.u[thread], m.w[thread] = gates.w[thread], m.seen[thread] = gates.seen[thread];
        const int t = tile_step(a, c, thread);
        if (t < a.T) prefetch_scalars(rate.task, b, h, t);
        if (rate.energy) prefetch(rate.energy + ((static_cast<int64_t>(b) * a.Hq + hq) * a.chunks + c) * 64 + thread);
    }
    if (thread < K * V / 64) prefetch_far(blocks_at<K>(a.d_states, blockIdx.x, V, 0) + thread * 8);
    copy_wait<0>();
    publish();
    __syncthreads();
}

template <int K, int V> __device__ void masked_products(masked_tiles &to, grads_memory<K, V> &m) {
    const operands<K, V> at(m);
    float P[16], D[16], column[8] = {};
    products_begin();
#pragma unroll
    for (int k = 0; k < K; k += 16) product<32, 0, 0>(P, at.q.k(tile_column(k)), at.keys(k), k > 0);
#pragma unroll
    for (int v = 0; v < V; v += 16) product<32, 0, 1>(D, at.d_o.k(tile_column(v)), at.residuals(v), v > 0);
    products_commit();
    products_wait<0>();
    products_done(P);
    products_done(D);
    apply_mask(to.reads, P, D, m.u, m.u, m.w, m.diagonal, column, to.row);
    products_begin();
#pragma unroll
    for (int k = 0; k < K; k += 16) product<32, 0, 0>(P, at.x.k(tile_column(k)), at.keys(k), k > 0);
#pragma unroll
    for (int v = 0; v < V; v += 16) product<32, 0, 1>(D, at.d_r.k(tile_column(v)), at.residuals(v), v > 0);
    products_commit();
    products_wait<0>();
    products_done(P);
    products_done(D);
#pragma unroll
    for (int i = 0; i < 16; i++) D[i] = -D[i];
    apply_mask(to.keys, P, D, m.seen, m.u, m.w, nullptr, column, to.residual);
    to.column = column_sum(column);
}

// dq = diag(h) Y, dx = -diag(g) W
template <int K, int V>
__device__ void state_products(float (&dq)[K / 4], float (&dx)[K / 4], row_sums &sums, const grads_memory<K, V> &m) {
    const operands<K, V> at(m);
    const place own;
    products_begin();
#pragma unroll
    for (int v = 0; v < V; v += 16) {
        product<K / 2, 0, 1>(dq, at.d_o.k(tile_column(v)), at.states(v), v > 0);
        product<K / 2, 0, 1>(dx, at.d_r.k(tile_column(v)), at.states(v), v > 0);
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

// dx += diag(M_C) Z
template <int K, int V>
__device__ void leaving_products(float (&dx)[K / 4], row_sums &sums, const grads_memory<K, V> &m) {
    const operands<K, V> at(m);
    const place own;
    float Z[K / 4];
    products_begin();
#pragma unroll
    for (int v = 0; v < V; v += 16) product<K / 2, 1, 1>(Z, at.r.mn(v * 64, 64), at.states(v), v > 0);
    products_commit();
    products_wait<0>();
    products_done(Z);
    sums.leave = row_dots<K>(Z, m.x + own_columns<K>(own.group));
    const float low = m.w[own.row] * power2(m.u[63] - m.u[own.row]);
    const float high = m.w[own.row + 8] * power2(m.u[63] - m.u[own.row + 8]);
#pragma unroll
    for (int i = 0; i < K / 4; i++) dx[i] += (i % 4 < 2 ? low : high) * Z[i];
}

// dx += (D o M)^T Q + (dG + dG^T) X
template <int K, int V> __device__ void key_products(float (&dx)[K / 4], const grads_memory<K, V> &m) {
    const operands<K, V> at(m);
    products_begin();
#pragma unroll
    for (int s = 0; s < 64; s += 16) {
        product<K / 2, 1, 1>(dx, at.d_o.mn(s * 64, 64), at.rows_of(at.q, s), true);
        product<K / 2, 0, 1>(dx, at.d_r.k(s), at.rows_of(at.x, s), true);
        product<K / 2, 1, 1>(dx, at.d_r.mn(s * 64, 64), at.rows_of(at.x, s), true);
    }
    products_commit();
    products_wait<0>();
    products_done(dx);
}

// With K 128 and V 64 the compiler finds no way to do with 128 registers without a wait behind every product.
template <int K, int V>
__global__ void __launch_bounds__(threads, K > V ? 1 : 2)
    delta_grads_kernel(const __grid_constant__ delta_task a, const __grid_constant__ chunk_rate rate) {
    extern __shared__ __align__(1024) unsigned char memory[];
    auto &m = *reinterpret_cast<grads_memory<K, V> *>(memory);
    auto &parts = *reinterpret_cast<grads_parts *>(m.d_o);
    load_operands(m, a, rate);
    masked_tiles masked;
    masked_products(masked, m);
    float dq[K / 4], dx[K / 4], state;
    row_sums sums;
    state_products(dq, dx, sums, m);
    __syncthreads();
    place_masked(m.d_o, masked.reads);
    place_masked(m.d_r, masked.keys);
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
    leaving_products(dx, sums, m);
    key_products(dx, m);
    __syncthreads();
    place_sums(parts, masked, sums, state);
    if (place().thread == 0) parts.tile = tile_of(a);
    __syncthreads();
    const place at;
    if (at.thread < 64) { // one of the lane's two rows in each warp
        const gate_pair gates = gate_grads(m, parts, rate.task.decay_first);
        const tile_of &tile = parts.tile;
        const int row = at.lane * 2 + at.warp;
        parts.pull[row] =
            2.0f * scalar_grads(rate, a, at.warp ? gates.dw[1] : gates.dw[0], at.warp ? gates.dlg[1] : gates.dlg[0],
                                tile.b, tile.hq, tile.h, tile.c, row);
    }
    if (a.dq.data && !a.dq_parts) write_queries<K>(m.q, dq_pairs, a, parts.tile);
    if (rate.energy) {
        __syncthreads();
        add_rows<K>(dx, m.x + own_columns<K>(at.group), parts.pull);
    }
    if (a.dx_parts)
        keep_part<K>(a.dx_parts, dx);
    else
        write_keys<K>(m.x, dx, a, parts.tile);
}

template <int K, int V> fwa_status launch_grads(cudaStream_t stream, const delta_task &task, const chunk_rate &rate) {
    constexpr int bytes = sizeof(grads_memory<K, V>);
    const auto kernel = delta_grads_kernel<K, V>;
    FWA_CUDA_TRY(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
    FWA_LAUNCH(kernel, static_cast<unsigned>(task.B * task.H * task.chunks), threads, bytes, stream, task, rate);
    if (task.dq_parts) FWA_TRY(chunk_add_parts(stream, task, task.dq_parts, task.dx_parts, K));
    return FWA_OK;
}

} // namespace

namespace fwa {

fwa_status chunk_delta_grads(cudaStream_t stream, const delta_task &task, const chunk_rate &rate) {
    const bool narrow = rate.task.V == 64;
    if (rate.task.K == 64)
        return narrow ? launch_grads<64, 64>(stream, task, rate) : launch_grads<64, 128>(stream, task, rate);
    return narrow ? launch_grads<128, 64>(stream, task, rate) : launch_grads<128, 128>(stream, task, rate);
}

} // namespace fwa
