// Chunk form of the additive core, backward, the chunk-parallel part (docs/kernels.md). With P = Q X^T, D = dO V^T,
// Y = dO S^T, Z = V dS'^T and the mask M of a chunk, M_C the weights with which its pairs leave it:
//
//   dQ = (D o M) X + diag(h) Y      dX = (D o M)^T Q + diag(M_C) Z      dV = (P o M)^T dO + diag(M_C) X dS'
//   dM = P o D,  dM_C = X . Z,  dh = Q . Y,  dh_C = <S, dS'>, and from these the gradients of w and of the decays
//
// bf16 operands, fp32 sums; overwritten, the same bits every time. A block takes a chunk of a query/key head, 8 warps:
// each warpgroup has half of the columns of every product. S and then dS' use one tile, so that two blocks fit a
// multiprocessor where K = V = 128. Value heads that share a query/key head: chunk_additive_shared.cu.
#include "kernels/cuda/chunk_additive_gates.cuh"

namespace {

using namespace fwa;

constexpr int threads = 256;

// Two blocks a multiprocessor leave room for one tile of 128 x 128.
template <int K, int V> constexpr int state_tiles = K *V < 128 * 128 ? 2 : 1;

template <int K, int V> struct grads_memory {
    __nv_bfloat16 q[64 * K], x[64 * K];            // later dq, dx
    __nv_bfloat16 v[64 * V], d_o[64 * V];          // later dv
    __nv_bfloat16 state[state_tiles<K, V>][K * V]; // rows of S^T, of dS'^T: [V,K]; in turn where there is one tile
    __nv_bfloat16 p[64 * 64], d[64 * 64];          // masked; later sums
    float u[64], w[64], far[64], pairs[64];        // far, pairs: with a window
};

// In the place of m.p when it has been used.
template <int W> struct chunk_sums {
    part_sums parts;
    float reach[2][W][64];
    key_pulls pulls;
};

template <int K, int V> constexpr int pieces = K *V / 8 / threads; // of a state, for each thread

__device__ float dot_pieces(const uint4 &a, const uint4 &b) {
    return (dot_pair(a.x, b.x) + dot_pair(a.y, b.y)) + (dot_pair(a.z, b.z) + dot_pair(a.w, b.w));
}

// Sums of P o D of this thread's rows and, over the warp's rows, of the column that it keeps.
struct mask_sums {
    float row_low, row_high, column;
};

// P, D [64,32]: columns 32 group .. of the tile. Masked into m.p and m.d, where blocks of 16 columns beyond the warp's
// rows are zeros; with a window P o D of the band, in `band`.
template <int K, int V, int W>
__device__ mask_sums apply_mask(grads_memory<K, V> &m, float (&P)[16], float (&D)[16], const tile_mask<W> &mask,
                                float *band) {
    const place at;
    float row[2] = {}, column[2][4] = {};
    mask_sums sums = {};
    const mask_rows rows(mask, at.row);
#pragma unroll
    for (int j = 0; j < 2; j++) {
        const int block = at.group * 2 + j, s0 = block * 16 + at.t * 2;
        uint32_t pairs[4] = {}, grads[4] = {};
        if (block <= at.warp) {
            float both[8], weight[8];
#pragma unroll
            for (int n = 0; n < 8; n++) both[n] = P[j * 8 + n] * D[j * 8 + n];
            if (block + (W > 1) < at.warp)
                weigh_block<W, true>(mask, rows, s0, both, weight, row, column[j], band);
            else
                weigh_block<W, false>(mask, rows, s0, both, weight, row, column[j], band);
#pragma unroll
            for (int n = 0; n < 8; n++) P[j * 8 + n] *= weight[n], D[j * 8 + n] *= weight[n];
            fragment(pairs, P, j);
            fragment(grads, D, j);
        }
        const int to = swizzled<64>(at.warp * 16 + at.lane % 16, block * 16 + at.lane / 16 * 8);
        store_matrix(m.p + to, pairs[0], pairs[1], pairs[2], pairs[3]);
        store_matrix(m.d + to, grads[0], grads[1], grads[2], grads[3]);
    }
    sums.row_low = quad_sum(row[0]), sums.row_high = quad_sum(row[1]);
    sums.column = spread_columns(column);
    return sums;
}

// One chunk of one head.
template <int K, int V, int W> struct grads_block {
    const chunk_task &a;
    const chunk_rate &rate;
    grads_memory<K, V> &m;
    int b, h, c;
    place at;
    int64_t head, gates;
    operand_tile q, x, v_tile, d_o, p, d, state, d_state;
    operand_tile q_columns, x_columns, d_o_columns, state_columns, d_state_columns, x_rows, v_rows, state_rows,
        d_state_rows;
    tile_mask<W> mask;

    __device__ grads_block(const chunk_task &task, const chunk_rate &rates, grads_memory<K, V> &memory, int batch,
                           int value, int chunk)
        : a(task), rate(rates), m(memory), b(batch), h(value), c(chunk), head(static_cast<int64_t>(b) * a.H + h),
          gates((head * a.chunks + c) * 64), q(m.q), x(m.x), v_tile(m.v), d_o(m.d_o), p(m.p), d(m.d), state(m.state[0]),
          d_state(m.state[state_tiles<K, V> - 1]), q_columns(q, own_columns<K>(at.group)),
          x_columns(x, own_columns<K>(at.group)), d_o_columns(d_o, own_columns<V>(at.group)),
          state_columns(state, own_columns<K>(at.group, V)), d_state_columns(d_state, own_columns<K>(at.group, V)),
          x_rows(x, at.group * 2048), v_rows(v_tile, at.group * 2048), state_rows(state, at.group * (V / 2) * 64),
          d_state_rows(d_state, at.group * (V / 2) * 64), mask{m.u, m.w, m.far, a.band + gates} {}

    __device__ __nv_bfloat16 *q_half() const {
        return m.q + own_columns<K>(at.group);
    }
    __device__ __nv_bfloat16 *x_half() const {
        return m.x + own_columns<K>(at.group);
    }
    __device__ __nv_bfloat16 *v_half() const {
        return m.v + own_columns<V>(at.group);
    }

    __device__ void load_gates() const {
        const int thread = at.thread, t = tile_step(a, c, thread);
        if (thread >= 64) return;
        m.u[thread] = a.u[gates + thread];
        m.w[thread] = a.w[gates + thread];
        if (thread >= a.halo && t < a.T) prefetch_scalars(rate.task, b, h, t);
        if (rate.energy) prefetch(rate.energy + static_cast<int64_t>(blockIdx.x) * 64 + thread);
        if (W == 1) return;
        m.far[thread] = a.far[gates + thread], m.pairs[thread] = a.pairs[gates + thread];
        prefetch(a.band + gates + thread);
    }

    // Everything into shared memory; dS' into the second level of the cache where there is one tile for states.
    __device__ void load() const {
        const uint4 *after = blocks_at<K>(a.d_states, a, head, c, V, 0);
        load_steps<K, threads>(m.q, at.thread, a, a.q, b, h, c);
        load_keys<K, threads>(m.x, at.thread, a, b, h, c);
        load_steps<V, threads>(m.d_o, at.thread, a, a.d_o, b, h, c);
        for (int v = 0; v < V; v += 64) load_values<threads>(m.v + v * 64, at.thread, a, V, v, b, h, c);
        load_blocks<V, K, threads>(m.state[0], at.thread, blocks_at<K>(a.states, a, head, c, V, 0));
        if (state_tiles<K, V> == 2) load_blocks<V, K, threads>(m.state[1], at.thread, after);
        copy_commit();
        if (state_tiles<K, V> == 1 && at.thread < K * V / 64) prefetch_far(after + at.thread * 8);
        load_gates();
        copy_wait<0>();
        publish();
        __syncthreads();
    }

    // The warp's part of <S, dS'>; dS' takes the place of S where there is one tile.
    __device__ float join_states() const {
        const uint4 *after = blocks_at<K>(a.d_states, a, head, c, V, 0);
        float sum = 0.0f;
#pragma unroll
        for (int i = 0; i < pieces<K, V>; i++) {
            const int place = block_place<V, K>(i * threads + at.thread);
            auto *S = reinterpret_cast<uint4 *>(m.state[0] + place);
            if constexpr (state_tiles<K, V> == 2) {
                sum += dot_pieces(*S, *reinterpret_cast<const uint4 *>(m.state[1] + place));
            } else {
                const uint4 behind = after[i * threads + at.thread];
                sum += dot_pieces(*S, behind);
                *S = behind;
            }
        }
        return warp_sum(sum);
    }

    // P and D, masked, into their tiles.
    __device__ mask_sums masked(float *band) const {
        float P[16], D[16];
        products_begin();
#pragma unroll
        for (int k = 0; k < K; k += 16) {
            const int step = tile_column(k);
            product<32, 0, 0>(P, q.k(step), x_rows.k(step), k > 0);
        }
#pragma unroll
        for (int k = 0; k < V; k += 16) {
            const int step = tile_column(k);
            product<32, 0, 0>(D, d_o.k(step), v_rows.k(step), k > 0);
        }
        products_commit();
        products_wait<0>();
        products_done(P);
        products_done(D);
        return apply_mask<K, V, W>(m, P, D, mask, band);
    }

    // dq = diag(h) Y; returns Q_i . Y_i of the thread's rows.
    __device__ float2 history(float (&dq)[K / 4]) const {
        products_begin();
#pragma unroll
        for (int v = 0; v < V; v += 16)
            product<K / 2, 0, 1>(dq, d_o.k(tile_column(v)), state_columns.mn(v * 64, V), v > 0);
        products_commit();
        products_wait<0>();
        products_done(dq);
        const float2 dots = row_dots<K>(dq, q_half());
        scale_rows(dq, at.row < a.halo ? 0.0f : power2(m.u[at.row]),
                   at.row + 8 < a.halo ? 0.0f : power2(m.u[at.row + 8]));
        publish();
        __syncthreads();
        return dots;
    }

    // dq += (D o M) X; returns the warp's part of <S, dS'>.
    __device__ float query_grads(float (&dq)[K / 4]) const {
        products_ready(dq);
        products_begin();
#pragma unroll
        for (int s = 0; s < 64; s += 16) product<K / 2, 0, 1>(dq, d.k(s), x_columns.mn(s * 64, 64), true);
        products_commit();
        const float sum = join_states();
        publish();
        products_wait<0>();
        products_done(dq);
        return sum;
    }

    // dx = diag(M_C) Z and dv = diag(M_C) X dS'; returns X_s . Z_s, which is (dS'^T X_s) . V_s.
    __device__ float2 leaving(float (&dx)[K / 4], float (&dv)[V / 4]) const {
        products_begin();
#pragma unroll
        for (int v = 0; v < V; v += 16)
            product<K / 2, 0, 1>(dx, v_tile.k(tile_column(v)), d_state_columns.mn(v * 64, V), v > 0);
#pragma unroll
        for (int k = 0; k < K; k += 16)
            product<V / 2, 0, 0>(dv, x.k(tile_column(k)), d_state_rows.k(k / 64 * (V * 64) + k % 64), k > 0);
        products_commit();
        products_wait<0>();
        products_done(dx);
        products_done(dv);
        const float2 dots = row_dots<V>(dv, v_half());
        const float low = mask.at(63, at.row, m.u[63]), high = mask.at(63, at.row + 8, m.u[63]);
        scale_rows(dv, low, high);
        scale_rows(dx, low, high);
        return dots;
    }

    // dx += (D o M)^T Q, dv += (P o M)^T dO.
    __device__ void pair_grads(float (&dx)[K / 4], float (&dv)[V / 4]) const {
        products_ready(dx);
        products_ready(dv);
        products_begin();
#pragma unroll
        for (int i = 0; i < 64; i += 16) {
            product<K / 2, 1, 1>(dx, d.mn(i * 64, 64), q_columns.mn(i * 64, 64), true);
            product<V / 2, 1, 1>(dv, p.mn(i * 64, 64), d_o_columns.mn(i * 64, 64), true);
        }
        products_commit();
        products_wait<0>();
        products_done(dx);
        products_done(dv);
        __syncthreads();
    }

    __device__ void keep_parts(part_sums &parts, const mask_sums &sums, float2 history, float2 leave,
                               float state_part) const {
        if (at.t == 0) {
            parts.row[at.group][at.row] = sums.row_low, parts.row[at.group][at.row + 8] = sums.row_high;
            parts.history[at.group][at.row] = history.x, parts.history[at.group][at.row + 8] = history.y;
            parts.leave[at.group][at.row] = leave.x, parts.leave[at.group][at.row + 8] = leave.y;
        }
        parts.column[at.warp][kept_column()] = sums.column;
        if (at.lane == 0) parts.state[at.thread / 32] = state_part;
    }

    // This tile's part of edges of `width` columns.
    __device__ float *edges_of(float *edges, int64_t of, int width) const {
        const int64_t rows = 2 * a.halo + 1;
        return edges ? edges + (of * (a.chunks * rows) + c * rows) * width : nullptr;
    }

    __device__ void write_queries(const uint32_t (&dq)[K / 8]) const {
        place_rows<K>(q_half(), dq);
        if (a.dq.data)
            copy_rows<K>(q_half(), a.dq.row(b, tile_step(a, c, 0), h), a.dq.time, a.halo, a.T - tile_step(a, c, 0));
    }

    // By the first two warps, every other row each, beside what the others store; who needs the pulls waits for them.
    __device__ void write_scalars(chunk_sums<W> &sums, const float *band) const {
        const gate_rows rows = {m.u, m.w, m.pairs};
        const int odd = at.thread / 32, r = at.lane * 2 + odd;
        gate_pair pair;
        if constexpr (W > 1)
            pair = window_gate_grads(rows, mask, sums.parts, band, sums.reach[odd], at.lane);
        else
            pair = plain_gate_grads(rows, sums.parts, at.lane);
        const float energy =
            scalar_grads(rate, a, odd ? pair.dw[1] : pair.dw[0], odd ? pair.dlg[1] : pair.dlg[0], b, h, h, c, r);
        if (!rate.energy) return;
        sums.pulls.energy[r] = energy;
        barrier_of(2, 64);
        pulls(m.pairs, sums.pulls, at.thread, a.halo);
        barrier_of(2, 64);
        barrier_arrive(1, threads);
    }

    __device__ void write_keys(float (&dx)[K / 4], const key_pulls &pulls) const {
        if (rate.energy) {
            if (at.thread >= 64) barrier_of(1, threads);
            add_rows<K>(dx, x_half(), pulls.pull);
        }
        write_rows<K>(x_half(), dx, edges_of(a.edge_x, head, K), a, a.dk, b, h, c, a.shift);
        if (a.shift && a.dk.data && c + 1 == a.chunks && at.thread < K / 8)
            *reinterpret_cast<uint4 *>(a.dk.row(b, a.T - 1, h) + at.thread * 8) = make_uint4(0, 0, 0, 0);
    }
};

template <int K, int V, int W>
__global__ void __launch_bounds__(threads, 2)
    chunk_grads_kernel(const __grid_constant__ chunk_task a, const __grid_constant__ chunk_rate rate) {
    extern __shared__ __align__(1024) unsigned char memory[];
    auto &m = *reinterpret_cast<grads_memory<K, V> *>(memory);
    static_assert(sizeof(chunk_sums<W>) <= sizeof m.p);
    auto &kept = *reinterpret_cast<chunk_sums<W> *>(m.p);
    const int c = static_cast<int>(blockIdx.x) % a.chunks, head = static_cast<int>(blockIdx.x) / a.chunks;
    const grads_block<K, V, W> block(a, rate, m, head / a.H, head % a.H, c);
    float *band = a.band_products + static_cast<int64_t>(blockIdx.x) * (64 * 8);
    float dq[K / 4], dx[K / 4], dv[V / 4];
    uint32_t dq_pairs[K / 8];
    block.load();
    const mask_sums sums = block.masked(band);
    const float2 history = block.history(dq);
    const float state_part = block.query_grads(dq);
    pack_pairs(dq_pairs, dq); // fewer registers from here on
    if (state_tiles<K, V> == 1) __syncthreads();
    const float2 leave = block.leaving(dx, dv);
    block.pair_grads(dx, dv);
    block.keep_parts(kept.parts, sums, history, leave, state_part);
    __syncthreads();
    if (block.at.thread < 64) block.write_scalars(kept, band);
    write_rows<V>(block.v_half(), dv, block.edges_of(a.edge_v, block.head, V), a, a.dv, block.b, block.h, c, 0);
    block.write_queries(dq_pairs);
    block.write_keys(dx, kept.pulls);
}

template <int K, int V, int W>
fwa_status launch_grads(cudaStream_t stream, const chunk_task &task, const chunk_rate &rate) {
    const auto kernel = chunk_grads_kernel<K, V, W>;
    constexpr int bytes = sizeof(grads_memory<K, V>);
    FWA_CUDA_TRY(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
    FWA_LAUNCH(kernel, static_cast<unsigned>(task.B * task.H * task.chunks), threads, bytes, stream, task, rate);
    return FWA_OK;
}

template <int K, int V> fwa_status pick_grads(cudaStream_t stream, const chunk_task &task, const chunk_rate &rate) {
    const int W = window_made(task.halo);
    return W == 1   ? launch_grads<K, V, 1>(stream, task, rate)
           : W == 4 ? launch_grads<K, V, 4>(stream, task, rate)
                    : launch_grads<K, V, 8>(stream, task, rate);
}

} // namespace

namespace fwa {

fwa_status chunk_additive_grads(cudaStream_t stream, const chunk_task &task, const chunk_rate &rate) {
    const bool narrow = rate.task.V == 64;
    if (task.group > 1) return chunk_additive_shared_grads(stream, task, rate);
    if (rate.task.K == 64)
        return narrow ? pick_grads<64, 64>(stream, task, rate) : pick_grads<64, 128>(stream, task, rate);
    return narrow ? pick_grads<128, 64>(stream, task, rate) : pick_grads<128, 128>(stream, task, rate);
}

} // namespace fwa
