// Chunk form of the additive core, backward, the chunk-parallel part where value heads share a query/key head
// (chunk_additive_backward.cu has the equations). A block takes a chunk of a query/key head and goes through its value
// heads; what sums over them adds up in registers. Two warpgroups, each with half of the columns, stand on the side of
// queries, two on that of keys:
//
//   queries: D = dO V^T, E += D o M, dQ += diag(h) dO S^T, and the sums for gradients of gates
//   keys:    dV = (P o M)^T dO + diag(M_C) X dS', dX += diag(M_C) V dS'^T
//
// As Q and X are the same for all, P is made once, in fp32, and D o M is summed before it meets them: dQ += E X and
// dX += E^T Q at the end. First operands are rows of D, P^T or of scaled tiles in registers. Tiles of heads come one or
// two heads ahead where three or two sets fit; gradients of a head's gates are made by one warp beside the next head.
// bf16 operands, fp32 sums; overwritten, the same bits every time.
#include "kernels/cuda/chunk_additive_gates.cuh"

namespace {

using namespace fwa;

constexpr int threads = 512, side_threads = 256;

template <int K, int V> struct head_tiles {
    __nv_bfloat16 v[64 * V], d_o[64 * V], state[K * V], d_state[K * V]; // of states rows of S^T, dS'^T: [V,K]
};

// Sets of tiles that fit.
template <int K, int V, bool window>
constexpr int stages = K *V == 128 * 128     ? 1
                       : K == 128 && !window ? 3
                       : K == 64 && V == 64  ? 3
                                             : 2;

template <bool window> struct head_gates { float u[64], w[64], far[window ? 64 : 4]; };

struct head_sums {
    part_sums parts;
    float apart[64]; // without a window the diagonal of P o D
};

template <int K, int V, bool window> struct shared_memory {
    __nv_bfloat16 q[64 * K], x[64 * K]; // later dq, dx
    head_tiles<K, V> head[stages<K, V, window>];
    __nv_bfloat16 dv[64 * V];                       // later E
    float4 reads[4][side_threads], reads_t[8][128]; // P, P^T: every thread's own entries
    head_gates<window> gates[stages<K, V, window> + 1];
    head_sums sums[2];
    float near[2][window ? 64 * halo_most : 1];
};

// What both sides know of a chunk of a value head.
template <int K, int V, bool window> struct head_block {
    const chunk_task &a;
    shared_memory<K, V, window> &m;
    int b, hq, c, turn;

    __device__ int h() const {
        return hq * a.group + turn;
    }
    __device__ int64_t head() const {
        return static_cast<int64_t>(b) * a.H + h();
    }
    __device__ int64_t gates_at() const {
        return (head() * a.chunks + c) * 64;
    }
    __device__ head_tiles<K, V> &tiles() const {
        return m.head[turn % stages<K, V, window>];
    }
    __device__ head_gates<window> &gates() const {
        return m.gates[turn % (stages<K, V, window> + 1)];
    }
    __device__ head_sums &sums() const {
        return m.sums[turn % 2];
    }
    __device__ tile_mask<window> mask() const {
        return {gates().u, gates().w, gates().far, a.band + gates_at(), a.halo};
    }

    __device__ void load_gates(int thread) const {
        const int piece = thread % 16 * 4;
        if (thread < 16)
            copy_async(gates().u + piece, a.u + gates_at() + piece);
        else if (thread < 32)
            copy_async(gates().w + piece, a.w + gates_at() + piece);
        else if (window && thread < 48)
            copy_async(gates().far + piece, a.far + gates_at() + piece);
    }
    __device__ void load(int thread) const {
        load_steps<V, threads>(tiles().d_o, thread, a, a.d_o, b, h(), c);
        for (int v = 0; v < V; v += 64) load_values<threads>(tiles().v + v * 64, thread, a, V, v, b, h(), c);
        load_blocks<V, K, threads>(tiles().state, thread, blocks_at<K>(a.states, a, head(), c, V, 0));
        load_blocks<V, K, threads>(tiles().d_state, thread, blocks_at<K>(a.grads, a, head(), c, V, 0));
        load_gates(thread);
    }
    __device__ void prefetch_gates(const chunk_rate &rate, int thread) const {
        const int t = tile_step(a, c, thread);
        if (thread >= 64) return;
        if (thread >= a.halo && t < a.T) prefetch_scalars(rate.task, b, h(), t);
        if (window) prefetch(a.band + gates_at() + thread);
    }
};

// The thread's rows of `tile` [64,V], scaled, as first operands.
template <int V>
__device__ void scaled_rows(uint32_t (&rows)[V / 16][4], const __nv_bfloat16 *tile, float low, float high) {
    const place at;
#pragma unroll
    for (int step = 0; step < V / 16; step++) {
        const int column = step * 16 + at.lane / 16 * 8;
        load_matrix(rows[step], tile + column / 64 * 4096 + swizzled<64>(at.warp * 16 + at.lane % 16, column % 64));
#pragma unroll
        for (int i = 0; i < 4; i++)
            rows[step][i] = scaled(rows[step][i], i % 2 ? make_float2(high, high) : make_float2(low, low));
    }
}

// Both sides' P, once for all heads.
template <int K, int V, bool window> __device__ void keep_reads(shared_memory<K, V, window> &m, bool queries) {
    const place at;
    const operand_tile q(m.q), x(m.x);
    if (queries) {
        const operand_tile x_rows(x, at.group * 2048);
        float P[16];
        products_begin();
#pragma unroll
        for (int k = 0; k < K; k += 16)
            product<32, 0, 0>(P, q.k(k / 64 * 4096 + k % 64), x_rows.k(k / 64 * 4096 + k % 64), k > 0);
        products_commit();
        products_wait<0>();
        products_done(P);
#pragma unroll
        for (int i = 0; i < 4; i++)
            m.reads[i][at.thread] = make_float4(P[i * 4], P[i * 4 + 1], P[i * 4 + 2], P[i * 4 + 3]);
    } else {
        float P[32];
        products_begin();
#pragma unroll
        for (int k = 0; k < K; k += 16)
            product<64, 0, 0>(P, x.k(k / 64 * 4096 + k % 64), q.k(k / 64 * 4096 + k % 64), k > 0);
        products_commit();
        products_wait<0>();
        products_done(P);
        if (at.group > 0) return;
#pragma unroll
        for (int i = 0; i < 8; i++)
            m.reads_t[i][at.thread % 128] = make_float4(P[i * 4], P[i * 4 + 1], P[i * 4 + 2], P[i * 4 + 3]);
    }
}

// E += D o M of this thread's entries, columns 32 group .. of the tile, and the sums of P o D.
template <int K, int V, bool window>
__device__ void add_masked(const head_block<K, V, window> &block, float (&E)[16], const float (&D)[16]) {
    const place at;
    const tile_mask<window> mask = block.mask();
    part_sums &parts = block.sums().parts;
    float *apart = window ? block.m.near[block.turn % 2] : block.sums().apart;
    float row[2] = {}, column[2][4] = {}, kept = 0.0f;
#pragma unroll
    for (int j = 0; j < 2; j++) {
        const int tile_block = at.group * 2 + j, s0 = tile_block * 16 + at.t * 2;
        if (tile_block > at.warp) continue;
        const float4 low = block.m.reads[j * 2][at.thread], high = block.m.reads[j * 2 + 1][at.thread];
        const float P[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
        float both[8], weight[8];
#pragma unroll
        for (int n = 0; n < 8; n++) both[n] = P[n] * D[j * 8 + n];
        if (tile_block + window < at.warp)
            weigh_block<window, true>(mask, at.row, s0, both, weight, row, column[j], apart);
        else
            weigh_block<window, false>(mask, at.row, s0, both, weight, row, column[j], apart);
#pragma unroll
        for (int n = 0; n < 8; n++) E[j * 8 + n] += weight[n] * D[j * 8 + n];
    }
    row[0] = quad_sum(row[0]), row[1] = quad_sum(row[1]);
    if (at.t == 0) parts.row[at.group][at.row] = row[0], parts.row[at.group][at.row + 8] = row[1];
#pragma unroll
    for (int n = 0; n < 8; n++) {
        float &sum = column[n / 4][n % 4];
        for (int offset = 4; offset < 32; offset *= 2) sum += __shfl_xor_sync(everyone, sum, offset);
        if (at.g == n) kept = sum;
    }
    parts.column[at.warp][kept_column()] = kept;
}

// The warp's part of <S, dS'>, on the side of queries; both tiles have the same order.
template <int K, int V> __device__ void keep_state_sum(const head_tiles<K, V> &tiles, part_sums &parts) {
    const place at;
    const auto *S = reinterpret_cast<const uint4 *>(tiles.state), *dS = reinterpret_cast<const uint4 *>(tiles.d_state);
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < K * V / 8 / side_threads; i++) {
        const uint4 x = S[i * side_threads + at.thread], y = dS[i * side_threads + at.thread];
        sum += (dot_pair(x.x, y.x) + dot_pair(x.y, y.y)) + (dot_pair(x.z, y.z) + dot_pair(x.w, y.w));
    }
    sum = warp_sum(sum);
    if (at.lane == 0) parts.state[at.thread / 32] = sum;
}

// One value head on the side of queries. dh = Q . Y as (S^T Q_i) . dO_i, so that dq adds up without Y.
template <int K, int V, bool window>
__device__ void query_side(const head_block<K, V, window> &block, float (&dq)[K / 4], float (&E)[16]) {
    const place at;
    head_tiles<K, V> &tiles = block.tiles();
    const float *u = block.gates().u;
    const operand_tile q(block.m.q), d_o(tiles.d_o), v_rows(operand_tile(tiles.v), at.group * 2048), state(tiles.state),
        state_rows(state, at.group * (V / 2) * 64), state_columns(state, own_columns<K>(at.group, V));
    float O[V / 4];
    {
        float D[16];
        products_begin();
#pragma unroll
        for (int k = 0; k < V; k += 16)
            product<32, 0, 0>(D, d_o.k(k / 64 * 4096 + k % 64), v_rows.k(k / 64 * 4096 + k % 64), k > 0);
        products_commit();
#pragma unroll
        for (int k = 0; k < K; k += 16)
            product<V / 2, 0, 0>(O, q.k(k / 64 * 4096 + k % 64), state_rows.k(k / 64 * (V * 64) + k % 64), k > 0);
        products_commit();
        keep_state_sum<K, V>(tiles, block.sums().parts);
        products_wait<1>();
        products_done(D);
        add_masked(block, E, D);
        products_wait<0>();
        products_done(O);
    }
    const float2 dots = row_dots<V>(O, tiles.d_o + own_columns<V>(at.group));
    uint32_t rows[V / 16][4];
    scaled_rows<V>(rows, tiles.d_o, at.row < block.a.halo ? 0.0f : power2(u[at.row]),
                   at.row + 8 < block.a.halo ? 0.0f : power2(u[at.row + 8]));
    products_ready(rows);
    products_ready(dq);
    products_begin();
#pragma unroll
    for (int step = 0; step < V / 16; step++)
        product<K / 2, 1>(dq, rows[step], state_columns.mn(step * 16 * 64, V), true);
    products_commit();
    part_sums &parts = block.sums().parts;
    if (at.t == 0) parts.history[at.group][at.row] = dots.x, parts.history[at.group][at.row + 8] = dots.y;
    products_wait<0>();
    products_done(dq);
}

// (P o M)^T, rows of the warp, as first operands.
template <int K, int V, bool window>
__device__ void masked_reads(const head_block<K, V, window> &block, uint32_t (&to)[4][4]) {
    const place at;
    const tile_mask<window> mask = block.mask();
    const float u_low = mask.u[at.row], u_high = mask.u[at.row + 8], w_low = mask.w[at.row],
                w_high = mask.w[at.row + 8];
#pragma unroll
    for (int j = 0; j < 4; j++) {
#pragma unroll
        for (int n = 0; n < 4; n++) to[j][n] = 0;
        if (j < at.warp) continue;
        float P[8];
#pragma unroll
        for (int n = 0; n < 8; n += 4) {
            const float4 reads = block.m.reads_t[j * 2 + n / 4][at.thread % 128];
            P[n] = reads.x, P[n + 1] = reads.y, P[n + 2] = reads.z, P[n + 3] = reads.w;
        }
#pragma unroll
        for (int n = 0; n < 8; n++) {
            const int i = j * 16 + n / 4 * 8 + at.t * 2 + n % 2;
            if (!window && j > at.warp)
                P[n] *= (n % 4 / 2 ? w_high : w_low) * power2(mask.u[i] - (n % 4 / 2 ? u_high : u_low));
            else
                P[n] *= mask.at(i, at.row + n % 4 / 2 * 8, mask.u[i]);
        }
        fragment(to[j], P, 0);
    }
}

// One value head on the side of keys. X_s . Z_s is (dS'^T X_s) . V_s.
template <int K, int V, bool window>
__device__ void key_side(const head_block<K, V, window> &block, float (&dx)[K / 4]) {
    const place at;
    head_tiles<K, V> &tiles = block.tiles();
    const tile_mask<window> mask = block.mask();
    const operand_tile x(block.m.x), d_o_columns(operand_tile(tiles.d_o), own_columns<V>(at.group)),
        d_state(tiles.d_state), d_state_rows(d_state, at.group * (V / 2) * 64),
        d_state_columns(d_state, own_columns<K>(at.group, V));
    float dv[V / 4];
    uint32_t reads[4][4];
    products_begin();
#pragma unroll
    for (int k = 0; k < K; k += 16)
        product<V / 2, 0, 0>(dv, x.k(k / 64 * 4096 + k % 64), d_state_rows.k(k / 64 * (V * 64) + k % 64), k > 0);
    products_commit();
    masked_reads(block, reads);
    const float low = mask.at(63, at.row, mask.u[63]), high = mask.at(63, at.row + 8, mask.u[63]);
    products_wait<0>();
    products_done(dv);
    const float2 dots = row_dots<V>(dv, tiles.v + own_columns<V>(at.group));
    part_sums &parts = block.sums().parts;
    if (at.t == 0) parts.leave[at.group][at.row] = dots.x, parts.leave[at.group][at.row + 8] = dots.y;
    scale_rows(dv, low, high);
    products_ready(reads);
    products_ready(dv);
    products_begin();
#pragma unroll
    for (int step = 0; step < 4; step++) product<V / 2, 1>(dv, reads[step], d_o_columns.mn(step * 16 * 64, 64), true);
    products_commit();
    uint32_t rows[V / 16][4];
    scaled_rows<V>(rows, tiles.v, low, high);
    products_ready(rows);
    products_ready(dx);
    products_begin();
#pragma unroll
    for (int step = 0; step < V / 16; step++)
        product<K / 2, 1>(dx, rows[step], d_state_columns.mn(step * 16 * 64, V), true);
    products_commit();
    products_wait<1>();
    products_done(dv);
    const chunk_task &a = block.a;
    const int64_t edges = 2 * a.halo + 1;
    float *edge = a.edge_v ? a.edge_v + (block.head() * (a.chunks * edges) + block.c * edges) * V : nullptr;
    write_rows<V>(block.m.dv + own_columns<V>(at.group), dv, edge, a, a.dv, block.b, block.h(), block.c, 0);
    products_wait<0>();
    products_done(dx);
}

// Gradients of the gates of a head, by the first warp; behind the last one what the energies ask of the keys.
template <int K, int V, bool window>
__device__ void write_scalars(const head_block<K, V, window> &block, const chunk_rate &rate, float (&energy)[2]) {
    const place at;
    const chunk_task &a = block.a;
    part_sums &parts = block.sums().parts;
    const gate_rows gates = {block.gates().u, block.gates().w, block.sums().apart,
                             window ? a.pairs + block.gates_at() : nullptr};
    gate_pair pair;
    if constexpr (window)
        pair = window_gate_grads(gates, block.mask(), parts, block.m.near[block.turn % 2], at.lane);
    else
        pair = plain_gate_grads(gates, parts, at.lane);
    scalar_grads(rate, a, pair, block.b, block.hq, block.h(), block.c, energy);
    if (block.turn + 1 == a.group && rate.energy) pulls(gates.pairs, parts, energy, a.halo);
}

// E, in bf16, to where both sides find it.
template <int K, int V, bool window> __device__ void place_sums(shared_memory<K, V, window> &m, const float (&E)[16]) {
    const place at;
#pragma unroll
    for (int j = 0; j < 2; j++) {
        uint32_t d[4];
        fragment(d, E, j);
        store_matrix(m.dv + swizzled<64>(at.warp * 16 + at.lane % 16, (at.group * 2 + j) * 16 + at.lane / 16 * 8), d[0],
                     d[1], d[2], d[3]);
    }
}

// dq += E X, out; dx += E^T Q and what the energies add, out.
template <int K, int V, bool window>
__device__ void finish_queries(const head_block<K, V, window> &block, float (&dq)[K / 4]) {
    const place at;
    const chunk_task &a = block.a;
    const operand_tile e(block.m.dv), x_columns(operand_tile(block.m.x), own_columns<K>(at.group));
    products_ready(dq);
    products_begin();
#pragma unroll
    for (int s = 0; s < 64; s += 16) product<K / 2, 0, 1>(dq, e.k(s), x_columns.mn(s * 64, 64), true);
    products_commit();
    products_wait<0>();
    products_done(dq);
    __syncthreads();
    uint32_t pairs[K / 8];
    __nv_bfloat16 *half = block.m.q + own_columns<K>(at.group);
    const int first = tile_step(a, block.c, 0);
    pack_pairs(pairs, dq);
    place_rows<K>(half, pairs);
    if (a.dq.data) copy_rows<K>(half, a.dq.row(block.b, first, block.hq), a.dq.time, a.halo, a.T - first);
}
template <int K, int V, bool window>
__device__ void finish_keys(const head_block<K, V, window> &block, const chunk_rate &rate, float (&dx)[K / 4]) {
    const place at;
    const chunk_task &a = block.a;
    const operand_tile e(block.m.dv), q_columns(operand_tile(block.m.q), own_columns<K>(at.group));
    products_ready(dx);
    products_begin();
#pragma unroll
    for (int i = 0; i < 64; i += 16) product<K / 2, 1, 1>(dx, e.mn(i * 64, 64), q_columns.mn(i * 64, 64), true);
    products_commit();
    products_wait<0>();
    products_done(dx);
    __syncthreads();
    __nv_bfloat16 *half = block.m.x + own_columns<K>(at.group);
    const int64_t edges = 2 * a.halo + 1, key = static_cast<int64_t>(block.b) * a.Hq + block.hq;
    float *edge = a.edge_x ? a.edge_x + (key * (a.chunks * edges) + block.c * edges) * K : nullptr;
    if (rate.energy) add_rows<K>(dx, half, block.sums().parts.pull);
    write_rows<K>(half, dx, edge, a, a.dk, block.b, block.hq, block.c, a.shift);
    const int piece = at.thread - side_threads;
    if (a.shift && a.dk.data && block.c + 1 == a.chunks && piece < K / 8)
        *reinterpret_cast<uint4 *>(a.dk.row(block.b, a.T - 1, block.hq) + piece * 8) = make_uint4(0, 0, 0, 0);
}

template <int K, int V, bool window>
__global__ void __launch_bounds__(threads, 1)
    shared_grads_kernel(const __grid_constant__ chunk_task a, const __grid_constant__ chunk_rate rate) {
    extern __shared__ __align__(1024) unsigned char memory[];
    auto &m = *reinterpret_cast<shared_memory<K, V, window> *>(memory);
    constexpr int ahead = stages<K, V, window> - 1;
    const place at;
    const int key = static_cast<int>(blockIdx.x) / a.chunks;
    head_block<K, V, window> block = {a, m, key / a.Hq, key % a.Hq, static_cast<int>(blockIdx.x) % a.chunks, 0};
    const bool queries = __shfl_sync(everyone, at.thread / side_threads, 0) == 0; // the same for a warpgroup
    float sum[K / 4] = {}, E[16] = {}, energy[2] = {0.0f, 0.0f};
    load_steps<K, threads>(m.q, at.thread, a, a.q, block.b, block.hq, block.c);
    load_keys<K, threads>(m.x, at.thread, a, block.b, block.hq, block.c);
    copy_commit();
    for (; block.turn < ahead; block.turn++) {
        if (block.turn < a.group) block.load(at.thread);
        copy_commit();
    }
    copy_wait<ahead>();
    publish();
    __syncthreads();
    keep_reads<K, V, window>(m, queries);
    for (int turn = 0; turn < a.group; turn++) {
        block.turn = turn + ahead;
        if constexpr (ahead > 0) {
            copy_wait<(ahead > 0 ? ahead - 1 : 0)>();
            publish();
            __syncthreads();
            if (block.turn < a.group) block.load(at.thread);
            copy_commit();
        } else {
            __syncthreads();
            block.load(at.thread);
            copy_commit();
            copy_wait<0>();
            publish();
            __syncthreads();
        }
        block.turn = turn;
        block.prefetch_gates(rate, at.thread);
        if (queries) {
            if (turn > 0 && at.thread < 32) {
                block.turn = turn - 1;
                write_scalars(block, rate, energy);
                block.turn = turn;
            }
            query_side(block, sum, E);
        } else {
            key_side(block, sum);
        }
    }
    block.turn = a.group - 1;
    __syncthreads();
    if (queries) place_sums(m, E);
    publish();
    __syncthreads();
    if (queries) {
        if (at.thread < 32) write_scalars(block, rate, energy);
        finish_queries(block, sum);
    } else {
        finish_keys(block, rate, sum);
    }
}

template <int K, int V, bool window>
fwa_status launch(cudaStream_t stream, const chunk_task &task, const chunk_rate &rate) {
    const auto kernel = shared_grads_kernel<K, V, window>;
    constexpr int bytes = sizeof(shared_memory<K, V, window>);
    static_assert(bytes <= 227 << 10, "fits a multiprocessor");
    FWA_CUDA_TRY(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
    FWA_LAUNCH(kernel, static_cast<unsigned>(task.B * task.Hq * task.chunks), threads, bytes, stream, task, rate);
    return FWA_OK;
}

template <int K, int V> fwa_status pick(cudaStream_t stream, const chunk_task &task, const chunk_rate &rate) {
    return task.halo > 0 ? launch<K, V, true>(stream, task, rate) : launch<K, V, false>(stream, task, rate);
}

} // namespace

namespace fwa {

fwa_status chunk_additive_shared_grads(cudaStream_t stream, const chunk_task &task, const chunk_rate &rate) {
    const bool narrow = rate.task.V == 64;
    if (rate.task.K == 64) return narrow ? pick<64, 64>(stream, task, rate) : pick<64, 128>(stream, task, rate);
    return narrow ? pick<128, 64>(stream, task, rate) : pick<128, 128>(stream, task, rate);
}

} // namespace fwa
