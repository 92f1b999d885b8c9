// Blocks of three slices of V of the delta core (chunk_delta_groups.cu): what their shared memory holds, the barriers
// that say when a tile is full or free again, and the warpgroup that feeds the others. Its first thread has the copy
// engine bring tiles as soon as they are free; all of it loads T and makes the masked reads. Slices of one head share
// its tiles; only the tile of keys is there twice.
#ifndef FWA_KERNELS_CUDA_CHUNK_DELTA_FEEDER_CUH
#define FWA_KERNELS_CUDA_CHUNK_DELTA_FEEDER_CUH

#include "core/shape.h"
#include "kernels/cuda/chunk_bulk.cuh"
#include "kernels/cuda/chunk_delta_serial.cuh"

namespace fwa {

constexpr int group_threads = 128, groups_most = 3, group_block_threads = (groups_most + 1) * group_threads;
constexpr int feeder_registers = 56, slice_registers = 152; // of 128 a thread in all
constexpr int group_bytes_most = 227 << 10;

template <int K> struct head_tiles {
    __nv_bfloat16 q[64 * K], x[2][64 * K];
    __nv_bfloat16 inverse[2][64 * 64]; // T: high, low; zeros above the diagonal
    __nv_bfloat16 p[2][64 * 64];       // masked reads: high, low
};
struct slice_tiles {
    __nv_bfloat16 rows[64 * 64], out[64 * 64];
};
struct head_gates {
    mask_gates mask;
    state_gates state[2]; // with x
};
struct group_barriers { // T_free: and rows; p_full: of a head
    uint64_t x_full[2], x_free[2], rows_full, T_full, T_free, q_full, q_free, p_full[groups_most], p_free;
};

// A block takes `groups` slices, of `heads` heads at most; `blocks`: a segment.
struct group_pass : serial_pass {
    int groups, heads, blocks;
};

// q, k, and v or the gradient of o.
struct group_maps {
    tile_map q, k, rows;
    bool present; // of rows
};

// A slice of a head: which one a warpgroup has, and in which slot the tiles of its head are. Beyond the last slice
// there is the last one again.
struct group_slice : segment_place {
    int slot, first, end; // chunks first .. end - 1
    __device__ group_slice(const delta_task &a, const group_pass &pass, int group) : segment_place(a, pass) {
        const int all = a.B * a.H * pass.slices, before = static_cast<int>(blockIdx.x) % pass.blocks * pass.groups;
        const int own = min(before + group, all - 1);
        segment = static_cast<int>(blockIdx.x) / pass.blocks;
        head = own / pass.slices, b = head / a.H, h = head % a.H, v = own % pass.slices * 64;
        slot = head - before / pass.slices;
        first = first_chunk(a), end = end_chunk(a);
    }
};

template <int K> inline int group_bytes(const group_pass &pass) {
    return pass.heads * static_cast<int>(sizeof(head_tiles<K>) + sizeof(head_gates)) +
           pass.groups * static_cast<int>(sizeof(slice_tiles) + sizeof(group_slice)) +
           static_cast<int>(sizeof(group_barriers));
}
// Heads that `groups` slices in a row touch at most, counted from multiples of `groups`.
inline int group_heads(int slices, int groups) {
    int most = 0;
    for (int first = 0; first < slices * groups; first += groups)
        most = fwa_max(most, (first + groups - 1) / slices - first / slices + 1);
    return most;
}
// Three slices a block: there are enough of them to fill the GPU (chunk_delta_grouped).
inline group_pass group_pass_of(const delta_task &a, int V, int slices, bool alone) {
    const int all = a.B * a.H * slices;
    return {{V, slices, alone},
            groups_most,
            group_heads(slices, groups_most),
            static_cast<int>(fwa_ceil_div(all, groups_most))};
}
inline fwa_status group_maps_of(group_maps *maps, const delta_task &a, const chunk_view &rows, int K, int V) {
    maps->present = rows.data != nullptr;
    FWA_TRY(tile_map_of(&maps->q, a.q, a.B, a.T, a.Hq, K));
    FWA_TRY(tile_map_of(&maps->k, a.k, a.B, a.T - a.shift, a.Hq, K));
    return tile_map_of(&maps->rows, rows, a.B, a.T, a.H, V);
}

// Shared memory of a block: tiles of heads, of slices, gates, barriers, slices.
template <int K> struct group_memory {
    unsigned char *memory;
    const group_pass &pass;
    __device__ group_memory(unsigned char *shared, const group_pass &launch) : memory(shared), pass(launch) {}
    __device__ head_tiles<K> &head(int slot) const {
        return reinterpret_cast<head_tiles<K> *>(memory)[slot];
    }
    __device__ slice_tiles &slice(int group) const {
        return reinterpret_cast<slice_tiles *>(memory + pass.heads * sizeof(head_tiles<K>))[group];
    }
    __device__ head_gates &gates(int slot) const {
        return reinterpret_cast<head_gates *>(&slice(pass.groups))[slot];
    }
    __device__ group_barriers &barriers() const {
        return *reinterpret_cast<group_barriers *>(&gates(pass.heads));
    }
    __device__ group_slice &place(int group) const {
        return reinterpret_cast<group_slice *>(&barriers() + 1)[group];
    }
};

// What a block begins with.
template <int K> __device__ inline void group_begin(const delta_task &a, const group_memory<K> &m) {
    group_barriers &to = m.barriers();
    const int thread = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
    if (thread == 0) {
        const int feeders = 4, readers = 4 * m.pass.groups;
        for (int i = 0; i < 2; i++) phase_create(&to.x_full[i], 1), phase_create(&to.x_free[i], readers);
        phase_create(&to.rows_full, 1), phase_create(&to.T_full, feeders), phase_create(&to.T_free, readers);
        phase_create(&to.q_full, 1), phase_create(&to.q_free, readers);
        for (int i = 0; i < groups_most; i++) phase_create(&to.p_full[i], feeders);
        phase_create(&to.p_free, readers);
    }
    if (thread < m.pass.groups) m.place(thread) = group_slice(a, m.pass, thread);
    // T is written on and below the diagonal alone; rows not at all where there are none.
    for (int slot = 0; slot < m.pass.heads; slot++)
        for (int i = thread; i < 1024; i += threads)
            reinterpret_cast<uint4 *>(m.head(slot).inverse[0])[i] = make_uint4(0, 0, 0, 0);
    for (int group = 0; group < m.pass.groups; group++)
        for (int i = thread; i < 512; i += threads)
            reinterpret_cast<uint4 *>(m.slice(group).rows)[i] = make_uint4(0, 0, 0, 0);
    publish();
    __syncthreads();
}

// The warpgroup that feeds the others: its first thread asks for tiles, all of them load T and make P.
template <int K> struct group_feeder {
    const delta_task &a;
    const group_memory<K> &m;
    const group_maps &maps;
    int thread, first_head, heads;

    __device__ group_feeder(const delta_task &task, const group_memory<K> &memory, const group_maps &views)
        : a(task), m(memory), maps(views) {
        thread = static_cast<int>(threadIdx.x) % group_threads;
        first_head = m.place(0).head, heads = m.place(m.pass.groups - 1).slot + 1;
    }
    __device__ bool has_rows(const group_slice &slice) const {
        return maps.present && slice.v < m.pass.V;
    }
    __device__ const delta_gates *gates_of(int slot, int c) const {
        return a.gates + tile_index(a, first_head + slot, c);
    }
    __device__ void copy_head(__nv_bfloat16 *tile, const tile_map &map, int slot, int t, uint64_t *full) const {
        const int head = first_head + slot, b = head / a.H, hq = head % a.H / a.group;
#pragma unroll
        for (int k = 0; k < K; k += 64) tile_copy(tile + k * 64, map, k, hq, t, b, full);
    }
    // Keys of a chunk, with gates. The first tile of a sequence that goes on has a key from elsewhere.
    __device__ void load_keys_of(int c, int stage) const {
        uint64_t *full = &m.barriers().x_full[stage];
        const bool apart = c == 0 && a.first_x;
        if (apart) {
            for (int slot = 0; slot < heads; slot++) {
                const int head = first_head + slot;
                load_keys<K, group_threads>(m.head(slot).x[stage], thread, a, head / a.H, head % a.H / a.group, c);
            }
            copy_commit();
            copy_wait<0>();
            publish();
            barrier_of(1, group_threads);
        }
        if (thread > 0) return;
        phase_expect(full, heads * static_cast<int>(sizeof(state_gates) + (apart ? 0 : 64 * K * 2)));
        for (int slot = 0; slot < heads; slot++) {
            if (!apart) copy_head(m.head(slot).x[stage], maps.k, slot, c * 64 - a.shift, full);
            bulk_copy(&m.gates(slot).state[stage], static_cast<const state_gates *>(gates_of(slot, c)),
                      sizeof(state_gates), full);
        }
    }
    __device__ void load_queries(int c) const {
        if (thread > 0) return;
        uint64_t *full = &m.barriers().q_full;
        phase_expect(full, heads * static_cast<int>(sizeof(mask_gates) + 64 * K * 2));
        for (int slot = 0; slot < heads; slot++) {
            copy_head(m.head(slot).q, maps.q, slot, c * 64, full);
            bulk_copy(&m.gates(slot).mask, static_cast<const mask_gates *>(gates_of(slot, c)), sizeof(mask_gates),
                      full);
        }
    }
    __device__ void load_rows(int c) const {
        if (thread > 0) return;
        uint64_t *full = &m.barriers().rows_full;
        int bytes = 0;
        for (int group = 0; group < m.pass.groups; group++)
            if (has_rows(m.place(group))) bytes += 64 * 64 * 2;
        phase_expect(full, bytes);
        for (int group = 0; group < m.pass.groups; group++) {
            const group_slice &slice = m.place(group);
            if (has_rows(slice)) tile_copy(m.slice(group).rows, maps.rows, slice.v, slice.h, c * 64, slice.b, full);
        }
    }
    __device__ void load_inverse(int c) const {
        const int lane = thread % 32, row = lane / 16 * 8 + lane % 8, column = lane / 8 % 2 * 8;
#pragma unroll 1
        for (int slot = 0; slot < heads; slot++) {
            const uint4 *from = inverse_at(a, first_head + slot, c) + thread;
#pragma unroll
            for (int n = 0; n < inverse_pieces / group_threads; n++) {
                const inverse_place at(n, thread / 32);
                copy_async(m.head(slot).inverse[at.part] + swizzled<64>(at.row * 16 + row, at.column * 16 + column),
                           from + n * group_threads);
            }
        }
        copy_commit();
    }
    // P = (Q X^T) o M in two parts, 32 columns at a time. Blocks of 16 columns beyond the warp's rows are zeros.
    __device__ void reads(int slot, int stage) const {
        const int warp = thread / 32, lane = thread % 32, t = lane % 4, i = warp * 16 + lane / 4;
        const int to = swizzled<64>(warp * 16 + lane % 16, lane / 16 * 8);
        head_tiles<K> &tiles = m.head(slot);
        const mask_gates &mask = m.gates(slot).mask;
        const operand_tile q(tiles.q), x(tiles.x[stage]);
#pragma unroll 1
        for (int half = 0; half < 2; half++) {
            float P[16];
            products_begin();
#pragma unroll
            for (int k = 0; k < K; k += 16) {
                const int at = tile_column(k);
                product<32, 0, 0>(P, q.k(at), x.k(at + half * 2048), k > 0);
            }
            products_commit();
            products_wait<0>();
            products_done(P);
#pragma unroll
            for (int n = 0; n < 2; n++) {
                const int j = half * 2 + n;
                uint32_t high[4] = {}, low[4] = {};
                if (j <= warp) {
                    if (j < warp)
                        far_block(P + n * 8, mask, j * 16, warp, i, t);
                    else
                        near_block(P + n * 8, mask, j * 16, i, t);
#pragma unroll
                    for (int e = 0; e < 4; e++) split_pair(high[e], low[e], P[n * 8 + e * 2], P[n * 8 + e * 2 + 1]);
                }
                store_matrix(tiles.p[0] + (to ^ j * 16), high[0], high[1], high[2], high[3]);
                store_matrix(tiles.p[1] + (to ^ j * 16), low[0], low[1], low[2], low[3]);
            }
        }
    }

    __device__ void announce_inverse() const {
        copy_wait<0>();
        publish();
        phase_arrive(&m.barriers().T_full);
    }
    __device__ void announce_reads(int n) const {
        group_barriers &at = m.barriers();
        phase_wait(&at.x_full[n % 2], n / 2 % 2);
        phase_wait(&at.q_full, n % 2);
        if (n > 0) phase_wait(&at.p_free, (n - 1) % 2);
#pragma unroll 1
        for (int slot = 0; slot < heads; slot++) {
            reads(slot, n % 2);
            publish();
            phase_arrive(&at.p_full[slot]);
        }
    }
    __device__ void renew_rows(int n, int next) const {
        phase_wait(&m.barriers().T_free, n % 2);
        load_rows(next);
        load_inverse(next);
    }
    __device__ void renew_queries(int n, int next) const {
        phase_wait(&m.barriers().q_free, n % 2);
        barrier_of(1, group_threads); // all of them have made P of it
        load_queries(next);
    }

    // Feeds `count` chunks from `first` on. `reading`: with masked reads.
    template <bool reading> __device__ void feed(int first, int count) const {
        load_keys_of(first, 0);
        load_rows(first);
        load_inverse(first);
        if constexpr (reading) load_queries(first);
#pragma unroll 1
        for (int n = 0; n < count; n++) {
            const int next = first + n + 1;
            announce_inverse();
            if constexpr (reading) announce_reads(n);
            if (n + 1 == count) break;
            if (n > 0) phase_wait(&m.barriers().x_free[1 - n % 2], (n - 1) / 2 % 2);
            load_keys_of(next, 1 - n % 2);
            renew_rows(n, next);
            if constexpr (reading) renew_queries(n, next);
        }
    }
};

} // namespace fwa
#endif
