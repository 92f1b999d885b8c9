// Chunk form of the additive core, backward, the chunk-parallel part where value heads share a query/key head
// (chunk_additive_backward.cu has the equations). A block takes a chunk of a query/key head and goes through its value
// heads; what sums over them adds up in registers. Two warpgroups, each with half of the columns, stand on the side of
// queries, two on that of keys:
//
//   queries: D = dO V^T, E += D o M, Y = dO S^T, dQ += diag(h) Y, and the sums for gradients of gates
//   keys:    dV = (P o M)^T dO + diag(M_C) X dS', Z = V dS'^T, dX += diag(M_C) Z
//
// As Q and X are the same for all, P is made once, in fp32, and D o M is summed before it meets them: dQ += E X and
// dX += E^T Q at the end. Tiles come a head ahead where two sets fit. Sums for the gates wait in shared memory until
// every warp can make the gradients of one head. bf16 operands, fp32 sums; overwritten, the same bits every time.
#include "kernels/cuda/chunk_additive_heads.cuh"

namespace {

using namespace fwa;

// sum += diag(by) d for the warp's rows, the warpgroup's columns; returns the rows' products with `tile` elementwise.
template <int K>
__device__ float2 add_scaled(float (&sum)[K / 4], const float (&d)[K / 4], float low, float high,
                             const __nv_bfloat16 *tile) {
    const place at;
    float2 dots = make_float2(0.0f, 0.0f);
#pragma unroll
    for (int step = 0; step < K / 32; step++) {
        uint32_t x[4];
        load_matrix(x, tile + at.group * (K == 128 ? 4096 : 0) +
                           swizzled<64>(at.warp * 16 + at.lane % 16,
                                        (K == 128 ? 0 : at.group * 32) + step * 16 + at.lane / 16 * 8));
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const float *from = d + step * 8 + i * 2;
            float &dot = i % 2 ? dots.y : dots.x;
            dot += from[0] * __uint_as_float(x[i] << 16);
            dot += from[1] * __uint_as_float(x[i] & 0xffff0000u);
        }
    }
#pragma unroll
    for (int i = 0; i < K / 4; i++) sum[i] = fmaf(i % 4 / 2 ? high : low, d[i], sum[i]);
    return make_float2(quad_sum(dots.x), quad_sum(dots.y));
}

// Whether Y is under way while D is masked: where the side of queries can have the registers for it, which that of keys
// gives away, of 128 a thread in all.
template <int K, int V, int W> constexpr bool early_reads = W == 1 && K *V < 128 * 128;
constexpr int query_registers = 144, key_registers = 112;

// P, once for all heads, by the side of queries.
template <int K, int V, int W> __device__ void keep_reads(const value_block<K, V, W> &block) {
    const place at;
    const operand_tile q(block.m.q), x_rows(operand_tile(block.m.x), block.group * 2048);
    float P[16];
    products_begin();
#pragma unroll
    for (int k = 0; k < K; k += 16) product<32, 0, 0>(P, q.k(tile_column(k)), x_rows.k(tile_column(k)), k > 0);
    products_commit();
    products_wait<0>();
    products_done(P);
#pragma unroll
    for (int i = 0; i < 4; i++)
        block.m.reads[i][at.thread] = make_float4(P[i * 4], P[i * 4 + 1], P[i * 4 + 2], P[i * 4 + 3]);
}

// E += D o M of this thread's entries, columns 32 group .. of the tile; P o M for the other side, and the sums of P o
// D.
template <int K, int V, int W>
__device__ void add_masked(const value_block<K, V, W> &block, float (&E)[16], const float (&D)[16]) {
    const place at;
    const tile_mask<W> mask = block.mask();
    part_sums &parts = block.sums().parts;
    float row[2] = {}, column[2][4] = {};
    const mask_rows rows(mask, at.row);
    if (block.turn > 0) barrier_of(masked_used, shared_threads);
#pragma unroll
    for (int j = 0; j < 2; j++) {
        const int tile_block = block.group * 2 + j, s0 = tile_block * 16 + at.t * 2;
        if (tile_block > block.warp) continue;
        const float4 low = block.m.reads[j * 2][at.thread], high = block.m.reads[j * 2 + 1][at.thread];
        const float P[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
        float both[8], weight[8];
#pragma unroll
        for (int n = 0; n < 8; n++) both[n] = P[n] * D[j * 8 + n];
        if (tile_block + (W > 1) < block.warp)
            weigh_block<W, true>(mask, rows, s0, both, weight, row, column[j], block.sums().band);
        else
            weigh_block<W, false>(mask, rows, s0, both, weight, row, column[j], block.sums().band);
#pragma unroll
        for (int n = 0; n < 8; n++) E[j * 8 + n] += weight[n] * D[j * 8 + n], weight[n] *= P[n];
        uint32_t pairs[4];
        fragment(pairs, weight, 0);
        store_matrix(block.m.masked + swizzled<64>(block.warp * 16 + at.lane % 16, tile_block * 16 + at.lane / 16 * 8),
                     pairs[0], pairs[1], pairs[2], pairs[3]);
    }
    publish();
    barrier_arrive(masked_there, shared_threads);
    row[0] = quad_sum(row[0]), row[1] = quad_sum(row[1]);
    if (at.t == 0) parts.row[block.group][at.row] = row[0], parts.row[block.group][at.row + 8] = row[1];
    parts.column[block.warp][kept_column()] = spread_columns(column);
}

// The warp's part of <S, dS'>, on the side of keys: the diagonal of S^T dS' by products of 16 rows with themselves.
template <int K, int V> __device__ void keep_state_sum(const value_tiles<K, V> &tiles, part_sums &parts) {
    const place at;
    const int warp = at.thread / 32 % 8;
    float low[4] = {}, high[4] = {};
#pragma unroll
    for (int i = 0; i < K * V / 256 / 8; i++) {
        const int row = warp % (V / 16) * 16, column = (warp / (V / 16) + i * (8 * 16 / V)) * 16;
        const int from = (row + at.lane % 16) / 8 * (K * 8) + (column + at.lane / 16 * 8) * 8 + at.lane % 8 * 8;
        uint32_t S[4], dS[4];
        load_matrix(S, tiles.state + from);
        load_matrix(dS, tiles.d_state + from);
        mma_bf16(low, S, dS[0], dS[2]);
        mma_bf16(high, S, dS[1], dS[3]);
    }
    float sum = 0.0f;
    if (at.g / 2 == at.t) sum = at.g % 2 ? low[1] + high[3] : low[0] + high[2];
    sum = warp_sum(sum);
    if (at.lane == 0) parts.state[warp] = sum;
}

// Gradients of the gates of heads from `first` to before `end`, a head a warp; adds those of the energies.
template <int K, int V, int W>
__device__ void write_scalars(value_block<K, V, W> block, const chunk_rate &rate, int first, int end,
                              float (&energy)[2]) {
    const place at;
    const chunk_task &a = block.a;
    block.turn = first + at.thread / 32;
    if (block.turn >= end) return;
    value_sums<W> &sums = block.sums();
    const gate_rows gates = {sums.u, sums.w, W > 1 ? a.pairs + block.gates_at() : nullptr};
    gate_pair pair;
    if constexpr (W > 1)
        pair = window_gate_grads(gates, block.mask(), sums.parts, sums.band, sums.reach, at.lane);
    else
        pair = plain_gate_grads(gates, sums.parts, at.lane);
    scalar_grads(rate, a, pair, block.b, block.hq, block.h(), block.c, energy);
}

// What the energies ask of the keys, from the warps' parts; all threads come here.
template <int K, int V, int W>
__device__ void sum_energies(const value_block<K, V, W> &block, const float (&energy)[2]) {
    const place at;
    shared_memory<K, V, W> &m = block.m;
    m.energy[at.thread / 32][at.lane * 2] = energy[0], m.energy[at.thread / 32][at.lane * 2 + 1] = energy[1];
    meet_sides();
    if (at.thread >= 64) return;
    float sum = 0.0f;
    for (int warp = 0; warp < shared_warps; warp++) sum += m.energy[warp][at.thread];
    m.pulls.energy[at.thread] = sum;
    barrier_of(1, 64);
    pulls(W > 1 ? block.a.pairs + block.gates_at() : nullptr, m.pulls, at.thread, block.a.halo);
}

// One value head on the side of queries. fetch: asks for the next one's tiles.
template <int K, int V, int W, class next>
__device__ __forceinline__ void query_side(const value_block<K, V, W> &block, float (&dq)[K / 4], float (&E)[16],
                                           const next &fetch) {
    const place at;
    value_tiles<K, V> &tiles = block.tiles();
    const float *u = block.sums().u;
    const operand_tile d_o(tiles.d_o), v_rows(operand_tile(tiles.v), block.group * 2048);
    const block_tile<K> state(tiles.state);
    float D[16], Y[K / 4];
    products_begin();
#pragma unroll
    for (int k = 0; k < V; k += 16) product<32, 0, 0>(D, d_o.k(tile_column(k)), v_rows.k(tile_column(k)), k > 0);
    products_commit();
    const auto read_state = [&] {
#pragma unroll
        for (int v = 0; v < V; v += 16)
            product<K / 2, 0, 1>(Y, d_o.k(tile_column(v)), state.mn(v, block.group * (K / 2)), v > 0);
        products_commit();
    };
    constexpr bool early = early_reads<K, V, W>;
    if (early) read_state();
    fetch();
    products_wait<early ? 1 : 0>();
    products_done(D);
    add_masked(block, E, D);
    if (!early) products_begin(), read_state();
    products_wait<0>();
    products_done(Y);
    block.release();
    const float low = at.row < block.a.halo ? 0.0f : power2(u[at.row]),
                high = at.row + 8 < block.a.halo ? 0.0f : power2(u[at.row + 8]);
    const float2 dots = add_scaled<K>(dq, Y, low, high, block.m.q);
    part_sums &parts = block.sums().parts;
    if (at.t == 0) parts.history[block.group][at.row] = dots.x, parts.history[block.group][at.row + 8] = dots.y;
}

// One value head on the side of keys, which waits for P o M when it has done all else.
template <int K, int V, int W, class next>
__device__ __forceinline__ void key_side(const value_block<K, V, W> &block, float (&dx)[K / 4], const next &fetch) {
    const place at;
    value_tiles<K, V> &tiles = block.tiles();
    const tile_mask<W> mask = block.mask();
    const operand_tile x(block.m.x), v_tile(tiles.v), d_o_columns(operand_tile(tiles.d_o), own_columns<V>(block.group)),
        masked(block.m.masked);
    const block_tile<K> d_state(tiles.d_state);
    float dv[V / 4], Z[K / 4];
    products_begin();
#pragma unroll
    for (int v = 0; v < V; v += 16)
        product<K / 2, 0, 1>(Z, v_tile.k(tile_column(v)), d_state.mn(v, block.group * (K / 2)), v > 0);
    products_commit();
#pragma unroll
    for (int k = 0; k < K; k += 16)
        product<V / 2, 0, 0>(dv, x.k(tile_column(k)), d_state.k(block.group * (V / 2), k), k > 0);
    products_commit();
    fetch();
    const float low = mask.at(63, at.row, mask.u[63]), high = mask.at(63, at.row + 8, mask.u[63]);
    products_wait<1>();
    products_done(Z);
    const float2 dots = add_scaled<K>(dx, Z, low, high, block.m.x);
    part_sums &parts = block.sums().parts;
    if (at.t == 0) parts.leave[block.group][at.row] = dots.x, parts.leave[block.group][at.row + 8] = dots.y;
    products_wait<0>();
    products_done(dv);
    scale_rows(dv, low, high);
    keep_state_sum<K, V>(tiles, parts);
    barrier_of(masked_there, shared_threads);
    products_ready(dv);
    products_begin();
#pragma unroll
    for (int i = 0; i < 64; i += 16) product<V / 2, 1, 1>(dv, masked.mn(i * 64, 64), d_o_columns.mn(i * 64, 64), true);
    products_commit();
    products_wait<0>();
    products_done(dv);
    block.release();
    if (block.turn + 1 < block.a.group) barrier_arrive(masked_used, shared_threads);
    const chunk_task &a = block.a;
    const int64_t edges = 2 * a.halo + 1;
    float *edge = a.edge_v ? a.edge_v + (block.head() * (a.chunks * edges) + block.c * edges) * V : nullptr;
    write_rows<V>(block.m.dv + own_columns<V>(block.group), dv, edge, a, a.dv, block.b, block.h(), block.c, 0);
}

// E, in bf16, to where both sides find it.
template <int K, int V, int W> __device__ void place_sums(shared_memory<K, V, W> &m, const float (&E)[16]) {
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
template <int K, int V, int W> __device__ void finish_queries(const value_block<K, V, W> &block, float (&dq)[K / 4]) {
    const place at;
    const chunk_task &a = block.a;
    const operand_tile e(block.m.dv), x_columns(operand_tile(block.m.x), own_columns<K>(block.group));
    products_ready(dq);
    products_begin();
#pragma unroll
    for (int s = 0; s < 64; s += 16) product<K / 2, 0, 1>(dq, e.k(s), x_columns.mn(s * 64, 64), true);
    products_commit();
    products_wait<0>();
    products_done(dq);
    meet_sides();
    uint32_t pairs[K / 8];
    __nv_bfloat16 *half = block.m.q + own_columns<K>(block.group);
    const int first = tile_step(a, block.c, 0);
    pack_pairs(pairs, dq);
    place_rows<K>(half, pairs);
    if (a.dq.data) copy_rows<K>(half, a.dq.row(block.b, first, block.hq), a.dq.time, a.halo, a.T - first);
}
template <int K, int V, int W>
__device__ void finish_keys(const value_block<K, V, W> &block, const chunk_rate &rate, float (&dx)[K / 4]) {
    const place at;
    const chunk_task &a = block.a;
    const operand_tile e(block.m.dv), q_columns(operand_tile(block.m.q), own_columns<K>(block.group));
    products_ready(dx);
    products_begin();
#pragma unroll
    for (int i = 0; i < 64; i += 16) product<K / 2, 1, 1>(dx, e.mn(i * 64, 64), q_columns.mn(i * 64, 64), true);
    products_commit();
    products_wait<0>();
    products_done(dx);
    meet_sides();
    __nv_bfloat16 *half = block.m.x + own_columns<K>(block.group);
    const int64_t edges = 2 * a.halo + 1, key = static_cast<int64_t>(block.b) * a.Hq + block.hq;
    float *edge = a.edge_x ? a.edge_x + (key * (a.chunks * edges) + block.c * edges) * K : nullptr;
    if (rate.energy) add_rows<K>(dx, half, block.m.pulls.pull);
    write_rows<K>(half, dx, edge, a, a.dk, block.b, block.hq, block.c, a.shift);
    const int piece = at.thread - side_threads;
    if (a.shift && a.dk.data && block.c + 1 == a.chunks && piece < K / 8)
        *reinterpret_cast<uint4 *>(a.dk.row(block.b, a.T - 1, block.hq) + piece * 8) = make_uint4(0, 0, 0, 0);
}

// The loop over value heads of one side. The sides meet where gates are made of the sums of several heads; in between
// they wait for tiles and for each other's P o M alone.
template <bool keys, int K, int V, int W, class side>
__device__ __forceinline__ void each_head(value_block<K, V, W> &block, const chunk_rate &rate, float (&energy)[2],
                                          const side &work) {
    constexpr int ahead = value_stages<K, V> - 1;
    const place at;
    const int group = block.a.group, part = keys ? block.group * 4 + block.warp : -1;
    for (int first = 0; first < group; first += values_kept<K, V, W>) {
        const int end = min(first + values_kept<K, V, W>, group);
        if (first > 0) meet_sides(); // gates of the heads before have been made of their sums
        for (int turn = first; turn < end; turn++) {
            block.turn = turn;
            if (ahead == 0) {
                meet_sides();
                block.load(at.thread, part);
            }
            block.await();
            if (block.apart()) {
                publish();
                meet_sides();
            }
            work([&] {
                if (ahead > 0 && turn + 1 < group) {
                    block.turn = turn + 1;
                    block.load(at.thread, part);
                }
                if (turn + ahead + 1 < group) {
                    block.turn = turn + ahead + 1;
                    block.prefetch_tiles(at.thread, part - 4);
                }
                block.turn = turn;
            });
        }
        meet_sides();
        write_scalars(block, rate, first, end, energy);
    }
}
template <int K, int V, int W>
__device__ void meet_at_end(const value_block<K, V, W> &block, const chunk_rate &rate, const float (&energy)[2]) {
    if (rate.energy) sum_energies(block, energy);
    publish();
    meet_sides();
}

template <int K, int V, int W>
__global__ void __launch_bounds__(shared_threads, 1)
    shared_grads_kernel(const __grid_constant__ chunk_task a, const __grid_constant__ chunk_rate rate,
                        const __grid_constant__ value_maps maps) {
    extern __shared__ __align__(1024) unsigned char memory[];
    auto &m = *reinterpret_cast<shared_memory<K, V, W> *>(memory);
    const place at;
    const int key = static_cast<int>(blockIdx.x) / a.chunks;
    value_block<K, V, W> block = {a,
                                  m,
                                  maps,
                                  key / a.Hq,
                                  key % a.Hq,
                                  static_cast<int>(blockIdx.x) % a.chunks,
                                  __shfl_sync(everyone, at.group, 0),
                                  __shfl_sync(everyone, at.warp, 0),
                                  0};
    block.start(at.thread);
    const bool queries = __shfl_sync(everyone, at.thread / side_threads, 0) == 0; // the same for a warpgroup
    float energy[2] = {0.0f, 0.0f};
    load_steps<K, shared_threads>(m.q, at.thread, a, a.q, block.b, block.hq, block.c);
    load_keys<K, shared_threads>(m.x, at.thread, a, block.b, block.hq, block.c);
    if (at.thread < 64) block.prefetch_gates(rate, at.thread);
    reinterpret_cast<uint4 *>(m.masked)[at.thread] = make_uint4(0, 0, 0, 0); // above the diagonal it stays that
    copy_commit();
    copy_wait<0>();
    publish();
    __syncthreads();
    if (queries) {
        if (early_reads<K, V, W>) registers_take<query_registers>();
        keep_reads(block);
        float dq[K / 4] = {}, E[16] = {};
        each_head<false>(block, rate, energy, [&](const auto &fetch) { query_side(block, dq, E, fetch); });
        place_sums(m, E);
        meet_at_end(block, rate, energy);
        finish_queries(block, dq);
    } else {
        if (early_reads<K, V, W>) registers_give<key_registers>();
        float dx[K / 4] = {};
        each_head<true>(block, rate, energy, [&](const auto &fetch) { key_side(block, dx, fetch); });
        meet_at_end(block, rate, energy);
        finish_keys(block, rate, dx);
    }
}

template <int K, int V, int W> fwa_status launch(cudaStream_t stream, const chunk_task &task, const chunk_rate &rate) {
    value_maps maps;
    FWA_TRY(tile_map_of(&maps.v, task.v, task.B, task.T, task.H, V));
    FWA_TRY(tile_map_of(&maps.d_o, task.d_o, task.B, task.T, task.H, V));
    const auto kernel = shared_grads_kernel<K, V, W>;
    constexpr int bytes = sizeof(shared_memory<K, V, W>);
    static_assert(bytes <= shared_bytes_most && values_kept<K, V, W> >= 4, "fits a multiprocessor");
    FWA_CUDA_TRY(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
    FWA_LAUNCH(kernel, static_cast<unsigned>(task.B * task.Hq * task.chunks), shared_threads, bytes, stream, task, rate,
               maps);
    return FWA_OK;
}

template <int K, int V> fwa_status pick(cudaStream_t stream, const chunk_task &task, const chunk_rate &rate) {
    const int W = window_made(task.halo);
    return W == 1   ? launch<K, V, 1>(stream, task, rate)
           : W == 4 ? launch<K, V, 4>(stream, task, rate)
                    : launch<K, V, 8>(stream, task, rate);
}

} // namespace

namespace fwa {

fwa_status chunk_additive_shared_grads(cudaStream_t stream, const chunk_task &task, const chunk_rate &rate) {
    const bool narrow = rate.task.V == 64;
    if (rate.task.K == 64) return narrow ? pick<64, 64>(stream, task, rate) : pick<64, 128>(stream, task, rate);
    return narrow ? pick<128, 64>(stream, task, rate) : pick<128, 128>(stream, task, rate);
}

} // namespace fwa
