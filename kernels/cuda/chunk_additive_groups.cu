// Chunk form of the additive core, the passes that carry a state, where value heads share a query/key head
// (chunk_additive_forward.cu and chunk_additive_scan.cu have the equations and what is done alone): a block has three
// warpgroups that hold 64 columns of V each, of the same query/key head, and a warp that feeds them. Tiles of queries
// and keys come once for all three, through the copy engine; a warpgroup waits for tiles alone, never for another, so
// that one multiplies while another masks. Blocks go on to the next three columns, whose tiles come while the last ones
// are in work. Every warpgroup computes what a block of the other kernels does, bit by bit.
#include "kernels/cuda/chunk_additive.cuh"

#include "kernels/cuda/chunk_bulk.cuh"

namespace {

using namespace fwa;

constexpr int group_threads = 128, groups = 3, block_threads = (groups + 1) * group_threads;
constexpr int feeder_registers = 32, group_registers = 160; // 128 a thread in all

// Tiles of a chunk: of queries, keys or both, and what the groups have alone.
template <int K, int shared> struct chunk_tiles {
    __nv_bfloat16 by[shared][64 * K];
    __nv_bfloat16 rows[groups][64 * 64]; // of v or dO
};
struct chunk_gates_of {
    float u[groups][64], w[groups][64];
};

// Of both kernels: tiles come and go in `stages` stages. full: they are there; free: all warps are done with them.
template <int K, int shared, int stages> struct group_memory {
    alignas(1024) chunk_tiles<K, shared> tiles[stages];
    chunk_gates_of gates[stages];
    uint64_t full[stages], free[stages];
};

template <int K> struct forward_memory : group_memory<K, 2, 2> {
    alignas(1024) __nv_bfloat16 p[groups][2][64 * 64]; // masked, in turn; zeros above the diagonal
    __nv_bfloat16 out[groups][64 * 64];
    float history[groups][2][64], leave[groups][2][64];
};
template <int K> struct scan_memory : group_memory<K, 1, 4> {};

// Tensors as the copy engine sees them: rows of the shared tiles, and of v or dO.
struct pass_maps {
    tile_map by[2], rows;
};

// 64 columns of V of a head; `slices` of them, 1 or 2, make a head.
struct group_slice {
    int head, v;
    __device__ group_slice(int slice, int slices) : head(slice >> (slices - 1)), v((slice & (slices - 1)) * 64) {}
};

// What the `turn`-th item of a block is: a segment of three slices in a row, of the same query/key head.
struct group_item {
    int first, b, hq, segment, begin, end; // first: slice; chunks begin .. end - 1
    bool there;
    __device__ group_item(const chunk_task &a, int slices, int turn) {
        const int item = static_cast<int>(blockIdx.x + turn * gridDim.x), threes = item / a.segments;
        there = item < a.B * a.H * slices / groups * a.segments;
        first = threes * groups, segment = item % a.segments;
        const int head = group_slice(first, slices).head;
        b = head / a.H, hq = head % a.H / a.group;
        begin = segment * a.length, end = min(begin + a.length, a.chunks);
    }
};

template <class memory> __device__ void create_phases(memory &m) {
    if (threadIdx.x > 0) return;
    for (uint64_t &full : m.full) phase_create(&full, 1);
    for (uint64_t &is_free : m.free) phase_create(&is_free, groups * 4);
}

// One warp: asks for the tiles of all chunks of the block's items as soon as their places are free.
template <int K, int shared, int stages, bool forward>
__device__ void feed(const chunk_task &a, group_memory<K, shared, stages> &m, const pass_maps &maps, int slices) {
    constexpr int bytes = sizeof(chunk_tiles<K, shared>) + groups * 64 * 4 * shared;
    int n = 0;
    for (int turn = 0;; turn++) {
        const group_item at(a, slices, turn);
        if (!at.there) return;
        for (int i = at.begin; i < at.end; i++, n++) {
            const int c = forward ? i : at.begin + at.end - 1 - i, stage = n % stages, t = c * 64;
            if (n >= stages) phase_wait(&m.free[stage], (n / stages - 1) % 2);
            if (threadIdx.x % 32 > 0) continue;
            uint64_t *full = &m.full[stage];
            chunk_tiles<K, shared> &to = m.tiles[stage];
            phase_expect(full, bytes);
#pragma unroll
            for (int e = 0; e < shared; e++)
                for (int k = 0; k < K; k += 64)
                    tile_copy(to.by[e] + k * 64, maps.by[e], k, at.hq, t - (e > 0 ? a.shift : 0), at.b, full);
            for (int group = 0; group < groups; group++) {
                const group_slice own(at.first + group, slices);
                const int64_t gates = (static_cast<int64_t>(own.head) * a.chunks + c) * 64;
                tile_copy(to.rows[group], maps.rows, own.v, own.head - at.b * a.H, t, at.b, full);
                bulk_copy(m.gates[stage].u[group], a.u + gates, 64 * 4, full);
                if (forward) bulk_copy(m.gates[stage].w[group], a.w + gates, 64 * 4, full);
            }
        }
    }
}

// What a block does once its memory is there: one warp feeds, three warpgroups work.
template <class feeder, class worker>
__device__ __forceinline__ void share_out(const feeder &feed_all, const worker &work) {
    publish();
    __syncthreads();
    const int group = __shfl_sync(everyone, static_cast<int>(threadIdx.x) / group_threads, 0);
    if (group == groups) {
        registers_give<feeder_registers>();
        if (threadIdx.x / 32 == groups * 4) feed_all();
    } else {
        registers_take<group_registers>();
        work(group);
    }
}

// Masked P, bf16, on and below the diagonal of a tile of zeros, by one warpgroup: blocks of 16 columns before the
// warp's rows, then the one on the diagonal.
__device__ void masked_reads(__nv_bfloat16 *p, const tile_mask<1> &mask, const float (&P)[32], int warp) {
    const int lane = threadIdx.x % 32, t = lane % 4, i = warp * 16 + lane / 4;
    const mask_rows rows(mask, i);
    const int to = swizzled<64>(warp * 16 + lane % 16, lane / 16 * 8);
    float near[8] = {};
    uint32_t pairs[4];
#pragma unroll
    for (int j = 0; j < 4; j++) {
        if (j < warp) {
            float d[8];
            far_block(d, mask, rows, j * 16 + t * 2);
#pragma unroll
            for (int n = 0; n < 8; n++) d[n] *= P[j * 8 + n];
            fragment(pairs, d, 0);
            store_matrix(p + (to ^ j * 16), pairs[0], pairs[1], pairs[2], pairs[3]);
        } else if (j == warp) {
#pragma unroll
            for (int n = 0; n < 8; n++) near[n] = P[j * 8 + n];
        }
    }
#pragma unroll
    for (int n = 0; n < 8; n++) {
        const int s = warp * 16 + n / 4 * 8 + t * 2 + n % 2, high = n % 4 / 2;
        near[n] *= mask.at(i + high * 8, s, rows.u[high]);
    }
    fragment(pairs, near, 0);
    store_matrix(p + (to ^ warp * 16), pairs[0], pairs[1], pairs[2], pairs[3]);
}

// A warpgroup of the forward pass.
template <int K> __device__ void forward_group(const chunk_task &a, forward_memory<K> &m, int slices, int group) {
    const int thread = static_cast<int>(threadIdx.x) % group_threads, warp = __shfl_sync(everyone, thread / 32, 0),
              t = thread % 4;
    int n = 0;
    for (int turn = 0;; turn++) {
        const group_item at(a, slices, turn);
        if (!at.there) return;
        const group_slice own(at.first + group, slices);
        const int h = own.head - at.b * a.H, v = own.v + warp * 16;
        float S[K / 2];
        get_state<K>(S, a.segments > 1 ? segment_state(a, at.segment, K, slices * 64) : a.S0, at.b, h, v);
#pragma unroll 1
        for (int c = at.begin; c < at.end; c++, n++) {
            const int stage = n % 2;
            phase_wait(&m.full[stage], n / 2 % 2);
            const chunk_tiles<K, 2> &tiles = m.tiles[stage];
            const tile_mask<1> mask = {m.gates[stage].u[group], m.gates[stage].w[group], nullptr, nullptr};
            const operand_tile q(tiles.by[0]), x(tiles.by[1]), p(m.p[group][stage]);
            const float *history = m.history[group][stage], *leave = m.leave[group][stage];
            float O[32];
            {
                float P[32];
                tile_product<K>(P, q, x);
                masked_reads(m.p[group][stage], mask, P, warp);
            }
            if (thread < 64) {
                const float u = mask.u[thread];
                m.history[group][stage][thread] = power2(u);
                m.leave[group][stage][thread] = mask.w[thread] * power2(mask.u[63] - u);
            }
            publish();
            {
                uint32_t rows[K / 16][4];
#pragma unroll
                for (int step = 0; step < K / 16; step++) fragment(rows[step], S, step);
                if (a.states) keep_blocks<K>(blocks_at<K>(a.states, a, own.head, c, slices * 64, v), rows);
                products_begin();
#pragma unroll
                for (int k = 0; k < K; k += 16) product<64, 0>(O, rows[k / 16], q.k(tile_column(k)), k > 0);
                products_commit();
                products_wait<0>();
                products_done(O);
            }
            barrier_of(1 + group, group_threads); // P o M is there; nobody is in the products of the chunk before
#pragma unroll
            for (int j = 0; j < 8; j++) {
                const float2 h = *reinterpret_cast<const float2 *>(history + j * 8 + t * 2);
                O[j * 4] *= h.x, O[j * 4 + 1] *= h.y, O[j * 4 + 2] *= h.x, O[j * 4 + 3] *= h.y;
            }
            uint32_t rows[4][4], leaving[4][4];
            transposed_fragments(rows, tiles.rows[group], warp);
#pragma unroll
            for (int i = 0; i < 16; i++) leaving[i / 4][i % 4] = rows[i / 4][i % 4];
            scale_fragments(leaving, leave);
            const float h_end = history[63];
#pragma unroll
            for (int i = 0; i < K / 2; i++) S[i] *= h_end;
            products_begin();
#pragma unroll
            for (int step = 0; step < 4; step++) product<64, 0>(O, rows[step], p.k(step * 16), true);
            products_commit();
#pragma unroll
            for (int step = 0; step < 4; step++) product<K, 1>(S, leaving[step], x.mn(step * 16 * 64, 64), true);
            products_commit();
            products_wait<1>();
            products_done(O);
            write_columns(m.out[group], O, a, a.o, at.b, h, c, own.v, warp);
            products_wait<0>();
            products_done(S);
            phase_arrive(&m.free[stage]);
        }
        if (a.segments == 1 && a.S_end.data) set_state<K>(S, a.S_end, at.b, h, v);
    }
}

template <int K>
__global__ void __launch_bounds__(block_threads, 1)
    forward_groups_kernel(const __grid_constant__ chunk_task a, const __grid_constant__ pass_maps maps, int slices) {
    extern __shared__ __align__(1024) unsigned char memory[];
    auto &m = *reinterpret_cast<forward_memory<K> *>(memory);
    create_phases(m);
    for (int i = static_cast<int>(threadIdx.x); i < static_cast<int>(sizeof m.p / 16); i += block_threads)
        reinterpret_cast<uint4 *>(m.p)[i] = make_uint4(0, 0, 0, 0);
    share_out([&] { feed<K, 2, 2, true>(a, m, maps, slices); },
              [&](int group) { forward_group<K>(a, m, slices, group); });
}

// A warpgroup of the gradients' scan.
template <int K> __device__ void scan_group(const chunk_task &a, scan_memory<K> &m, int slices, int group) {
    const int thread = static_cast<int>(threadIdx.x) % group_threads, warp = __shfl_sync(everyone, thread / 32, 0),
              t = thread % 4;
    int n = 0;
    for (int turn = 0;; turn++) {
        const group_item at(a, slices, turn);
        if (!at.there) return;
        const group_slice own(at.first + group, slices);
        const int h = own.head - at.b * a.H, v = own.v + warp * 16;
        float S[K / 2];
        get_state<K>(S, a.segments > 1 ? segment_state(a, at.segment, K, slices * 64) : a.dS_end, at.b, h, v);
#pragma unroll 1
        for (int c = at.end - 1; c >= at.begin; c--, n++) {
            const int stage = n % 4;
            {
                uint32_t kept[K / 16][4];
#pragma unroll
                for (int step = 0; step < K / 16; step++) fragment(kept[step], S, step);
                keep_blocks<K>(blocks_at<K>(a.d_states, a, own.head, c, slices * 64, v), kept);
            }
            phase_wait(&m.full[stage], n / 4 % 2);
            const float *u = m.gates[stage].u[group];
            const operand_tile by(m.tiles[stage].by[0]);
            uint32_t rows[4][4];
            transposed_fragments(rows, m.tiles[stage].rows[group], warp);
#pragma unroll
            for (int i = 0; i < 8; i++) {
                const float2 of = *reinterpret_cast<const float2 *>(u + i * 8 + t * 2);
                const float2 h = make_float2(power2(of.x), power2(of.y));
                rows[i / 2][i % 2 * 2] = scaled(rows[i / 2][i % 2 * 2], h);
                rows[i / 2][i % 2 * 2 + 1] = scaled(rows[i / 2][i % 2 * 2 + 1], h);
            }
            const float h_end = power2(u[63]);
#pragma unroll
            for (int k = 0; k < K / 2; k++) S[k] *= h_end;
            products_begin();
#pragma unroll
            for (int step = 0; step < 4; step++) product<K, 1>(S, rows[step], by.mn(step * 16 * 64, 64), true);
            products_commit();
            products_wait<0>();
            products_done(S);
            phase_arrive(&m.free[stage]);
        }
        if (a.segments == 1 && a.dS0.data) set_state<K>(S, a.dS0, at.b, h, v);
    }
}

template <int K>
__global__ void __launch_bounds__(block_threads, 1)
    scan_groups_kernel(const __grid_constant__ chunk_task a, const __grid_constant__ pass_maps maps, int slices) {
    extern __shared__ __align__(1024) unsigned char memory[];
    auto &m = *reinterpret_cast<scan_memory<K> *>(memory);
    create_phases(m);
    share_out([&] { feed<K, 1, 4, false>(a, m, maps, slices); },
              [&](int group) { scan_group<K>(a, m, slices, group); });
}

template <class memory, class kernel_of>
fwa_status launch(cudaStream_t stream, const chunk_task &task, const pass_maps &maps, int slices, kernel_of kernel) {
    constexpr int bytes = sizeof(memory);
    static_assert(bytes <= 227 << 10, "fits a multiprocessor");
    const int items = task.B * task.H * slices / groups * task.segments;
    FWA_CUDA_TRY(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
    FWA_LAUNCH(kernel, static_cast<unsigned>(fwa_min(items, task.multiprocessors)), block_threads, bytes, stream, task,
               maps, slices);
    return FWA_OK;
}

template <int K> fwa_status forward_groups(cudaStream_t stream, const chunk_task &a, int V) {
    pass_maps maps;
    FWA_TRY(tile_map_of(&maps.by[0], a.q, a.B, a.T, a.Hq, K));
    FWA_TRY(tile_map_of(&maps.by[1], a.k, a.B, a.T - a.shift, a.Hq, K));
    FWA_TRY(tile_map_of(&maps.rows, a.v, a.B, a.T, a.H, V));
    return launch<forward_memory<K>>(stream, a, maps, V / 64, forward_groups_kernel<K>);
}
template <int K> fwa_status scan_groups(cudaStream_t stream, const chunk_task &a, int V) {
    pass_maps maps = {};
    FWA_TRY(tile_map_of(&maps.by[0], a.q, a.B, a.T, a.Hq, K));
    FWA_TRY(tile_map_of(&maps.rows, a.d_o, a.B, a.T, a.H, V));
    return launch<scan_memory<K>>(stream, a, maps, V / 64, scan_groups_kernel<K>);
}

} // namespace

namespace fwa {

bool chunk_additive_grouped(const chunk_task &a, int V) {
    const int of_a_key = a.group * (V / 64);
    const bool enough =
        static_cast<int64_t>(a.B) * a.Hq * of_a_key * a.segments > static_cast<int64_t>(groups - 1) * a.multiprocessors;
    return a.halo == 0 && !a.first_x && a.group > 1 && of_a_key % groups == 0 && enough;
}

fwa_status chunk_additive_forward_groups(cudaStream_t stream, const chunk_task &task, int K, int V) {
    return K == 64 ? forward_groups<64>(stream, task, V) : forward_groups<128>(stream, task, V);
}

fwa_status chunk_additive_scan_groups(cudaStream_t stream, const chunk_task &task, int K, int V) {
    return K == 64 ? scan_groups<64>(stream, task, V) : scan_groups<128>(stream, task, V);
}

} // namespace fwa
