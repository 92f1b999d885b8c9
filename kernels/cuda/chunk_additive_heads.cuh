// A chunk of a query/key head that several value heads share, as the backward pass of the additive core goes through it
// (chunk_additive_shared.cu): what shared memory holds, and one value head after another, their tiles a head ahead
// where two sets fit. One thread has the copy engine bring them.
#ifndef FWA_KERNELS_CUDA_CHUNK_ADDITIVE_HEADS_CUH
#define FWA_KERNELS_CUDA_CHUNK_ADDITIVE_HEADS_CUH

#include "kernels/cuda/chunk_additive_gates.cuh"
#include "kernels/cuda/chunk_bulk.cuh"

namespace fwa {

constexpr int shared_threads = 512, side_threads = 256, shared_warps = shared_threads / 32;
constexpr int shared_bytes_most = 227 << 10; // of a block on Hopper
constexpr int asked_parts = 5;               // of what a head needs: every warp that asks does so for one

// Descriptors of operands that are matrices [rows,columns] in 8x8 blocks, as kernels leave them (blocks_at in
// chunk.cuh): no swizzle, on multiples of 128 bytes.
template <int columns> struct block_tile {
    uint32_t at;
    __device__ explicit block_tile(const __nv_bfloat16 *tile) : at(shared_address(tile) >> 4) {}
    // From (row, column) on; contracted along columns: 16 columns a product.
    __device__ uint64_t k(int row, int column) const {
        return make(row, column, 8, columns);
    }
    // Contracted along rows: 16 rows a product.
    __device__ uint64_t mn(int row, int column) const {
        return make(row, column, columns, 8);
    }

  private:
    // From one block to the next, in units of 16 bytes: along the contraction, and along the other side.
    __device__ uint64_t make(int row, int column, int along, int across) const {
        uint64_t descriptor;
        const auto place = static_cast<uint32_t>(row / 8 * columns + column);
        asm("mov.b64 %0, {%1, %2};"
            : "=l"(descriptor)
            : "r"(at + (place | static_cast<uint32_t>(along) << 16)), "r"(across));
        return descriptor;
    }
};

template <int K, int V> struct value_tiles {
    __nv_bfloat16 v[64 * V], d_o[64 * V];
    __nv_bfloat16 state[K * V], d_state[K * V]; // S^T, dS'^T [V,K], in blocks as they come (block_tile)
};

// Sets of tiles that fit.
template <int K, int V> constexpr int value_stages = K *V == 128 * 128 ? 1 : 2;

// Of a head, until its gates have their gradients.
template <int W> struct alignas(16) value_sums {
    float u[64], w[64], far[W > 1 ? 64 : 4];
    float band[W > 1 ? 64 * 8 : 4]; // of P o D
    float reach[W][W > 1 ? 64 : 4];
    part_sums parts;
};

template <int K, int V> struct shared_tiles {
    __nv_bfloat16 q[64 * K], x[64 * K]; // later dq, dx
    value_tiles<K, V> head[value_stages<K, V>];
    __nv_bfloat16 dv[64 * V];      // later E
    __nv_bfloat16 masked[64 * 64]; // P o M
    float4 reads[4][side_threads]; // P: every thread's own entries, on the side of queries
    float energy[shared_warps][64];
    key_pulls pulls;
    // A set of tiles, and the gates of its head, are there; all warps are done with it.
    uint64_t full[value_stages<K, V>], free[value_stages<K, V>];
};

struct value_maps {
    tile_map v, d_o;
};

// Heads whose sums are kept, and places for them and for what is loaded.
template <int K, int V, int W>
constexpr int value_places = (shared_bytes_most - static_cast<int>(sizeof(shared_tiles<K, V>))) /
                             static_cast<int>(sizeof(value_sums<W>));
template <int K, int V, int W>
constexpr int values_kept =
    value_places<K, V, W> - value_stages<K, V> + 1 < shared_warps ? value_places<K, V, W> - value_stages<K, V> + 1
                                                                  : shared_warps;

template <int K, int V, int W> struct shared_memory : shared_tiles<K, V> {
    value_sums<W> sums[values_kept<K, V, W> + value_stages<K, V> - 1];
};

// Barriers of both sides: P o M is there, it has been used, all meet.
enum { masked_there = 2, masked_used = 4 };

// Both sides at a barrier, each from its own code.
__device__ inline void meet_sides() {
    barrier_of(3, shared_threads);
}

// What both sides know of a chunk of a value head.
template <int K, int V, int W> struct value_block {
    const chunk_task &a;
    shared_memory<K, V, W> &m;
    const value_maps &maps;
    int b, hq, c, group, warp, turn; // group and warp of the side, of which the compiler knows that a warp has one
    static constexpr int stages = value_stages<K, V>;

    __device__ int h() const {
        return hq * a.group + turn;
    }
    __device__ int64_t head() const {
        return static_cast<int64_t>(b) * a.H + h();
    }
    __device__ int64_t gates_at() const {
        return (head() * a.chunks + c) * 64;
    }
    __device__ value_tiles<K, V> &tiles() const {
        return m.head[turn % stages];
    }
    __device__ value_sums<W> &sums() const {
        return m.sums[turn % (values_kept<K, V, W> + stages - 1)];
    }
    __device__ tile_mask<W> mask() const {
        return {sums().u, sums().w, sums().far, a.band + gates_at()};
    }

    __device__ bool apart() const { // rows of v before the sequence, from elsewhere
        return c == 0 && a.first_v;
    }
    // One thread makes the phases, and may ask at once.
    __device__ void start(int thread) const {
        if (thread == 0) {
            for (uint64_t &full : m.full) phase_create(&full, asked_parts);
            for (uint64_t &is_free : m.free) phase_create(&is_free, shared_warps);
            publish();
            for (int part = 0; part < asked_parts && stages > 1; part++) ask(part);
        }
        if (stages > 1) bring(thread);
        if (a.d_o.data) return;
        for (value_tiles<K, V> &head : m.head)
            for (int i = thread; i < 64 * V / 8; i += shared_threads)
                reinterpret_cast<uint4 *>(head.d_o)[i] = make_uint4(0, 0, 0, 0);
    }
    __device__ int64_t states_at() const {
        return (head() * a.chunks + c) * (V * (K / 8));
    }
    // A part of what a head needs: rows of v, of dO, dS', S, gates.
    __device__ void ask(int part) const {
        constexpr int rows_bytes = 64 * V * 2, state_bytes = K * V * 2, gate_bytes = 64 * 4;
        uint64_t *full = &m.full[turn % stages];
        value_tiles<K, V> &to = tiles();
        if (part < 2) {
            const bool absent = part == 0 ? apart() : !a.d_o.data;
            phase_expect(full, absent ? 0 : rows_bytes);
            for (int v = 0; v < V && !absent; v += 64)
                tile_copy((part == 0 ? to.v : to.d_o) + v * 64, part == 0 ? maps.v : maps.d_o, v, h(),
                          tile_step(a, c, 0), b, full);
        } else if (part < 4) {
            phase_expect(full, state_bytes);
            bulk_copy(part == 2 ? to.d_state : to.state, (part == 2 ? a.d_states : a.states) + states_at(), state_bytes,
                      full);
        } else {
            phase_expect(full, (W > 1 ? 3 : 2) * gate_bytes);
            bulk_copy(sums().u, a.u + gates_at(), gate_bytes, full);
            bulk_copy(sums().w, a.w + gates_at(), gate_bytes, full);
            if (W > 1) bulk_copy(sums().far, a.far + gates_at(), gate_bytes, full);
        }
    }
    // What the copy engine cannot bring; all threads come here.
    __device__ void bring(int thread) const {
        for (int v = 0; v < V && apart(); v += 64)
            load_values<shared_threads>(tiles().v + v * 64, thread, a, V, v, b, h(), c);
    }
    // part: that the thread's warp asks for, if any.
    __device__ void load(int thread, int part) const {
        if (part >= 0 && part < asked_parts) {
            if (stages > 1 && turn >= stages) phase_wait(&m.free[turn % stages], (turn / stages - 1) % 2);
            if (thread % 32 == 0) ask(part);
            __syncwarp();
        }
        bring(thread);
    }
    __device__ void release() const {
        if (stages > 1) phase_arrive(&m.free[turn % stages]);
    }
    __device__ void await() const {
        if (apart()) copy_commit(), copy_wait<0>();
        phase_wait(&m.full[turn % stages], turn / stages % 2);
    }
    // A part of the tiles of a head that has no place yet, up to the second level of the cache.
    __device__ void prefetch_tiles(int thread, int part) const {
        if (part < 0 || part > 3 || thread % 32 > 0) return;
        for (int v = 0; v < V && part < 2; v += 64)
            if (part == 0 || a.d_o.data) tile_fetch(part == 0 ? maps.v : maps.d_o, v, h(), tile_step(a, c, 0), b);
        if (part >= 2) bulk_fetch((part == 2 ? a.d_states : a.states) + states_at(), K * V * 2);
    }
    // A row's scalars of all heads, which as a rule are neighbours.
    __device__ void prefetch_gates(const chunk_rate &rate, int row) const {
        const int t = tile_step(a, c, row);
        for (int h = 0; row >= a.halo && t < a.T && h < a.group; h += 16)
            prefetch_scalars(rate.task, b, hq * a.group + h, t, true);
    }
};

} // namespace fwa
#endif
