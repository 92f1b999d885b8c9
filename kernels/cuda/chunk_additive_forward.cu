// Chunk form of the additive core, forward (docs/kernels.md): one pass over the chunks of a head,
//
//   O = diag(h) Q S + ((Q X^T) o M) V      S' = h_C S + X^T diag(M_C) V      h_i = e^{u_i}
//
// bf16 operands, fp32 sums; S stays in fp32. o and the leaving state are overwritten; S before every chunk is kept as
// bf16 where a backward pass follows. A warpgroup holds 64 columns of V, transposed: rows of its accumulators are
// columns of V, so that S^T and O^T are first operands out of registers and nothing is exchanged between warps but the
// masked P = Q X^T, 8 KB a chunk. Three blocks a multiprocessor: while one waits another computes. X and V are loaded a
// chunk ahead, Q as soon as its tile is free. Segments of a sequence are blocks of their own, from states found before,
// as is the one that leaves then. Three slices of shared keys a block: chunk_additive_groups.cu.
#include "kernels/cuda/chunk_additive.cuh"

namespace {

using namespace fwa;

constexpr int threads = 128;

// Shared memory of a block.
template <int K, int W> struct forward_memory {
    __nv_bfloat16 q[64 * K];
    __nv_bfloat16 x[2][64 * K];
    __nv_bfloat16 v[2][64 * 64];
    __nv_bfloat16 p[64 * 64]; // masked, then o
    float u[2][64], w[2][64], leave[2][64], history[2][64];
    float far[W > 1 ? 64 : 1];
    int hq; // h / group where registers are short: divisions are long
};

// Gates of a row, read a chunk ahead.
struct row_gates {
    float u, w, last, far;
};

template <int W> __device__ row_gates read_gates(const chunk_task &a, int64_t head, int c, int row) {
    const int64_t at = (head * a.chunks + c) * 64;
    row_gates g = {a.u[at + row], a.w[at + row], a.u[at + 63], 0.0f};
    if (W > 1) {
        g.far = a.far[at + row];
        prefetch(a.band + at + row);
    }
    return g;
}

template <int K, int W> __device__ void write_gates(forward_memory<K, W> &m, int stage, int row, const row_gates &g) {
    m.u[stage][row] = g.u;
    m.w[stage][row] = g.w;
    m.history[stage][row] = power2(g.u);
    if (W == 1) m.leave[stage][row] = g.w * power2(g.last - g.u);
    if (W > 1) m.far[row] = g.far;
}

// Masked P of the tile, bf16, into shared memory. Blocks of 16 columns beyond the warp's rows are zeros.
template <int K, int W>
__device__ void masked_reads(forward_memory<K, W> &m, const tile_mask<W> &mask, float (&P)[32], int warp) {
    const int lane = threadIdx.x % 32, t = lane % 4, i = warp * 16 + lane / 4;
    const mask_rows rows(mask, i);
    __nv_bfloat16 *to = m.p + swizzled<64>(warp * 16 + lane % 16, lane / 16 * 8);
#pragma unroll
    for (int j = 0; j < 4; j++) {
        uint32_t pairs[4] = {};
        if (j <= warp) {
            float weight[8] = {};
            if (j + (W > 1) < warp)
                far_block(weight, mask, rows, j * 16 + t * 2);
            else if (W > 1)
                mask_block(weight, mask, rows, j * 16 + t * 2);
#pragma unroll
            for (int n = 0; n < 8; n++) {
                const int s = j * 16 + n / 4 * 8 + t * 2 + n % 2, high = n % 4 / 2;
                if (W == 1 && j == warp) weight[n] = mask.at(i + high * 8, s, rows.u[high]);
                P[j * 8 + n] *= weight[n];
            }
            fragment(pairs, P, j);
        }
        // Rows of the warp: the swizzle of columns 16 j .. is that of column 0, turned by 16 j.
        store_matrix(m.p + ((to - m.p) ^ j * 16), pairs[0], pairs[1], pairs[2], pairs[3]);
    }
}

template <int K, int W> struct forward_block {
    const chunk_task &a;
    forward_memory<K, W> &m;
    operand_tile q, x, p;
    int b, h, slice, slices, warp;

    __device__ int hq() const {
        return W > 1 ? h / a.group : m.hq;
    }
    __device__ void load_x_v(int c) const {
        load_keys<K, threads>(m.x[c % 2], threadIdx.x, a, b, hq(), c);
        load_values<threads>(m.v[c % 2], threadIdx.x, a, slices * 64, slice * 64, b, h, c);
    }
    __device__ void load_q(int c) const {
        load_steps<K, threads>(m.q, threadIdx.x, a, a.q, b, hq(), c);
    }
    // Q X^T
    __device__ void reads(float (&P)[32], int stage) const {
        products_begin();
#pragma unroll
        for (int k = 0; k < K; k += 16) {
            const int at = tile_column(k);
            product<64, 0, 0>(P, q.k(at), x.k(at + stage * (64 * K)), k > 0);
        }
        products_commit();
        products_wait<0>();
        products_done(P);
    }
    // S^T Q^T
    __device__ void history(float (&O)[32], const uint32_t (&S)[K / 16][4]) const {
        products_begin();
#pragma unroll
        for (int k = 0; k < K; k += 16) product<64, 0>(O, S[k / 16], q.k(tile_column(k)), k > 0);
        products_commit();
        products_wait<0>();
        products_done(O);
    }
};

template <int K, int W>
__global__ void __launch_bounds__(threads, forward_blocks)
    chunk_forward_kernel(const __grid_constant__ chunk_task a, int slices) {
    extern __shared__ __align__(1024) unsigned char memory[];
    auto &m = *reinterpret_cast<forward_memory<K, W> *>(memory);
    const int piece = static_cast<int>(blockIdx.x) / a.segments, segment = static_cast<int>(blockIdx.x) % a.segments;
    const int head = piece / slices, thread = static_cast<int>(threadIdx.x), begin = segment * a.length,
              end = min(begin + a.length, a.chunks);
    const forward_block<K, W> at = {a,
                                    m,
                                    operand_tile(m.q),
                                    operand_tile(m.x[0]),
                                    operand_tile(m.p),
                                    head / a.H,
                                    head % a.H,
                                    piece % slices,
                                    slices,
                                    thread / 32};
    const int v = at.slice * 64, t = thread % 4;
    float S[K / 2];
    get_state<K>(S, a.segments > 1 ? segment_state(a, segment, K, slices * 64) : a.S0, at.b, at.h, v + at.warp * 16);
    if (W == 1) {
        if (thread == 0) m.hq = at.h / a.group;
        __syncthreads();
    }
    at.load_x_v(begin);
    at.load_q(begin);
    copy_commit();
    row_gates gates = {};
    if (thread < 64) gates = read_gates<W>(a, head, begin, thread);
    for (int c = begin; c < end; c++) {
        const int stage = c % 2;
        if (thread < 64) write_gates(m, stage, thread, gates);
        copy_wait<0>();
        publish();
        __syncthreads();
        if (c + 1 < end) {
            at.load_x_v(c + 1);
            if (thread < 64) gates = read_gates<W>(a, head, c + 1, thread);
        }
        const tile_mask<W> mask = {m.u[stage], m.w[stage], m.far,
                                   a.band + (static_cast<int64_t>(head) * a.chunks + c) * 64};
        float O[32];
        {
            float P[32];
            at.reads(P, stage);
            masked_reads(m, mask, P, at.warp);
        }
        if (W > 1 && thread < 64) m.leave[stage][thread] = mask.at(63, thread, m.u[stage][63]);
        {
            uint32_t rows[K / 16][4];
#pragma unroll
            for (int step = 0; step < K / 16; step++) fragment(rows[step], S, step);
            if (a.states) keep_blocks<K>(blocks_at<K>(a.states, a, head, c, slices * 64, v + at.warp * 16), rows);
            at.history(O, rows);
        }
#pragma unroll
        for (int j = 0; j < 8; j++) {
            const float2 h = *reinterpret_cast<const float2 *>(m.history[stage] + j * 8 + t * 2);
            O[j * 4] *= h.x, O[j * 4 + 1] *= h.y, O[j * 4 + 2] *= h.x, O[j * 4 + 3] *= h.y;
        }
        publish();
        __syncthreads();
        if (c + 1 < end) at.load_q(c + 1);
        copy_commit();
        uint32_t rows[4][4], leaving[4][4];
        transposed_fragments(rows, m.v[stage], at.warp);
#pragma unroll
        for (int i = 0; i < 16; i++) leaving[i / 4][i % 4] = rows[i / 4][i % 4];
        scale_fragments(leaving, m.leave[stage]);
        const float h_end = m.history[stage][63];
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
        __syncthreads();
        write_columns(m.p, O, a, a.o, at.b, at.h, c, v, at.warp);
    }
    if (a.segments == 1 && a.S_end.data) set_state<K>(S, a.S_end, at.b, at.h, v + at.warp * 16);
}

} // namespace

namespace fwa {

template <int K, int W> fwa_status launch_forward(cudaStream_t stream, const chunk_task &task, int V) {
    const auto kernel = chunk_forward_kernel<K, W>;
    constexpr int bytes = sizeof(forward_memory<K, W>);
    FWA_CUDA_TRY(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
    FWA_LAUNCH(kernel, static_cast<unsigned>(task.B * task.H * (V / 64) * task.segments), threads, bytes, stream, task,
               V / 64);
    return FWA_OK;
}

template <int K> fwa_status pick_forward(cudaStream_t stream, const chunk_task &task, int V) {
    const int W = window_made(task.halo);
    return W == 1   ? launch_forward<K, 1>(stream, task, V)
           : W == 4 ? launch_forward<K, 4>(stream, task, V)
                    : launch_forward<K, 8>(stream, task, V);
}

fwa_status chunk_additive_forward(cudaStream_t stream, const chunk_task &task, int K, int V) {
    if (chunk_additive_grouped(task, V)) return chunk_additive_forward_groups(stream, task, K, V);
    return K == 64 ? pick_forward<64>(stream, task, V) : pick_forward<128>(stream, task, V);
}

} // namespace fwa
