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

template <int K, int V, int N, bool cut> struct forward_block {
    using query_rows = matrix<block_rows, K>;
    using key_rows = matrix<N, K>;
    using value_rows = matrix<N, V>;
    using output_rows = matrix<block_rows, V>;
    // Copies begin behind the products of a step where registers suffice for that, else before them.
    static constexpr bool late = V > 64;
    // The output leaves through the buffer of values that is free, where that is large enough.
    static constexpr int extra = N < block_rows ? output_rows::elements : 0;
    static constexpr int shared_bytes =
        (query_rows::elements + 2 * key_rows::elements + 2 * value_rows::elements + extra) *
        static_cast<int>(sizeof(bf16));

    const task &a;
    walk at;
    query_rows queries;
    ring<key_rows, 2> keys;
    ring<value_rows, 2> values;
    output_rows space;
    const int32_t *first; // of the sequence
    int from, to;         // blocks of keys that the block of queries reaches
    int own, sees_all;    // the warp's first query; keys from here on are seen by every query that they precede
    int before;           // number of the first own key
    float scale;
    float o[V / 8][4], m[2], l[2],
        shrink[2]; // of rows row_of(0), row_of(2); m of raw scores, l of this thread's columns

    __device__ forward_block(const task &call, unsigned char *memory) : a(call), at(walk::start(call, call.H)) {
        arena shared = {memory};
        queries = shared.take<query_rows>();
        keys = shared.take<ring<key_rows, 2>>();
        values = shared.take<ring<value_rows, 2>>();
        space = {reinterpret_cast<bf16 *>(shared.free)};
        scale = a.scale * log2_e;
        before = before_of<cut>(a);
    }

    __device__ int from_of(const walk &w) const {
        return a.first ? a.first[static_cast<int64_t>(w.b) * a.T + w.begin] / N : 0;
    }

    __device__ void enter() {
        first = a.first ? a.first + static_cast<int64_t>(at.b) * a.T : nullptr;
        from = from_of(at), to = (before + min(at.begin + block_rows, a.T) - 1) / N;
        own = at.begin + warp_row();
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
            if (j > before + own + row_of(e) || j < low[e / 2] || is_empty<cut>(a, j)) s[i / 4][e] = -INFINITY;
        }
    }

    // Scores of the keys from j0 on become probabilities relative to the new maximum; `shrink` is for what came before.
    __device__ void take(float (&s)[N / 8][4], int j0) {
        if (j0 + N - 1 > before + own || j0 < sees_all || has_empty<cut>(a, j0, N)) mask(s, j0);
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

    // Waits for the products under way into o, and takes them down to the new maximum, which seldom moves after the
    // first blocks; with few columns the test costs more than it saves. The branch stands in front of the wait: else
    // the compiler waits before the exponentials.
    __device__ void shrink_output() {
        if (V == 64 || __any_sync(everyone, shrink[0] != 1.0f || shrink[1] != 1.0f)) {
            await<0>(o);
#pragma unroll
            for (int i = 0; i < V / 2; i++) o[i / 4][i % 4] *= shrink[i % 4 / 2];
        }
        await<0>(o);
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
        write_rows(a.o.head(at.b, at.h), own, a.T, o, inverse, extra ? space : output_rows{values[to + 1].data});
    }

    // A block of queries and the first two blocks of keys that it reaches, where there are two.
    __device__ void fetch(const walk &w) {
        const int hq = w.h / a.group, j = from_of(w);
        const auto k = keys_of<cut>(a, w.b, hq);
        queries.fetch(a.q.head(w.b, hq), w.begin, a.T);
        k.fetch(a, keys[j], j * N);
        if ((j + 1) * N < before + min(w.begin + block_rows, a.T)) k.fetch(a, keys[j + 1], (j + 1) * N);
        copy_commit();
    }

    // One block of queries, fetched already; fetches the next one as soon as there is room.
    __device__ void work() {
        const auto k = keys_of<cut>(a, at.b, at.h / a.group), v = values_of<cut>(a, at.b, at.h);
        float s[N / 8][4];
        uint32_t p[N / 16][4];
        enter();
        v.fetch(a, values[from], from * N);
        copy_commit();
        copy_wait<1>();
        meet();
        start();
        multiply_rows(s, queries, keys[from]);
        commit();
        await<0>(s);
        take(s, from * N);
        to_operand(p, s);
        for (int j = from; j < to; j++) {
            const auto fetch_next = [&] {
                if (j + 2 <= to) k.fetch(a, keys[j + 2], (j + 2) * N);
                v.fetch(a, values[j + 1], (j + 1) * N);
                copy_commit();
            };
            copy_wait<0>();
            meet();
            if (!late) fetch_next();
            start();
            multiply_rows(s, queries, keys[j + 1]);
            commit();
            multiply(o, p, values[j]);
            commit();
            if (late) fetch_next();
            await<1>(s);
            take(s, (j + 1) * N);
            settle(s);
            shrink_output();
            settle(p);
            to_operand(p, s);
        }
        copy_wait<0>();
        meet(); // all scores are done: queries and keys may go
        start();
        multiply(o, p, values[to]);
        commit();
        const walk next = at.next(a, a.H);
        if (!next.over(a)) fetch(next);
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

template <int K, int V, int N, bool cut, int least>
__global__ void __launch_bounds__(threads, least) flash_forward_kernel(const __grid_constant__ task a) {
    extern __shared__ __align__(1024) unsigned char memory[];
    forward_block<K, V, N, cut>(a, memory).run();
}

// `least` blocks are to share a multiprocessor.
template <int K, int V, int N, int least> fwa_status launch(cudaStream_t stream, int multiprocessors, const task &a) {
    const auto kernel =
        a.n > 0 ? flash_forward_kernel<K, V, N, true, least> : flash_forward_kernel<K, V, N, false, least>;
    constexpr int bytes = forward_block<K, V, N, false>::shared_bytes;
    static_assert(bytes == forward_block<K, V, N, true>::shared_bytes, "earlier keys go through the same memory");
    FWA_CUDA_TRY(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
    const auto blocks = static_cast<unsigned>(fwa_min(pairs_of(a, a.H), multiprocessors * least));
    kernel<<<blocks, threads, bytes, stream>>>(a);
    FWA_CUDA_TRY(cudaGetLastError());
    return FWA_OK;
}

} // namespace

int forward_bytes(int head_size) {
    return head_size == 64 ? forward_block<64, 64, 64, false>::shared_bytes
                           : forward_block<128, 128, 128, false>::shared_bytes;
}

fwa_status forward(const fwa_stream *stream, const task &a, int head_size) {
    return head_size == 64 ? launch<64, 64, 64, 2>(stream->handle, stream->multiprocessors, a)
                           : launch<128, 128, 128, 1>(stream->handle, stream->multiprocessors, a);
}

} // namespace fwa::flash
