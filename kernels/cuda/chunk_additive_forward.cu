// Chunk form of the additive core, forward (docs/kernels.md): one pass over the chunks of a head,
//
//   O = diag(h) Q S + ((Q X^T) o M) V      S' = h_C S + X^T diag(M_C) V      h_i = e^{u_i}
//
// bf16 operands, fp32 sums; S stays in fp32. o and the leaving state are overwritten; S before every chunk is kept as
// bf16 where a backward pass follows. A warpgroup holds 64 columns of V, transposed: rows of its accumulators are
// columns of V, so that S^T and O^T are first operands out of registers and nothing is exchanged between warps but the
// masked P = Q X^T, 8 KB a chunk. Three warpgroups a multiprocessor: while one waits another computes. They are blocks
// of their own, or one block where value heads share a query/key head, so that Q and X are loaded once for three. X and
// V are loaded a chunk ahead, Q as soon as a tile is free. Segments of a sequence are blocks of their own, from states
// found before.
#include "kernels/cuda/chunk_additive.cuh"

namespace {

using namespace fwa;

constexpr bool split_blocks = true;
constexpr int unit_threads = 128; // a unit: a warpgroup, with 64 columns of V of a head

// Shared memory of a block, and what each of its units has in it.
struct unit_tiles {
    __nv_bfloat16 v[2][64 * 64];
    __nv_bfloat16 p[64 * 64]; // masked, then o
};
template <bool window> struct unit_gates {
    float u[2][64], w[2][64], leave[2][64], history[2][64];
    float far[window ? 64 : 1];
    float2 band[window ? 64 : 1];
};
template <int units> constexpr int query_stages = units > 1 ? 2 : 1;
template <int K, bool window, int units> struct forward_memory {
    __nv_bfloat16 q[query_stages<units>][64 * K];
    __nv_bfloat16 x[2][64 * K];
    unit_tiles tiles[units];
    unit_gates<window> gates[units];
};

// Gates of a row, read a chunk ahead.
struct row_gates {
    float u, w, last, far;
    float2 band;
};

template <bool window> __device__ row_gates read_gates(const chunk_task &a, int64_t head, int c, int row) {
    const int64_t at = (head * a.chunks + c) * 64;
    row_gates g = {a.u[at + row], a.w[at + row], a.u[at + 63], 0.0f, {}};
    if (window) g.far = a.far[at + row], g.band = a.band[at + row];
    return g;
}

template <bool window> __device__ void write_gates(unit_gates<window> &m, int stage, int row, const row_gates &g) {
    m.u[stage][row] = g.u;
    m.w[stage][row] = g.w;
    m.history[stage][row] = power2(g.u);
    if (!window) m.leave[stage][row] = g.w * power2(g.last - g.u);
    if (window) m.far[row] = g.far, m.band[row] = g.band;
}

// Masked P of the tile, bf16, into shared memory. Blocks of 16 columns beyond the warp's rows are zeros.
template <bool window>
__device__ void masked_reads(__nv_bfloat16 *tile, const tile_mask<window> &mask, float (&P)[32], int warp) {
    const int lane = threadIdx.x % 32, t = lane % 4, i = warp * 16 + lane / 4;
    const float u_low = mask.u[i], u_high = mask.u[i + 8];
    const int to = swizzled<64>(warp * 16 + lane % 16, lane / 16 * 8);
#pragma unroll
    for (int j = 0; j < 4; j++) {
        uint32_t pairs[4] = {};
        if (split_blocks && j + window < warp) { // no entry is in the band or beyond the diagonal
#pragma unroll
            for (int n = 0; n < 8; n++) {
                const int s = j * 16 + n / 4 * 8 + t * 2 + n % 2;
                P[j * 8 + n] *= (window ? mask.far[s] : mask.w[s]) *
                                power2((n % 4 / 2 ? u_high : u_low) - mask.u[window ? s + mask.halo : s]);
            }
            fragment(pairs, P, j);
        } else if (j <= warp) {
#pragma unroll
            for (int n = 0; n < 8; n++) {
                const int s = j * 16 + n / 4 * 8 + t * 2 + n % 2, high = n % 4 / 2;
                P[j * 8 + n] *= mask.at(i + high * 8, s, high ? u_high : u_low);
            }
            fragment(pairs, P, j);
        }
        // Rows of the warp: the swizzle of columns 16 j .. is that of column 0, turned by 16 j.
        store_matrix(tile + (to ^ j * 16), pairs[0], pairs[1], pairs[2], pairs[3]);
    }
}

template <int K, bool window, int units> struct forward_block {
    const chunk_task &a;
    forward_memory<K, window, units> &m;
    operand_tile queries, x, p;
    int unit, b, h, slice, slices, thread, warp;

    __device__ unit_tiles &tiles() const {
        return m.tiles[unit];
    }
    __device__ unit_gates<window> &gates() const {
        return m.gates[unit];
    }
    // The first unit loads keys, the last one queries.
    __device__ void load_x_v(int c) const {
        if (units == 1 || unit == 0) load_keys<K, unit_threads>(m.x[c % 2], thread, a, b, h / a.group, c);
        load_values<unit_threads>(tiles().v[c % 2], thread, a, slices * 64, slice * 64, b, h, c);
    }
    __device__ void load_q(int c) const {
        if (units == 1 || unit == units - 1)
            load_steps<K, unit_threads>(m.q[c % query_stages<units>], thread, a, a.q, b, h / a.group, c);
    }
    __device__ operand_tile q(int c) const {
        return {queries, c % query_stages<units> * (64 * K)};
    }
    __device__ void barrier() const {
        if constexpr (units == 1)
            __syncthreads();
        else
            barrier_of(unit + 1, unit_threads);
    }
    // Q X^T
    __device__ void reads(float (&P)[32], int c) const {
        const operand_tile tile = q(c);
        products_begin();
#pragma unroll
        for (int k = 0; k < K; k += 16) {
            const int at = k / 64 * 4096 + k % 64;
            product<64, 0, 0>(P, tile.k(at), x.k(at + c % 2 * (64 * K)), k > 0);
        }
        products_commit();
        products_wait<0>();
        products_done(P);
    }
    // S^T Q^T
    __device__ void history(float (&O)[32], const uint32_t (&S)[K / 16][4], int c) const {
        const operand_tile tile = q(c);
        products_begin();
#pragma unroll
        for (int k = 0; k < K; k += 16) product<64, 0>(O, S[k / 16], tile.k(k / 64 * 4096 + k % 64), k > 0);
        products_commit();
        products_wait<0>();
        products_done(O);
    }
};

template <int K, bool window, int units>
__global__ void __launch_bounds__(unit_threads *units, forward_blocks / units)
    chunk_forward_kernel(const __grid_constant__ chunk_task a, int slices) {
    extern __shared__ __align__(1024) unsigned char memory[];
    auto &m = *reinterpret_cast<forward_memory<K, window, units> *>(memory);
    const int segment = static_cast<int>(blockIdx.x) % a.segments, begin = segment * a.length,
              end = min(begin + a.length, a.chunks);
    const int unit =
        units == 1 ? 0 : __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / unit_threads, 0); // of a warpgroup
    const int piece = static_cast<int>(blockIdx.x) / a.segments * units + unit, head = piece / slices;
    const int thread = static_cast<int>(threadIdx.x) % unit_threads;
    const forward_block<K, window, units> at = {
        a,      m,          operand_tile(m.q[0]), operand_tile(m.x[0]), operand_tile(m.tiles[unit].p),
        unit,   head / a.H, head % a.H,           piece % slices,       slices,
        thread, thread / 32};
    const int v = at.slice * 64, t = thread % 4;
    float S[K / 2];
    get_state<K>(S, a.segments > 1 ? segment_state(a, segment, K, slices * 64) : a.S0, at.b, at.h, v + at.warp * 16);
    at.load_x_v(begin);
    at.load_q(begin);
    copy_commit();
    row_gates gates = {};
    if (thread < 64) gates = read_gates<window>(a, head, begin, thread);
    for (int c = begin; c < end; c++) {
        const int stage = c % 2;
        unit_gates<window> &kept = at.gates();
        if (thread < 64) write_gates(kept, stage, thread, gates);
        copy_wait<0>();
        publish();
        __syncthreads();
        if (c + 1 < end) {
            at.load_x_v(c + 1);
            if (units > 1) at.load_q(c + 1);
            if (thread < 64) gates = read_gates<window>(a, head, c + 1, thread);
        }
        const tile_mask<window> mask = {kept.u[stage], kept.w[stage], kept.far, kept.band, a.halo};
        float O[32];
        {
            float P[32];
            at.reads(P, c);
            masked_reads(at.tiles().p, mask, P, at.warp);
        }
        if (window && thread < 64) kept.leave[stage][thread] = mask.at(63, thread, kept.u[stage][63]);
        {
            uint32_t rows[K / 16][4];
#pragma unroll
            for (int step = 0; step < K / 16; step++) fragment(rows[step], S, step);
            if (a.states) keep_blocks<K>(blocks_at<K>(a.states, a, head, c, slices * 64, v + at.warp * 16), rows);
            at.history(O, rows, c);
        }
#pragma unroll
        for (int j = 0; j < 8; j++) {
            const float2 h = *reinterpret_cast<const float2 *>(kept.history[stage] + j * 8 + t * 2);
            O[j * 4] *= h.x, O[j * 4 + 1] *= h.y, O[j * 4 + 2] *= h.x, O[j * 4 + 3] *= h.y;
        }
        publish();
        at.barrier();
        if (units == 1 && c + 1 < end) at.load_q(c + 1);
        copy_commit();
        uint32_t rows[4][4], leaving[4][4];
        transposed_fragments(rows, at.tiles().v[stage], at.warp);
#pragma unroll
        for (int i = 0; i < 16; i++) leaving[i / 4][i % 4] = rows[i / 4][i % 4];
        scale_fragments(leaving, kept.leave[stage]);
        const float h_end = kept.history[stage][63];
#pragma unroll
        for (int i = 0; i < K / 2; i++) S[i] *= h_end;
        const operand_tile x(at.x, stage * (64 * K));
        products_begin();
#pragma unroll
        for (int step = 0; step < 4; step++) product<64, 0>(O, rows[step], at.p.k(step * 16), true);
        products_commit();
#pragma unroll
        for (int step = 0; step < 4; step++) product<K, 1>(S, leaving[step], x.mn(step * 16 * 64, 64), true);
        products_commit();
        products_wait<0>();
        products_done(O);
        products_done(S);
        at.barrier();
        write_columns(at.tiles().p, O, a, a.o, at.b, at.h, c, v, at.warp);
    }
    if (a.S_end.data && end == a.chunks) set_state<K>(S, a.S_end, at.b, at.h, v + at.warp * 16);
}

} // namespace

namespace fwa {

template <int K, bool window, int units> fwa_status launch_forward(cudaStream_t stream, const chunk_task &task, int V) {
    const auto kernel = chunk_forward_kernel<K, window, units>;
    constexpr int bytes = sizeof(forward_memory<K, window, units>), threads = unit_threads * units;
    const auto blocks = static_cast<unsigned>(task.B * task.H * (V / 64) / units * task.segments);
    FWA_CUDA_TRY(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
    FWA_LAUNCH(kernel, blocks, threads, bytes, stream, task, V / 64);
    return FWA_OK;
}

template <int K, bool window> fwa_status pick_forward(cudaStream_t stream, const chunk_task &task, int V) {
    const bool together = task.group * (V / 64) % forward_blocks == 0;
    return together ? launch_forward<K, window, forward_blocks>(stream, task, V)
                    : launch_forward<K, window, 1>(stream, task, V);
}

fwa_status chunk_additive_forward(cudaStream_t stream, const chunk_task &task, int K, int V) {
    if (task.halo > 0)
        return K == 64 ? pick_forward<64, true>(stream, task, V) : pick_forward<128, true>(stream, task, V);
    return K == 64 ? pick_forward<64, false>(stream, task, V) : pick_forward<128, false>(stream, task, V);
}

} // namespace fwa
