// Flash attention, forward: o and lse of 128 queries a block over blocks of keys with a running maximum m and sum l
// (attention.cuh has the equations). Exponentials to base 2, all <= 1; sums in fp32, probabilities as bf16 operands.
//
// The scores of the next block of keys and the products of this one are under way while exponentials are worked out;
// keys and values have two buffers each. Cost: T^2 (K + V) multiply-adds a head, halved as causal blocks are skipped;
// blocks on the diagonal are computed whole.
#include "core/shape.h"
#include "kernels/cuda/attention_flash.cuh"

namespace fwa::flash {
namespace {

// A block of queries and the blocks of N keys [from, to] that it reaches. Thread blocks go over pairs of them, pair
// blockIdx.x, + gridDim.x, ... : the r-th last and the r-th block of a head, so that every pair is as much work. Pairs
// of one head follow each other: its rows stay in the L2 cache.
template <int N> struct query_tile {
    int pair, second, b, h, begin, from, to;

    __device__ void enter(const task &a) {
        const int blocks = a.padded / block_rows, half = (blocks + 1) / 2, head = pair / half, r = pair % half;
        b = head / a.H, h = head % a.H;
        begin = (second ? r : blocks - 1 - r) * block_rows;
        from = a.first ? a.first[static_cast<int64_t>(b) * a.T + begin] / N : 0;
        to = (min(begin + block_rows, a.T) - 1) / N;
    }
    __device__ explicit query_tile(const task &a) : pair(static_cast<int>(blockIdx.x)), second(0) {
        if (!over(a)) enter(a);
    }
    __device__ bool over(const task &a) const {
        return pair >= a.B * a.H * ((a.padded / block_rows + 1) / 2);
    }
    __device__ query_tile next(const task &a) const {
        query_tile t = *this;
        const int blocks = a.padded / block_rows;
        t.second = !second && begin != (blocks - 1) / 2 * block_rows; // the middle one of an odd number has no other
        if (!t.second) t.pair += static_cast<int>(gridDim.x);
        if (!t.over(a)) t.enter(a);
        return t;
    }
};

template <int K, int V, int N> struct forward_block {
    using query_rows = matrix<block_rows, K>;
    using key_rows = matrix<N, K>;
    using value_rows = matrix<N, V>;
    using output_rows = matrix<block_rows, V>;
    // The output leaves through the buffer of values that is free, where that is large enough.
    static constexpr int extra = N < block_rows ? output_rows::elements : 0;
    static constexpr int shared_bytes =
        (query_rows::elements + 2 * key_rows::elements + 2 * value_rows::elements + extra) *
        static_cast<int>(sizeof(bf16));

    const task &a;
    query_tile<N> at;
    query_rows queries;
    ring<key_rows, 2> keys;
    ring<value_rows, 2> values;
    output_rows space;
    const int32_t *first; // of the sequence
    int own, sees_all;    // the warp's first query; keys from here on are seen by every query that they precede
    float scale;
    float o[V / 8][4], m[2], l[2],
        shrink[2]; // of rows row_of(0), row_of(2); m of raw scores, l of this thread's columns

    __device__ forward_block(const task &call, unsigned char *memory) : a(call), at(call) {
        arena shared = {memory};
        queries = shared.take<query_rows>();
        keys = shared.take<ring<key_rows, 2>>();
        values = shared.take<ring<value_rows, 2>>();
        space = {reinterpret_cast<bf16 *>(shared.free)};
        scale = a.scale * log2_e;
    }

    __device__ void enter() {
        own = at.begin + warp_row();
        first = a.first ? a.first + static_cast<int64_t>(at.b) * a.T : nullptr;
        sees_all = first ? first[min(at.begin + block_rows, a.T) - 1] : 0;
        m[0] = m[1] = -INFINITY, l[0] = l[1] = 0.0f;
        clear(o);
    }

    // Scores that a query does not see become -inf.
    __device__ void mask(float (&s)[N / 8][4], int j0) const {
        int low[2] = {0, 0};
        for (int r = 0; first && r < 2; r++) low[r] = first[min(own + row_of(2 * r), a.T - 1)];
#pragma unroll
        for (int i = 0; i < N / 2; i++) {
            const int e = i % 4, j = j0 + column_of(i / 4, e);
            if (j > own + row_of(e) || j < low[e / 2]) s[i / 4][e] = -INFINITY;
        }
    }

    // Scores of the keys from j0 on become probabilities relative to the new maximum; `shrink` is for what came before.
    __device__ void take(float (&s)[N / 8][4], int j0) {
        if (j0 + N - 1 > own || j0 < sees_all) mask(s, j0);
#pragma unroll
        for (int r = 0; r < 2; r++) {
            float top = m[r];
#pragma unroll
            for (int i = 0; i < N / 8; i++) top = fmaxf(top, fmaxf(s[i][2 * r], s[i][2 * r + 1]));
            top = quad_max(top);
            const float shift = top == -INFINITY ? 0.0f : top * scale;
            shrink[r] = power_of_two(m[r] * scale - shift);
            float sum = 0.0f;
#pragma unroll
            for (int i = 0; i < N / 8; i++) {
                s[i][2 * r] = power_of_two(s[i][2 * r] * scale - shift);
                s[i][2 * r + 1] = power_of_two(s[i][2 * r + 1] * scale - shift);
                sum += s[i][2 * r] + s[i][2 * r + 1];
            }
            l[r] = l[r] * shrink[r] + sum;
            m[r] = top;
        }
    }

    // The maximum seldom moves after the first blocks; with few columns the test costs more than it saves.
    __device__ void shrink_output() {
        if (V > 64 && !__any_sync(0xffffffffu, shrink[0] != 1.0f || shrink[1] != 1.0f)) return;
#pragma unroll
        for (int i = 0; i < V / 2; i++) o[i / 4][i % 4] *= shrink[i % 4 / 2];
    }

    __device__ void write() {
        float inverse[2];
        for (int r = 0; r < 2; r++) {
            const int t = own + row_of(2 * r);
            l[r] = quad_sum(l[r]);
            inverse[r] = 1.0f / l[r];
            if (a.lse && lane() % 4 == 0 && t < a.T)
                a.lse[(static_cast<int64_t>(at.b) * a.H + at.h) * a.T + t] = m[r] * a.scale + logf(l[r]);
        }
        write_rows(a.o.head(at.b, at.h), own, a.T, o, inverse, extra ? space : output_rows{values[at.to + 1].data});
    }

    // Queries and the first two blocks of keys of a tile.
    __device__ void fetch(const query_tile<N> &tile) {
        const int hq = tile.h / (a.H / a.Hq);
        const rows k = a.k.head(tile.b, hq);
        queries.fetch(a.q.head(tile.b, hq), tile.begin, a.T);
        keys[tile.from].fetch(k, tile.from * N, a.T);
        if (tile.from < tile.to) keys[tile.from + 1].fetch(k, (tile.from + 1) * N, a.T);
        copy_commit();
    }

    // One tile, fetched already; fetches the next one as soon as there is room.
    __device__ void work() {
        const rows k = a.k.head(at.b, at.h / (a.H / a.Hq)), v = a.v.head(at.b, at.h);
        float s[N / 8][4];
        uint32_t p[N / 16][4];
        enter();
        values[at.from].fetch(v, at.from * N, a.T);
        copy_commit();
        copy_wait<1>();
        meet();
        start();
        multiply_rows(s, queries, keys[at.from]);
        commit();
        await<0>(s);
        take(s, at.from * N);
        to_operand(p, s);
        for (int j = at.from; j < at.to; j++) {
            copy_wait<0>();
            meet();
            if (j + 2 <= at.to) keys[j + 2].fetch(k, (j + 2) * N, a.T);
            values[j + 1].fetch(v, (j + 1) * N, a.T);
            copy_commit();
            start();
            multiply_rows(s, queries, keys[j + 1]);
            commit();
            multiply(o, p, values[j]);
            commit();
            await<1>(s);
            take(s, (j + 1) * N);
            await<0>(o);
            settle(p);
            shrink_output();
            to_operand(p, s);
        }
        copy_wait<0>();
        meet(); // all scores are done: queries and keys may go
        const query_tile<N> next = at.next(a);
        if (!next.over(a)) fetch(next);
        start();
        multiply(o, p, values[at.to]);
        commit();
        await<0>(o);
        write();
        __syncthreads(); // so may values
        at = next;
    }

    __device__ void run() {
        if (!at.over(a)) fetch(at);
        while (!at.over(a)) work();
    }
};

template <int K, int V, int N, int least>
__global__ void __launch_bounds__(threads, least) forward_kernel(const __grid_constant__ task a) {
    extern __shared__ __align__(1024) unsigned char memory[];
    forward_block<K, V, N>(a, memory).run();
}

// `least` blocks are to share a multiprocessor.
template <int K, int V, int N, int least> fwa_status launch(cudaStream_t stream, int multiprocessors, const task &a) {
    const auto kernel = forward_kernel<K, V, N, least>;
    constexpr int bytes = forward_block<K, V, N>::shared_bytes;
    FWA_CUDA_TRY(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
    const int pairs = a.B * a.H * ((a.padded / block_rows + 1) / 2);
    kernel<<<static_cast<unsigned>(fwa_min(pairs, multiprocessors * least)), threads, bytes, stream>>>(a);
    FWA_CUDA_TRY(cudaGetLastError());
    return FWA_OK;
}

} // namespace

int forward_bytes(int head_size) {
    return head_size == 64 ? forward_block<64, 64, 64>::shared_bytes : forward_block<128, 128, 128>::shared_bytes;
}

fwa_status forward(const fwa_stream *stream, const task &a, int head_size) {
    return head_size == 64 ? launch<64, 64, 64, 2>(stream->handle, stream->multiprocessors, a)
                           : launch<128, 128, 128, 1>(stream->handle, stream->multiprocessors, a);
}

} // namespace fwa::flash
