// Flash attention, backward (attention.cuh has the forward pass):
//
//   D_t = d_o_t . o_t    dp = d_o V^T    ds = p (dp - D)    dq = scale ds K    dk = scale ds^T Q    dv = p^T d_o
//
// p is computed again from lse. dq in a kernel over blocks of 128 queries, which works out D first, then dk and dv in
// one over blocks of 128 keys, which works on transposed scores: no atomics, sums in a fixed order. That is seven
// products of T^2 / 2 times K or V a head where one kernel for all would need five, but nothing is added up in memory.
// With shared heads q and k take the gradients of their value heads one after another.
#include "core/shape.h"
#include "kernels/cuda/attention_flash.cuh"

namespace fwa::flash {
namespace {

constexpr int step_rows = 64; // keys, or queries, a step

template <int K, int V, bool cut> struct queries_block {
    using query_rows = matrix<block_rows, K>;
    using output_rows = matrix<block_rows, V>;
    using key_rows = matrix<step_rows, K>;
    using value_rows = matrix<step_rows, V>;
    static constexpr int shared_bytes =
        (query_rows::elements + output_rows::elements + 3 * key_rows::elements + 2 * value_rows::elements) *
            static_cast<int>(sizeof(bf16)) +
        block_rows * static_cast<int>(sizeof(float2));

    const task &a;
    walk at;
    int member, steps; // value head of the group; steps so far, which count through the rings
    query_rows queries;
    output_rows outputs;
    ring<key_rows, 3> keys;
    ring<value_rows, 2> values;
    float2 *space;
    const int32_t *first;
    int own, sees_all; // the warp's first query; keys from here on are seen by every query that they precede
    int before;        // number of the first own key
    float scale;
    float dq[K / 8][4];
    uint32_t ds[step_rows / 16][4];
    float2 sums[2]; // of rows row_of(0), row_of(2)

    __device__ queries_block(const task &call, unsigned char *memory)
        : a(call), at(walk::start(call, call.Hq)), member(0), steps(0) {
        arena shared = {memory};
        queries = shared.take<query_rows>();
        outputs = shared.take<output_rows>();
        keys = shared.take<ring<key_rows, 3>>();
        values = shared.take<ring<value_rows, 2>>();
        space = reinterpret_cast<float2 *>(shared.free);
        scale = a.scale * log2_e;
        before = before_of<cut>(a);
    }

    __device__ int value_head(const walk &w, int m) const {
        return w.h * a.group + m;
    }
    // The first block of keys that a block of queries reaches.
    __device__ int from_of(const walk &w) const {
        return a.first ? a.first[static_cast<int64_t>(w.b) * a.T + w.begin] / step_rows : 0;
    }

    // log2(e) lse and D of the warp's rows, kept in `space` and for the other kernel.
    __device__ void sum_rows(int h) {
        constexpr int lanes = V / 8, passes = 16 * lanes / 32;
        const rows o = a.o.head(at.b, h), d_o = a.d_o.head(at.b, h);
        const int64_t head = static_cast<int64_t>(at.b) * a.H + h;
        const int row = own + lane() / lanes, column = lane() % lanes * 8;
        pack<bf16, 8> x[passes], y[passes];
#pragma unroll
        for (int i = 0; i < passes; i++) {
            const int t = min(row + i * (16 / passes), a.T - 1);
            x[i] = load<8>(o.row(t) + column), y[i] = load<8>(d_o.row(t) + column);
        }
#pragma unroll
        for (int i = 0; i < passes; i++) {
            const int t = row + i * (16 / passes);
            float sum = 0.0f;
#pragma unroll
            for (int c = 0; c < 8; c++) sum += to_float(x[i].at[c]) * to_float(y[i].at[c]);
            sum = warp_part_sum(sum, lanes);
            if (lane() % lanes) continue;
            const float2 pair = t < a.T ? make_float2(a.lse[head * a.T + t] * log2_e, sum) : make_float2(0.0f, 0.0f);
            space[t - at.begin] = a.sums[head * a.padded + t] = pair;
        }
        __syncwarp();
        sums[0] = space[warp_row() + row_of(0)], sums[1] = space[warp_row() + row_of(2)];
    }

    __device__ bool sees(int t, int j) const {
        return j <= before + t && !is_empty<cut>(a, j) && (!first || j >= first[min(t, a.T - 1)]);
    }

    // s becomes p of the keys from j0 on.
    __device__ void to_probabilities(float (&s)[step_rows / 8][4], int j0) const {
#pragma unroll
        for (int i = 0; i < step_rows / 2; i++)
            s[i / 4][i % 4] = power_of_two(s[i / 4][i % 4] * scale - sums[i % 4 / 2].x);
        if (j0 + step_rows - 1 <= before + own && j0 >= sees_all && !has_empty<cut>(a, j0, step_rows)) return;
#pragma unroll
        for (int i = 0; i < step_rows / 2; i++)
            if (!sees(own + row_of(i % 4), j0 + column_of(i / 4, i % 4))) s[i / 4][i % 4] = 0.0f;
    }

    // Keys and values of one step into the rings.
    __device__ void fetch_step(const numbered<cut> &k, const numbered<cut> &v, int step, int j) {
        k.fetch(a, keys[step], j * step_rows);
        v.fetch(a, values[step], j * step_rows);
        copy_commit();
    }
    __device__ void fetch(const walk &w, int m) {
        if (m == 0) queries.fetch(a.q.head(w.b, w.h), w.begin, a.T);
        outputs.fetch(a.d_o.head(w.b, value_head(w, m)), w.begin, a.T);
        fetch_step(keys_of<cut>(a, w.b, w.h), values_of<cut>(a, w.b, value_head(w, m)), steps, from_of(w));
    }

    // One step on what stands in the rings; `fetch_next` is called when its first products are under way.
    template <typename F> __device__ void step(int j, F fetch_next) {
        float s[step_rows / 8][4], dp[step_rows / 8][4];
        start();
        multiply_rows(s, queries, keys[steps]);
        commit();
        multiply_rows(dp, outputs, values[steps]);
        commit();
        fetch_next();
        await<1>(s);
        settle(ds);
        to_probabilities(s, j * step_rows);
        settle(s);
        await<0>(dp);
#pragma unroll
        for (int i = 0; i < step_rows / 2; i++)
            dp[i / 4][i % 4] = s[i / 4][i % 4] * (dp[i / 4][i % 4] - sums[i % 4 / 2].y);
        to_operand(ds, dp);
        start();
        multiply(dq, ds, keys[steps]);
        commit();
    }

    // A block of queries with one value head, fetched already; fetches what is next as soon as there is room.
    __device__ void work() {
        const int to = (before + min(at.begin + block_rows, a.T) - 1) / step_rows;
        const auto k = keys_of<cut>(a, at.b, at.h), v = values_of<cut>(a, at.b, value_head(at, member));
        first = a.first ? a.first + static_cast<int64_t>(at.b) * a.T : nullptr;
        own = at.begin + warp_row();
        sees_all = first ? first[min(at.begin + block_rows, a.T) - 1] : 0;
        if (member == 0) clear(dq);
        sum_rows(value_head(at, member));
        for (int j = from_of(at); j <= to; j++, steps++) {
            copy_wait<0>();
            meet();
            const auto fetch_next = [&] {
                if (j < to) fetch_step(k, v, steps + 1, j + 1);
            };
            if (j * step_rows <= before + (own | 63))
                step(j, fetch_next);
            else // later than all queries of the warpgroup
                fetch_next();
        }
        __syncthreads(); // queries and outputs are not read any more
        const bool last = member + 1 == a.group;
        const walk next = last ? at.next(a, a.Hq) : at;
        const int next_member = last ? 0 : member + 1;
        if (!next.over(a)) fetch(next, next_member);
        await<0>(dq);
        if (last) {
            const float factor[2] = {a.scale, a.scale};
            const matrix<64, K> out = {in_first_group() ? keys[steps + 1].data : values[steps + 1].data};
            write_rows(a.dq.head(at.b, at.h), own, a.T, dq, factor, out);
        }
        at = next, member = next_member;
    }

    __device__ void run() {
        if (!at.over(a)) fetch(at, member);
        while (!at.over(a)) work();
    }
};

// Head and block of keys of a thread block: blocks of one head follow each other.
struct place {
    int b, h, block;
    __device__ place(int heads, int blocks) {
        const int i = static_cast<int>(blockIdx.x), head = i / blocks;
        block = i % blocks, b = head / heads, h = head % heads;
    }
};

template <int K, int V, bool cut> struct keys_block {
    using key_rows = matrix<block_rows, K>;
    using value_rows = matrix<block_rows, V>;
    using query_rows = matrix<step_rows, K>;
    using output_rows = matrix<step_rows, V>;
    static constexpr int stages = 3;
    static constexpr int shared_bytes =
        (key_rows::elements + value_rows::elements + stages * (query_rows::elements + output_rows::elements)) *
            static_cast<int>(sizeof(bf16)) +
        stages * step_rows * static_cast<int>(sizeof(float2));

    const task &a;
    place at;
    const int32_t *first;
    int before, begin, own; // number of the first own key, of the block's first and of the warp's
    float scale;
    float dk[K / 8][4], dv[V / 8][4];

    __device__ explicit keys_block(const task &call)
        : a(call), at(call.Hq, (before_of<cut>(call) + call.padded) / block_rows) {
        before = before_of<cut>(a);
        begin = at.block * block_rows;
        own = begin + warp_row();
        first = a.first ? a.first + static_cast<int64_t>(at.b) * a.T : nullptr;
        scale = a.scale * log2_e;
        clear(dk);
    }

    // Whether queries from t0 on see a key of the block.
    __device__ bool reached(int t0) const {
        return t0 < a.T && (!first || first[t0] < begin + block_rows);
    }
    __device__ bool sees(int t, int j) const {
        return j <= before + t && (!first || j >= first[min(t, a.T - 1)]);
    }
    __device__ bool is_cut(int t0) const {
        return own + 15 > before + t0 || (first && first[min(t0 + step_rows, a.T) - 1] > own);
    }

    // s becomes p^T of the queries from t0 on, dp becomes ds^T. Between the two p is given to its product.
    __device__ void to_probabilities(float (&s)[step_rows / 8][4], int t0, const float2 *sums) const {
#pragma unroll
        for (int i = 0; i < step_rows / 2; i++)
            s[i / 4][i % 4] = power_of_two(s[i / 4][i % 4] * scale - sums[column_of(i / 4, i % 4)].x);
        if (!is_cut(t0)) return;
#pragma unroll
        for (int i = 0; i < step_rows / 2; i++)
            if (!sees(t0 + column_of(i / 4, i % 4), own + row_of(i % 4))) s[i / 4][i % 4] = 0.0f;
    }

    // Writes the warp's rows of a gradient to where its keys came from.
    template <int columns>
    __device__ void write(const rows &early, const rows &late, const float (&d)[columns / 8][4],
                          const float (&factor)[2], const matrix<block_rows, columns> &space) const {
        rows to = late;
        int first_row = own - before, end = a.T;
        if (cut && begin < before) to = early, first_row = own, end = a.n;
        write_rows(to, first_row, end, d, factor, space);
    }

    __device__ void run(unsigned char *memory) {
        const rows q = a.q.head(at.b, at.h);
        arena shared = {memory};
        const auto keys = shared.take<key_rows>();
        const auto values = shared.take<value_rows>();
        const auto queries = shared.take<ring<query_rows, stages>>();
        const auto outputs = shared.take<ring<output_rows, stages>>();
        const auto sums = reinterpret_cast<float2 *>(shared.free);
        float s[step_rows / 8][4], dp[step_rows / 8][4];
        uint32_t p[step_rows / 16][4], ds[step_rows / 16][4];
        const float factor[2] = {a.scale, a.scale}, one[2] = {1.0f, 1.0f};
        const matrix<block_rows, K> space_dk = {queries.data};
        const matrix<block_rows, V> space_dv = {outputs.data};

        const int from = max(begin - before, 0) / step_rows;
        keys_of<cut>(a, at.b, at.h).fetch(a, keys, begin);
        for (int h = at.h * a.group; h < (at.h + 1) * a.group; h++) {
            const rows d_o = a.d_o.head(at.b, h);
            const float2 *head_sums = a.sums + (static_cast<int64_t>(at.b) * a.H + h) * a.padded;
            const auto fetch = [&](int i) {
                queries[i].fetch(q, i * step_rows, a.T);
                outputs[i].fetch(d_o, i * step_rows, a.T);
                if (threadIdx.x < step_rows / 2)
                    copy_async(sums + i % stages * step_rows + threadIdx.x * 2,
                               head_sums + i * step_rows + threadIdx.x * 2);
                copy_commit();
            };
            clear(dv);
            __syncthreads(); // nothing reads what is fetched now
            values_of<cut>(a, at.b, h).fetch(a, values, begin);
            fetch(from);
            for (int i = from; reached(i * step_rows); i++) {
                copy_wait<0>();
                meet();
                if (reached((i + 1) * step_rows)) fetch(i + 1);
                if (before + i * step_rows + step_rows <= (own & ~63))
                    continue; // earlier than all keys of the warpgroup
                start();
                multiply_rows(s, keys, queries[i]);
                commit();
                multiply_rows(dp, values, outputs[i]);
                commit();
                await<1>(s);
                settle(p);
                settle(ds);
                to_probabilities(s, i * step_rows, sums + i % stages * step_rows);
                to_operand(p, s);
                start();
                multiply(dv, p, outputs[i]);
                commit();
                await<1>(dp);
#pragma unroll
                for (int e = 0; e < step_rows / 2; e++)
                    dp[e / 4][e % 4] =
                        s[e / 4][e % 4] * (dp[e / 4][e % 4] - sums[i % stages * step_rows + column_of(e / 4, e % 4)].y);
                to_operand(ds, dp);
                start();
                multiply(dk, ds, queries[i]);
                commit();
            }
            await<0>(dv);
            __syncthreads();
            write(a.d_earlier_v.head(at.b, h), a.dv.head(at.b, h), dv, one, space_dv);
        }
        await<0>(dk);
        write(a.d_earlier_k.head(at.b, at.h), a.dk.head(at.b, at.h), dk, factor, space_dk);
    }
};

template <int K, int V, bool cut, int least>
__global__ void __launch_bounds__(threads, least) flash_queries_kernel(const __grid_constant__ task a) {
    extern __shared__ __align__(1024) unsigned char memory[];
    queries_block<K, V, cut>(a, memory).run();
}

template <int K, int V, bool cut, int least>
__global__ void __launch_bounds__(threads, least) flash_keys_kernel(const __grid_constant__ task a) {
    extern __shared__ __align__(1024) unsigned char memory[];
    keys_block<K, V, cut>(a).run(memory);
}

// So many blocks of each kernel are to share a multiprocessor.
template <int K, int V, int least_dq, int least_dkv> fwa_status launch(const fwa_stream *stream, const task &a) {
    const auto dq_blocks =
        static_cast<unsigned>(fwa_min(pairs_of(a, a.Hq), int64_t{stream->multiprocessors} * least_dq));
    const auto dkv_blocks = static_cast<unsigned>(a.B * a.Hq * ((a.before + a.padded) / block_rows));
    constexpr int dq_bytes = queries_block<K, V, false>::shared_bytes,
                  dkv_bytes = keys_block<K, V, false>::shared_bytes;
    static_assert(dq_bytes == queries_block<K, V, true>::shared_bytes, "earlier keys go through the same memory");
    static_assert(dkv_bytes == keys_block<K, V, true>::shared_bytes, "earlier keys go through the same memory");
    const auto dq_kernel =
        a.n > 0 ? flash_queries_kernel<K, V, true, least_dq> : flash_queries_kernel<K, V, false, least_dq>;
    const auto dkv_kernel =
        a.n > 0 ? flash_keys_kernel<K, V, true, least_dkv> : flash_keys_kernel<K, V, false, least_dkv>;
    FWA_CUDA_TRY(cudaFuncSetAttribute(dq_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, dq_bytes));
    FWA_CUDA_TRY(cudaFuncSetAttribute(dkv_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, dkv_bytes));
    dq_kernel<<<dq_blocks, threads, dq_bytes, stream->handle>>>(a);
    FWA_CUDA_TRY(cudaGetLastError());
    dkv_kernel<<<dkv_blocks, threads, dkv_bytes, stream->handle>>>(a);
    FWA_CUDA_TRY(cudaGetLastError());
    return FWA_OK;
}

} // namespace

int backward_bytes(int head_size) {
    return head_size == 64
               ? fwa_max(queries_block<64, 64, false>::shared_bytes, keys_block<64, 64, false>::shared_bytes)
               : fwa_max(queries_block<128, 128, false>::shared_bytes, keys_block<128, 128, false>::shared_bytes);
}

fwa_status backward(const fwa_stream *stream, const task &a, int head_size) {
    return head_size == 64 ? launch<64, 64, 2, 1>(stream, a) : launch<128, 128, 1, 1>(stream, a);
}

} // namespace fwa::flash
