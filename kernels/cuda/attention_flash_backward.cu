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

template <int K, int V> struct queries_block {
    using query_rows = matrix<block_rows, K>;
    using output_rows = matrix<block_rows, V>;
    using key_rows = matrix<step_rows, K>;
    using value_rows = matrix<step_rows, V>;
    static constexpr int shared_bytes =
        (query_rows::elements + output_rows::elements + 3 * key_rows::elements + 2 * value_rows::elements) *
            static_cast<int>(sizeof(bf16)) +
        block_rows * static_cast<int>(sizeof(float2));

    const task &a;
    place at;
    const int32_t *first;
    int begin, own, sees_all;
    float scale;
    float dq[K / 8][4];
    float2 sums[2]; // of rows row_of(0), row_of(2)

    __device__ explicit queries_block(const task &call) : a(call), at(call.Hq, call.padded / block_rows) {
        begin = (a.padded / block_rows - 1 - at.block) * block_rows; // the longest first
        own = begin + warp_row();
        first = a.first ? a.first + static_cast<int64_t>(at.b) * a.T : nullptr;
        sees_all = first ? first[min(begin + block_rows, a.T) - 1] : 0;
        scale = a.scale * log2_e;
        clear(dq);
    }

    // log2(e) lse and D of the warp's rows, kept in `space` and for the other kernel.
    __device__ void sum_rows(int h, float2 *space) {
        constexpr int lanes = V / 8;
        const rows o = a.o.head(at.b, h), d_o = a.d_o.head(at.b, h);
        const int64_t head = static_cast<int64_t>(at.b) * a.H + h;
#pragma unroll
        for (int i = 0; i < 16; i += 32 / lanes) {
            const int row = i + lane() / lanes, t = own + row, column = lane() % lanes * 8;
            float sum = 0.0f;
            if (t < a.T) {
                const auto x = load<8>(o.row(t) + column), y = load<8>(d_o.row(t) + column);
#pragma unroll
                for (int c = 0; c < 8; c++) sum += to_float(x.at[c]) * to_float(y.at[c]);
            }
            sum = lanes_sum(sum, lanes);
            if (lane() % lanes) continue;
            space[warp_row() + row] =
                t < a.T ? make_float2(a.lse[head * a.T + t] * log2_e, sum) : make_float2(0.0f, 0.0f);
            a.sums[head * a.padded + t] = space[warp_row() + row];
        }
        __syncwarp();
        sums[0] = space[warp_row() + row_of(0)], sums[1] = space[warp_row() + row_of(2)];
    }

    __device__ bool sees(int t, int j) const {
        return j <= t && (!first || j >= first[min(t, a.T - 1)]);
    }

    // s becomes p of the keys from j0 on.
    __device__ void to_probabilities(float (&s)[step_rows / 8][4], int j0) const {
#pragma unroll
        for (int i = 0; i < step_rows / 2; i++)
            s[i / 4][i % 4] = power_of_two(s[i / 4][i % 4] * scale - sums[i % 4 / 2].x);
        if (j0 + step_rows - 1 <= own && j0 >= sees_all) return;
#pragma unroll
        for (int i = 0; i < step_rows / 2; i++)
            if (!sees(own + row_of(i % 4), j0 + column_of(i / 4, i % 4))) s[i / 4][i % 4] = 0.0f;
    }

    __device__ void run(unsigned char *memory) {
        const rows k = a.k.head(at.b, at.h), q = a.q.head(at.b, at.h);
        arena shared = {memory};
        const auto queries = shared.take<query_rows>();
        const auto outputs = shared.take<output_rows>();
        const auto keys = shared.take<ring<key_rows, 3>>();
        const auto values = shared.take<ring<value_rows, 2>>();
        const auto space = reinterpret_cast<float2 *>(shared.free);
        const int from = first ? first[begin] / step_rows : 0;
        const int to = (min(begin + block_rows, a.T) - 1) / step_rows;
        float s[step_rows / 8][4], dp[step_rows / 8][4];
        uint32_t ds[step_rows / 16][4];

        queries.fetch(q, begin, a.T);
        for (int h = at.h * (a.H / a.Hq); h < (at.h + 1) * (a.H / a.Hq); h++) {
            const rows v = a.v.head(at.b, h);
            __syncthreads(); // nothing reads what is fetched now
            outputs.fetch(a.d_o.head(at.b, h), begin, a.T);
            keys[from].fetch(k, from * step_rows, a.T);
            values[from].fetch(v, from * step_rows, a.T);
            copy_commit();
            sum_rows(h, space);
            for (int j = from; j <= to; j++) {
                copy_wait<0>();
                meet();
                if (j < to) {
                    keys[j + 1].fetch(k, (j + 1) * step_rows, a.T);
                    values[j + 1].fetch(v, (j + 1) * step_rows, a.T);
                    copy_commit();
                }
                if (j * step_rows > (own | 63)) continue; // later than all queries of the warpgroup
                start();
                multiply_rows(s, queries, keys[j]);
                commit();
                multiply_rows(dp, outputs, values[j]);
                commit();
                await<1>(s);
                settle(ds);
                to_probabilities(s, j * step_rows);
                await<0>(dp);
#pragma unroll
                for (int i = 0; i < step_rows / 2; i++)
                    dp[i / 4][i % 4] = s[i / 4][i % 4] * (dp[i / 4][i % 4] - sums[i % 4 / 2].y);
                to_operand(ds, dp);
                start();
                multiply(dq, ds, keys[j]);
                commit();
            }
            await<0>(dq);
        }
        __syncthreads();
        const float factor[2] = {a.scale, a.scale};
        write_rows(a.dq.head(at.b, at.h), own, a.T, dq, factor, matrix<block_rows, K>{queries.data});
    }
};

template <int K, int V> struct keys_block {
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
    int begin, own;
    float scale;
    float dk[K / 8][4], dv[V / 8][4];

    __device__ explicit keys_block(const task &call) : a(call), at(call.Hq, call.padded / block_rows) {
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
        return j <= t && (!first || j >= first[min(t, a.T - 1)]);
    }
    __device__ bool is_cut(int t0) const {
        return own + 15 > t0 || (first && first[min(t0 + step_rows, a.T) - 1] > own);
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

    __device__ void run(unsigned char *memory) {
        const rows k = a.k.head(at.b, at.h), q = a.q.head(at.b, at.h);
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

        keys.fetch(k, begin, a.T);
        for (int h = at.h * (a.H / a.Hq); h < (at.h + 1) * (a.H / a.Hq); h++) {
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
            values.fetch(a.v.head(at.b, h), begin, a.T);
            fetch(begin / step_rows);
            for (int i = begin / step_rows; reached(i * step_rows); i++) {
                copy_wait<0>();
                meet();
                if (reached((i + 1) * step_rows)) fetch(i + 1);
                if (i * step_rows + step_rows <= (own & ~63)) continue; // earlier than all keys of the warpgroup
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
            write_rows(a.dv.head(at.b, h), own, a.T, dv, one, space_dv);
        }
        await<0>(dk);
        write_rows(a.dk.head(at.b, at.h), own, a.T, dk, factor, space_dk);
    }
};

template <int K, int V, int least>
__global__ void __launch_bounds__(threads, least) queries_kernel(const __grid_constant__ task a) {
    extern __shared__ __align__(1024) unsigned char memory[];
    queries_block<K, V>(a).run(memory);
}

template <int K, int V, int least>
__global__ void __launch_bounds__(threads, least) keys_kernel(const __grid_constant__ task a) {
    extern __shared__ __align__(1024) unsigned char memory[];
    keys_block<K, V>(a).run(memory);
}

// So many blocks of each kernel are to share a multiprocessor.
template <int K, int V, int least_dq, int least_dkv> fwa_status launch(cudaStream_t stream, const task &a) {
    const auto blocks = static_cast<unsigned>(a.B * a.Hq * (a.padded / block_rows));
    constexpr int dq_bytes = queries_block<K, V>::shared_bytes, dkv_bytes = keys_block<K, V>::shared_bytes;
    const auto dq_kernel = queries_kernel<K, V, least_dq>;
    const auto dkv_kernel = keys_kernel<K, V, least_dkv>;
    FWA_CUDA_TRY(cudaFuncSetAttribute(dq_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, dq_bytes));
    FWA_CUDA_TRY(cudaFuncSetAttribute(dkv_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, dkv_bytes));
    dq_kernel<<<blocks, threads, dq_bytes, stream>>>(a);
    FWA_CUDA_TRY(cudaGetLastError());
    dkv_kernel<<<blocks, threads, dkv_bytes, stream>>>(a);
    FWA_CUDA_TRY(cudaGetLastError());
    return FWA_OK;
}

} // namespace

int backward_bytes(int head_size) {
    return head_size == 64 ? fwa_max(queries_block<64, 64>::shared_bytes, keys_block<64, 64>::shared_bytes)
                           : fwa_max(queries_block<128, 128>::shared_bytes, keys_block<128, 128>::shared_bytes);
}

fwa_status backward(const fwa_stream *stream, const task &a, int head_size) {
    return head_size == 64 ? launch<64, 64, 2, 1>(stream->handle, a) : launch<128, 128, 1, 1>(stream->handle, a);
}

} // namespace fwa::flash
