// Chunk form of the additive core, backward, the chunk-parallel part (docs/kernels.md). With P = Q X^T, D = dO V^T,
// Y = dO S^T, Z = V dS'^T and the mask M of a chunk, M_C the weights with which its pairs leave it:
//
//   dQ = (D o M) X + diag(h) Y      dX = (D o M)^T Q + diag(M_C) Z      dV = (P o M)^T dO + diag(M_C) X dS'
//   dM = P o D,  dM_C = X . Z,  dh = Q . Y,  dh_C = <S, dS'>, and from these the gradients of w and of the decays
//
// bf16 operands, fp32 sums; overwritten, the same bits every time. A block takes a chunk of a query/key head, 8 warps:
// each warpgroup has half of the columns of every product. S and then dS' use one tile, so that two blocks fit a
// multiprocessor where K = V = 128. Value heads that share the query/key head are taken in turn; dQ and dX add up in
// registers.
#include "kernels/cuda/chunk_additive_gates.cuh"

namespace {

using namespace fwa;

constexpr int threads = 256;

template <int K, int V> constexpr int fragments = K *V / 256 / 8; // of a state, for each warp

template <int K, int V> __device__ void read_state(uint4 (&to)[fragments<K, V>], const uint4 *from) {
#pragma unroll
    for (int i = 0; i < fragments<K, V>; i++)
        to[i] =
            from[(static_cast<int>(threadIdx.x) / 32 * fragments<K, V> + i) * 32 + static_cast<int>(threadIdx.x) % 32];
}

template <int K, int V> __device__ void place_state(__nv_bfloat16 *tile, const uint4 (&from)[fragments<K, V>]) {
    const place at;
#pragma unroll
    for (int i = 0; i < fragments<K, V>; i++) {
        const int block = (at.group * 4 + at.warp) * fragments<K, V> + i;
        const int row = block / (K / 16) * 16 + at.lane % 16, column = block % (K / 16) * 16 + at.lane / 16 * 8;
        store_matrix(tile + column / 64 * (V * 64) + swizzled<64>(row, column % 64), from[i].x, from[i].y, from[i].z,
                     from[i].w);
    }
}

template <int n> __device__ float dot_states(const uint4 (&a)[n], const uint4 (&b)[n]) {
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < n; i++)
        sum += (dot_pair(a[i].x, b[i].x) + dot_pair(a[i].y, b[i].y)) +
               (dot_pair(a[i].z, b[i].z) + dot_pair(a[i].w, b[i].w));
    return warp_sum(sum);
}

// Sums of P o D of this thread's rows and, over the warp's rows, of the column that it keeps.
struct mask_sums {
    float row_low, row_high, column;
};

// P, D [64,32]: columns 32 group .. of the tile. Masked into m.p and m.d; the diagonal into m.far without a window, the
// band [64,3] into `near` with one. Blocks of 16 columns beyond the warp's rows are zeros.
template <int K, int V, bool window>
__device__ mask_sums apply_mask(grads_memory<K, V> &m, float (&P)[16], float (&D)[16], const tile_mask<window> &mask,
                                float *near) {
    const place at;
    const float u_low = m.u[at.row], u_high = m.u[at.row + 8];
    mask_sums sums = {0.0f, 0.0f, 0.0f};
    float column[8] = {};
#pragma unroll
    for (int j = 0; j < 2; j++) {
        uint32_t pairs[4] = {}, grads[4] = {};
        if (at.group * 2 + j <= at.warp) {
#pragma unroll
            for (int n = 0; n < 8; n++) {
                const int s = (at.group * 2 + j) * 16 + n / 4 * 8 + at.t * 2 + n % 2, high = n % 4 / 2;
                const int i = at.row + high * 8, k = j * 8 + n;
                const float both = P[k] * D[k], u_i = high ? u_high : u_low;
                float weight, apart; // M_is; what a gradient of the pair's weight is made of
                if constexpr (window) {
                    const int d = i - s;
                    const float decay = d >= mask.halo ? power2(u_i - m.u[min(s + mask.halo, 63)]) : 0.0f;
                    weight = m.far[s] * decay;
                    apart = decay * both;
                    if (d >= 0 && d < mask.halo) {
                        weight = mask.at(i, s, u_i);
                        near[s * halo_most + d] = both;
                    }
                    (high ? sums.row_high : sums.row_low) += weight * both;
                } else {
                    const float decay = s <= i ? power2(u_i - m.u[s]) : 0.0f;
                    weight = m.w[s] * decay;
                    apart = s < i ? decay * both : 0.0f;
                    if (s == i) m.far[s] = both;
                    (high ? sums.row_high : sums.row_low) += m.w[s] * apart;
                }
                column[j * 4 + n / 4 * 2 + n % 2] += apart;
                P[k] *= weight;
                D[k] *= weight;
            }
            fragment(pairs, P, j);
            fragment(grads, D, j);
        }
        const int to = swizzled<64>(at.warp * 16 + at.lane % 16, (at.group * 2 + j) * 16 + at.lane / 16 * 8);
        store_matrix(m.p + to, pairs[0], pairs[1], pairs[2], pairs[3]);
        store_matrix(m.d + to, grads[0], grads[1], grads[2], grads[3]);
    }
    sums.row_low = quad_sum(sums.row_low);
    sums.row_high = quad_sum(sums.row_high);
#pragma unroll
    for (int n = 0; n < 8; n++) {
        for (int offset = 4; offset < 32; offset *= 2) column[n] += __shfl_xor_sync(everyone, column[n], offset);
        if (at.g == n) sums.column = column[n];
    }
    return sums;
}

// d (+)= diag(low, high) tile state: rows of the tile [64,V] scaled, columns of the warpgroup.
template <int K, int V>
__device__ void scaled_product(float (&d)[K / 4], const __nv_bfloat16 *tile, float low, float high,
                               const operand_tile &state, bool add) {
    const place at;
    uint32_t rows[V / 16][4];
#pragma unroll
    for (int step = 0; step < V / 16; step++) {
        const int column = step * 16 + at.lane / 16 * 8;
        load_matrix(rows[step], tile + column / 64 * 4096 + swizzled<64>(at.warp * 16 + at.lane % 16, column % 64));
#pragma unroll
        for (int i = 0; i < 4; i++)
            rows[step][i] = scaled(rows[step][i], i % 2 ? make_float2(high, high) : make_float2(low, low));
    }
    products_begin();
#pragma unroll
    for (int step = 0; step < V / 16; step++)
        product<K / 2, 1>(d, rows[step], state.mn(step * 16 * 64, V), add || step > 0);
    products_commit();
    products_wait<0>();
    products_done(d);
}

// What a value head needs of device memory, into the second level of the cache.
template <int K, int V> __device__ void prefetch_head(const chunk_task &a, int b, int h, int c) {
    const place at;
    const int64_t head = static_cast<int64_t>(b) * a.H + h;
    const uint4 *before = state_at<K>(a.states, a, head, c, V, 0), *behind = state_at<K>(a.grads, a, head, c, V, 0);
    for (int i = at.thread; i < V; i += threads) {
        const int t = tile_step(a, c, i % 64), column = i / 64 * 64;
        if (t < 0 || t >= a.T) continue;
        prefetch_far(a.v.row(b, t, h) + column);
        if (a.d_o.data) prefetch_far(a.d_o.row(b, t, h) + column);
    }
    for (int i = at.thread; i < K * V / 64; i += threads) {
        prefetch_far(before + i * 8);
        prefetch_far(behind + i * 8);
    }
}

// One chunk of one value head.
template <int K, int V, bool window, bool shared> struct grads_block {
    const chunk_task &a;
    const chunk_rate &rate;
    grads_memory<K, V> &m;
    int b, hq, h, c;
    bool first, last; // value head of the query/key head
    place at;
    int64_t head, gates;
    operand_tile q, x, v_tile, d_o, p, d, state, d_state;
    operand_tile q_columns, x_columns, d_o_columns, state_columns, d_state_columns, x_rows, v_rows, state_rows,
        d_state_rows;
    tile_mask<window> mask;

    __device__ grads_block(const chunk_task &task, const chunk_rate &rates, grads_memory<K, V> &memory, int batch,
                           int key, int value, int chunk, bool is_first, bool is_last)
        : a(task), rate(rates), m(memory), b(batch), hq(key), h(value), c(chunk), first(is_first), last(is_last),
          head(static_cast<int64_t>(b) * a.H + h), gates((head * a.chunks + c) * 64), q(m.q), x(m.x), v_tile(m.v),
          d_o(m.d_o), p(m.p), d(m.d), state(m.state[0]), d_state(m.state[state_tiles<K, V> - 1]),
          q_columns(q, own_columns<K>(at.group)), x_columns(x, own_columns<K>(at.group)),
          d_o_columns(d_o, own_columns<V>(at.group)), state_columns(state, own_columns<K>(at.group, V)),
          d_state_columns(d_state, own_columns<K>(at.group, V)), x_rows(x, at.group * 2048),
          v_rows(v_tile, at.group * 2048), state_rows(state, at.group * (V / 2) * 64),
          d_state_rows(d_state, at.group * (V / 2) * 64), mask{m.u, m.w, m.far, a.band + gates, a.halo} {}

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
        if (!window) return;
        m.far[thread] = a.far[gates + thread], m.pairs[thread] = a.pairs[gates + thread];
        prefetch(a.band + gates + thread);
    }

    // Everything into shared memory; dS' waits in registers where there is one tile for states. Returns this warp's
    // part of <S, dS'>.
    __device__ float load(uint4 (&behind)[fragments<K, V>]) const {
        load_steps<V, threads>(m.d_o, at.thread, a, a.d_o, b, h, c);
        for (int v = 0; v < V; v += 64) load_values<threads>(m.v + v * 64, at.thread, a, V, v, b, h, c);
        copy_commit();
        uint4 before[fragments<K, V>];
        read_state<K, V>(before, state_at<K>(a.states, a, head, c, V, 0));
        read_state<K, V>(behind, state_at<K>(a.grads, a, head, c, V, 0));
        load_gates();
        place_state<K, V>(m.state[0], before);
        if (state_tiles<K, V> == 2) place_state<K, V>(m.state[1], behind);
        const float sum = dot_states(before, behind);
        copy_wait<0>();
        publish();
        __syncthreads();
        return sum;
    }

    // P and D, masked, into their tiles.
    __device__ mask_sums masked(float *near) const {
        float P[16], D[16];
        products_begin();
#pragma unroll
        for (int k = 0; k < K; k += 16) {
            const int step = k / 64 * 4096 + k % 64;
            product<32, 0, 0>(P, q.k(step), x_rows.k(step), k > 0);
        }
#pragma unroll
        for (int k = 0; k < V; k += 16) {
            const int step = k / 64 * 4096 + k % 64;
            product<32, 0, 0>(D, d_o.k(step), v_rows.k(step), k > 0);
        }
        products_commit();
        products_wait<0>();
        products_done(P);
        products_done(D);
        return apply_mask<K, V, window>(m, P, D, mask, near);
    }

    // dq (+)= diag(h) Y; returns Q_i . Y_i of the thread's rows. Of shared keys as (S^T Q_i) . dO_i, so that dq adds up
    // over the heads without Y.
    __device__ float2 history(float (&dq)[K / 4]) const {
        const float low = at.row < a.halo ? 0.0f : power2(m.u[at.row]);
        const float high = at.row + 8 < a.halo ? 0.0f : power2(m.u[at.row + 8]);
        float2 dots;
        if constexpr (shared) {
            float O[V / 4];
            products_begin();
#pragma unroll
            for (int k = 0; k < K; k += 16)
                product<V / 2, 0, 0>(O, q.k(k / 64 * 4096 + k % 64), state_rows.k(k / 64 * (V * 64) + k % 64), k > 0);
            products_commit();
            products_wait<0>();
            products_done(O);
            dots = row_dots<V>(O, m.d_o + own_columns<V>(at.group));
            scaled_product<K, V>(dq, m.d_o, low, high, state_columns, !first);
        } else {
            products_begin();
#pragma unroll
            for (int v = 0; v < V; v += 16)
                product<K / 2, 0, 1>(dq, d_o.k(v / 64 * 4096 + v % 64), state_columns.mn(v * 64, V), v > 0);
            products_commit();
            products_wait<0>();
            products_done(dq);
            dots = row_dots<K>(dq, q_half());
            scale_rows(dq, low, high);
        }
        publish();
        __syncthreads();
        return dots;
    }

    // dq += (D o M) X; dS' takes the place of S where there is one tile.
    __device__ void query_grads(float (&dq)[K / 4], const uint4 (&behind)[fragments<K, V>]) const {
        if (state_tiles<K, V> == 1) place_state<K, V>(m.state[0], behind);
        products_begin();
#pragma unroll
        for (int s = 0; s < 64; s += 16) product<K / 2, 0, 1>(dq, d.k(s), x_columns.mn(s * 64, 64), true);
        products_commit();
        if (state_tiles<K, V> == 1) publish();
        products_wait<0>();
        products_done(dq);
    }

    // dx (+)= diag(M_C) Z and dv = diag(M_C) X dS'; returns X_s . Z_s, which is (dS'^T X_s) . V_s.
    __device__ float2 leaving(float (&dx)[K / 4], float (&dv)[V / 4]) const {
        products_begin();
        if constexpr (!shared) {
#pragma unroll
            for (int v = 0; v < V; v += 16)
                product<K / 2, 0, 1>(dx, v_tile.k(v / 64 * 4096 + v % 64), d_state_columns.mn(v * 64, V), v > 0);
        }
#pragma unroll
        for (int k = 0; k < K; k += 16)
            product<V / 2, 0, 0>(dv, x.k(k / 64 * 4096 + k % 64), d_state_rows.k(k / 64 * (V * 64) + k % 64), k > 0);
        products_commit();
        products_wait<0>();
        if constexpr (!shared) products_done(dx);
        products_done(dv);
        const float2 dots = row_dots<V>(dv, v_half());
        const float low = mask.at(63, at.row, m.u[63]), high = mask.at(63, at.row + 8, m.u[63]);
        scale_rows(dv, low, high);
        if constexpr (shared)
            scaled_product<K, V>(dx, m.v, low, high, d_state_columns, !first);
        else
            scale_rows(dx, low, high);
        return dots;
    }

    // dx += (D o M)^T Q, dv += (P o M)^T dO.
    __device__ void pair_grads(float (&dx)[K / 4], float (&dv)[V / 4]) const {
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
            copy_rows<K>(q_half(), a.dq.row(b, tile_step(a, c, 0), hq), a.dq.time, a.halo, a.T - tile_step(a, c, 0));
    }

    // By the first warp.
    __device__ void write_scalars(part_sums &parts, const float *near, float (&energy)[2]) const {
        gate_pair pair;
        if constexpr (window)
            pair = window_gate_grads(m, mask, parts, near, at.thread);
        else
            pair = plain_gate_grads(m, parts, at.thread);
        scalar_grads(rate, a, pair, b, hq, h, c, energy);
        if (last && rate.energy) pulls(m, parts, energy, a.halo);
    }

    __device__ void write_keys(float (&dx)[K / 4], const part_sums &parts) const {
        if (rate.energy) {
            __syncthreads();
            add_rows<K>(dx, x_half(), parts.pull);
        }
        write_rows<K>(x_half(), dx, edges_of(a.edge_x, blockIdx.x / a.chunks, K), a, a.dk, b, hq, c, a.shift);
        if (a.shift && a.dk.data && c + 1 == a.chunks && at.thread < K / 8)
            *reinterpret_cast<uint4 *>(a.dk.row(b, a.T - 1, hq) + at.thread * 8) = make_uint4(0, 0, 0, 0);
    }
};

template <int K, int V, bool window, bool shared>
__global__ void __launch_bounds__(threads, 2)
    chunk_grads_kernel(const __grid_constant__ chunk_task a, const __grid_constant__ chunk_rate rate) {
    extern __shared__ __align__(1024) unsigned char memory[];
    auto &m = *reinterpret_cast<grads_memory<K, V> *>(memory);
    auto &parts = *reinterpret_cast<part_sums *>(m.p);
    const int heads = shared ? a.group : 1;
    int c = static_cast<int>(blockIdx.x) % a.chunks, key = static_cast<int>(blockIdx.x) / a.chunks;
    int b = key / a.Hq, hq = key % a.Hq;
    float dq[K / 4], dx[K / 4], energy[2] = {0.0f, 0.0f};
    float *near = a.near + static_cast<int64_t>(blockIdx.x) * (64 * halo_most);
    load_steps<K, threads>(m.q, threadIdx.x, a, a.q, b, hq, c);
    load_keys<K, threads>(m.x, threadIdx.x, a, b, hq, c);
    for (int turn = 0; turn < heads; turn++) {
        // Keeps addresses of later phases from being prepared, and held in registers, in front of the loop.
        asm volatile("" : "+r"(b), "+r"(hq), "+r"(c));
        const bool last = turn + 1 == heads;
        const grads_block<K, V, window, shared> block(a, rate, m, b, hq, hq * heads + turn, c, turn == 0, last);
        uint4 behind[fragments<K, V>];
        uint32_t dq_pairs[K / 8];
        float dv[V / 4];
        const float state_part = block.load(behind);
        if (shared && !last) prefetch_head<K, V>(a, b, block.h + 1, c);
        const mask_sums sums = block.masked(near);
        const float2 history = block.history(dq);
        block.query_grads(dq, behind);
        if (!shared) pack_pairs(dq_pairs, dq); // fewer registers from here on
        if (state_tiles<K, V> == 1) __syncthreads();
        const float2 leave = block.leaving(dx, dv);
        block.pair_grads(dx, dv);
        block.keep_parts(parts, sums, history, leave, state_part);
        write_rows<V>(block.v_half(), dv, block.edges_of(a.edge_v, block.head, V), a, a.dv, b, block.h, c, 0);
        if (shared && last) pack_pairs(dq_pairs, dq);
        if (last) block.write_queries(dq_pairs);
        __syncthreads();
        if (block.at.thread < 32) block.write_scalars(parts, near, energy);
        if (last) block.write_keys(dx, parts);
        if (shared) __syncthreads();
    }
}

template <int K, int V, bool window, bool shared>
fwa_status launch_grads(cudaStream_t stream, const chunk_task &task, const chunk_rate &rate) {
    const auto kernel = chunk_grads_kernel<K, V, window, shared>;
    constexpr int bytes = sizeof(grads_memory<K, V>);
    FWA_CUDA_TRY(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
    FWA_LAUNCH(kernel, static_cast<unsigned>(task.B * task.Hq * task.chunks), threads, bytes, stream, task, rate);
    return FWA_OK;
}

template <int K, int V> fwa_status pick_grads(cudaStream_t stream, const chunk_task &task, const chunk_rate &rate) {
    if (task.halo > 0)
        return task.group > 1 ? launch_grads<K, V, true, true>(stream, task, rate)
                              : launch_grads<K, V, true, false>(stream, task, rate);
    return task.group > 1 ? launch_grads<K, V, false, true>(stream, task, rate)
                          : launch_grads<K, V, false, false>(stream, task, rate);
}

} // namespace

namespace fwa {

fwa_status chunk_additive_grads(cudaStream_t stream, const chunk_task &task, const chunk_rate &rate) {
    const bool narrow = rate.task.V == 64;
    if (rate.task.K == 64)
        return narrow ? pick_grads<64, 64>(stream, task, rate) : pick_grads<64, 128>(stream, task, rate);
    return narrow ? pick_grads<128, 64>(stream, task, rate) : pick_grads<128, 128>(stream, task, rate);
}

} // namespace fwa
