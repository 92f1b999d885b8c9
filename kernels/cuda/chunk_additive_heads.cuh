// A chunk of a query/key head that several value heads share, as the backward pass of the additive core goes through it
// (chunk_additive_shared.cu): what shared memory holds, and one value head after another, their tiles a head ahead
// where two sets fit.
#ifndef FWA_KERNELS_CUDA_CHUNK_ADDITIVE_HEADS_CUH
#define FWA_KERNELS_CUDA_CHUNK_ADDITIVE_HEADS_CUH

#include "kernels/cuda/chunk_additive_gates.cuh"

namespace fwa {

constexpr int shared_threads = 512, side_threads = 256, shared_warps = shared_threads / 32;
constexpr int shared_bytes_most = 227 << 10; // of a block on Hopper

template <int K, int V> struct value_tiles {
    __nv_bfloat16 v[64 * V], d_o[64 * V], state[K * V], d_state[K * V]; // of states rows of S^T, dS'^T: [V,K]
};

// Sets of tiles that fit.
template <int K, int V> constexpr int value_stages = K *V == 128 * 128 ? 1 : 2;

// Of a head, until its gates have their gradients.
template <int W> struct value_sums {
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

// Both sides at a barrier, each from its own code.
__device__ inline void meet_sides() {
    barrier_of(3, shared_threads);
}

// What both sides know of a chunk of a value head.
template <int K, int V, int W> struct value_block {
    const chunk_task &a;
    shared_memory<K, V, W> &m;
    int b, hq, c, group, warp, turn; // group and warp of the side, of which the compiler knows that a warp has one
    // Where the thread's pieces of the next head to load are, and whether its rows all are steps of the sequence.
    struct {
        const __nv_bfloat16 *d_o, *v;
        int64_t states;
        bool whole;
    } from;

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
        return m.head[turn % value_stages<K, V>];
    }
    __device__ value_sums<W> &sums() const {
        return m.sums[turn % (values_kept<K, V, W> + value_stages<K, V> - 1)];
    }
    __device__ tile_mask<W> mask() const {
        return {sums().u, sums().w, sums().far, a.band + gates_at()};
    }

    __device__ void load_gates(int thread) const {
        const int piece = thread % 16 * 4;
        if (thread < 16)
            copy_async(sums().u + piece, a.u + gates_at() + piece);
        else if (thread < 32)
            copy_async(sums().w + piece, a.w + gates_at() + piece);
        else if (W > 1 && thread < 48)
            copy_async(sums().far + piece, a.far + gates_at() + piece);
    }
    __device__ const __nv_bfloat16 *first_piece(const chunk_view &view, int thread) const {
        return view.row(b, tile_step(a, c, 0) + thread / (V / 8), hq * a.group) + thread % (V / 8) * 8;
    }
    __device__ void start(int thread) {
        const int first = tile_step(a, c, 0);
        from = {first_piece(a.d_o, thread), first_piece(a.v, thread), (head() * a.chunks + c) * (V * (K / 8)) + thread,
                first >= 0 && first + 64 <= a.T && a.d_o.data};
    }
    // Heads in turn from the first one on.
    __device__ void load(int thread) {
        constexpr int pieces = V / 8, rows = shared_threads / pieces, count = K * V / 8 / shared_threads;
        value_tiles<K, V> &to = tiles();
        if (from.whole) {
            const int row = thread / pieces, column = thread % pieces * 8,
                      place = column / 64 * 4096 + swizzled<64>(row, column % 64);
#pragma unroll
            for (int i = 0; i < 64; i += rows) {
                copy_async(to.d_o + place + i * 64, from.d_o + i * a.d_o.time);
                copy_async(to.v + place + i * 64, from.v + i * a.v.time);
            }
            from.d_o += a.d_o.head, from.v += a.v.head;
        } else {
            load_steps<V, shared_threads>(to.d_o, thread, a, a.d_o, b, h(), c);
            for (int v = 0; v < V; v += 64) load_values<shared_threads>(to.v + v * 64, thread, a, V, v, b, h(), c);
        }
        const int place = block_pieces<V, K, shared_threads>::first(thread);
#pragma unroll
        for (int i = 0; i < count; i++) {
            copy_async(to.state + place + i * block_pieces<V, K, shared_threads>::step,
                       a.states + from.states + i * shared_threads);
            copy_async(to.d_state + place + i * block_pieces<V, K, shared_threads>::step,
                       a.d_states + from.states + i * shared_threads);
        }
        from.states += static_cast<int64_t>(a.chunks) * (V * (K / 8));
        load_gates(thread);
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
