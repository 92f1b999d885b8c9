// Rows of an embedding table by token, the gradient of the table, and the tokens that begin a document (contract:
// embedding_forward, embedding_backward, document_starts in ops.def).
//
//   reset[r] = [tokens[r] = token];   y[r] = w[tokens[r]];   dw[n] += sum_{r: tokens[r] = n} dy[r], in ascending r
//
// Shapes: w, y, dy in T, dw in fp32, [N,D] and [R,D], rows may be strided; tokens [R] i32 dense. Any R, D, N >= 1. A
// token outside the table gives a row of NaN, which the step's guard refuses, and no gradient. Numerics: fp32 sums
// whose order depends on the sizes and tokens only. Cost: bound by memory: forward 2 R D elements; backward reads dy
// once and reads and writes the rows of dw that occur; sorting moves about 40 bytes a token. Mapping: forward, a thread
// copies packs of 16 bytes. Backward: (token, r) are sorted by token, stably, at most `most_rows` at a time; a block
// sums a piece of the sorted list, a thread its own columns. Runs of one token inside a piece go to dw at once; what
// crosses an edge is left as a partial sum, and a second kernel adds these in order.
#include <cub/device/device_radix_sort.cuh>

#include "kernels/cuda/launch.cuh"

namespace {

using namespace fwa;

constexpr int64_t most_rows = 131072, least_piece = 32;
constexpr int sum_columns = 4, sum_threads = 256, ahead = 4; // columns of a thread, rows loaded ahead

template <typename T, int N>
__global__ void __launch_bounds__(256)
    embedding_forward_kernel(rows<T> y, rows<const T> w, const int32_t *tokens, int64_t R, int64_t D, int64_t entries) {
    for (int64_t r = static_cast<int64_t>(blockIdx.x) * blockDim.y + threadIdx.y; r < R;
         r += static_cast<int64_t>(gridDim.x) * blockDim.y) {
        const int32_t token = tokens[r];
        const bool known = token >= 0 && token < entries;
        const T *from = w.row(known ? token : 0);
        T *to = y.row(r);
        for (int64_t d = static_cast<int64_t>(threadIdx.x) * N; d < D; d += static_cast<int64_t>(blockDim.x) * N) {
            auto values = load<N>(from + d);
            for (int i = 0; i < N && !known; i++) values.at[i] = from_float<T>(NAN);
            store(to + d, values);
        }
    }
}

// What the sort works on: tokens outside the table sort behind all others.
__global__ void __launch_bounds__(256)
    embedding_keys_kernel(uint32_t *keys, int32_t *row, const int32_t *tokens, int64_t R, int64_t entries) {
    const int64_t r = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (r >= R) return;
    keys[r] = static_cast<uint32_t>(tokens[r] >= 0 && tokens[r] < entries ? tokens[r] : entries);
    row[r] = static_cast<int32_t>(r);
}

// The sorted list: token and row of every entry, cut into pieces.
struct sorted {
    const uint32_t *keys;
    const int32_t *row;
    int64_t R, entries, piece;
    __device__ int64_t end(int64_t p) const {
        return (p + 1) * piece < R ? (p + 1) * piece : R;
    }
    // Whether entry i and the one before it are of one token.
    __device__ bool joined(int64_t i) const {
        return i > 0 && i < R && keys[i - 1] == keys[i];
    }
};

template <int N> __device__ void add_to(float *to, const pack<float, N> &sum) {
    auto value = load<N>(to);
    for (int i = 0; i < N; i++) value.at[i] += sum.at[i];
    store(to, value);
}

// partial[pieces][2][D]: of piece p, the run that began before it, and the run that begins in it and goes on.
template <typename T, int N>
__global__ void __launch_bounds__(sum_threads)
    embedding_piece_kernel(rows<float> dw, float *partial, rows<const T> dy, sorted list, int64_t D) {
    const int64_t d = (static_cast<int64_t>(blockIdx.y) * blockDim.x + threadIdx.x) * N, p = blockIdx.x;
    if (d >= D) return;
    const int64_t begin = p * list.piece, end = list.end(p);
    pack<float, N> sum = {};
    int64_t start = begin; // of the current run
    for (int64_t e = begin; e < end; e += ahead) {
        pack<T, N> values[ahead];
        for (int j = 0; j < ahead; j++)
            if (e + j < end) values[j] = load<N>(dy.row(list.row[e + j]) + d);
        for (int j = 0; j < ahead && e + j < end; j++) {
            for (int i = 0; i < N; i++) sum.at[i] += to_float(values[j].at[i]);
            const int64_t next = e + j + 1;
            if (next < end && list.joined(next)) continue;
            const uint32_t token = list.keys[start];
            const bool before = start == begin && list.joined(begin), after = next == end && list.joined(end);
            if (before || after)
                store(partial + (2 * p + (before ? 0 : 1)) * D + d, sum);
            else if (token < list.entries)
                add_to<N>(dw.row(token) + d, sum);
            sum = {};
            start = next;
        }
    }
}

// The last entry of the run that entry i belongs to.
__device__ int64_t run_last(const sorted &list, int64_t i) {
    int64_t low = i, high = list.R - 1;
    while (low < high) {
        const int64_t middle = low + (high - low + 1) / 2;
        if (list.keys[middle] == list.keys[i])
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

// Adds up the runs that begin in piece p and end in a later one.
template <int N>
__global__ void __launch_bounds__(sum_threads)
    embedding_edge_kernel(rows<float> dw, const float *partial, sorted list, int64_t D) {
    const int64_t d = (static_cast<int64_t>(blockIdx.y) * blockDim.x + threadIdx.x) * N, p = blockIdx.x;
    const int64_t begin = p * list.piece, end = list.end(p);
    if (d >= D || !list.joined(end)) return;
    const uint32_t token = list.keys[end];
    if (token >= list.entries || (list.keys[begin] == token && list.joined(begin))) return;
    const int64_t last = run_last(list, end) / list.piece;
    auto sum = load<N>(partial + (2 * p + 1) * D + d);
#pragma unroll 4
    for (int64_t q = p + 1; q <= last; q++) {
        const auto more = load<N>(partial + 2 * q * D + d);
        for (int i = 0; i < N; i++) sum.at[i] += more.at[i];
    }
    add_to<N>(dw.row(token) + d, sum);
}

template <typename T> fwa_status check(fwa_tensor table, fwa_dtype type, fwa_tensor rows, fwa_tensor tokens) {
    FWA_EXPECT_DIMS(table, 2);
    FWA_EXPECT_DIMS(rows, 2);
    const int64_t N = table.shape[0], D = table.shape[1], R = rows.shape[0];
    FWA_EXPECT(table, type, 2, N, D);
    FWA_EXPECT(rows, element<T>::dtype, 2, R, D);
    FWA_EXPECT_DENSE(tokens, FWA_I32, 1, R);
    FWA_CHECK(N < INT_MAX, FWA_UNSUPPORTED, "table: got %lld rows, expected less than 2^31 - 1",
              static_cast<long long>(N));
    return FWA_OK;
}

template <typename T> fwa_status embedding_forward(fwa_stream *stream, fwa_tensor y, fwa_tensor w, fwa_tensor tokens) {
    FWA_TRY(check<T>(w, element<T>::dtype, y, tokens));
    const int64_t R = y.shape[0], D = y.shape[1];
    constexpr int N = pack_size<T>;
    const bool packed = D % N == 0 && rows_aligned(y) && rows_aligned(w);
    auto *kernel = packed ? embedding_forward_kernel<T, N> : embedding_forward_kernel<T, 1>;
    const tile t = tile_rows(R, fwa_ceil_div(D, packed ? N : 1));
    kernel<<<t.blocks, t.threads, 0, stream->handle>>>(rows_of<T>(y), rows_of<const T>(w),
                                                       data_of<const int32_t>(tokens), R, D, w.shape[0]);
    FWA_CUDA_LAUNCHED();
    return FWA_OK;
}

// Where the arrays of one call stand in the workspace.
struct layout {
    uint32_t *keys, *sorted_keys;
    int32_t *row, *sorted_row;
    void *sort;
    size_t sort_bytes, used;
    float *partial;
};

fwa_status make_layout(fwa_stream *stream, int64_t R, int bits, layout *out) {
    const size_t list = static_cast<size_t>(fwa_round_up(R, 64)) * sizeof(uint32_t);
    auto *memory = static_cast<char *>(stream->workspace);
    out->keys = reinterpret_cast<uint32_t *>(memory);
    out->sorted_keys = reinterpret_cast<uint32_t *>(memory + list);
    out->row = reinterpret_cast<int32_t *>(memory + 2 * list);
    out->sorted_row = reinterpret_cast<int32_t *>(memory + 3 * list);
    out->sort = memory + 4 * list;
    FWA_CUDA_TRY(cub::DeviceRadixSort::SortPairs(nullptr, out->sort_bytes, out->keys, out->sorted_keys, out->row,
                                                 out->sorted_row, static_cast<int>(R), 0, bits, stream->handle));
    out->used = 4 * list + static_cast<size_t>(fwa_round_up(static_cast<int64_t>(out->sort_bytes), 256));
    FWA_CHECK(out->used < FWA_CUDA_WORKSPACE_BYTES, FWA_UNSUPPORTED, "sorting %lld tokens takes %zu bytes of %zu",
              static_cast<long long>(R), out->used, FWA_CUDA_WORKSPACE_BYTES);
    out->partial = reinterpret_cast<float *>(memory + out->used);
    return FWA_OK;
}

// R <= most_rows.
template <typename T> fwa_status add_rows(fwa_stream *stream, fwa_tensor dw, fwa_tensor dy, fwa_tensor tokens) {
    const int64_t R = dy.shape[0], D = dy.shape[1], entries = dw.shape[0];
    int bits = 1;
    while ((entries >> bits) > 0) bits++;
    layout at;
    FWA_TRY(make_layout(stream, R, bits, &at));
    embedding_keys_kernel<<<static_cast<unsigned>(fwa_ceil_div(R, 256)), 256, 0, stream->handle>>>(
        at.keys, at.row, data_of<const int32_t>(tokens), R, entries);
    FWA_CUDA_LAUNCHED();
    FWA_CUDA_TRY(cub::DeviceRadixSort::SortPairs(at.sort, at.sort_bytes, at.keys, at.sorted_keys, at.row, at.sorted_row,
                                                 static_cast<int>(R), 0, bits, stream->handle));
    const int64_t most_pieces = partial_rows(R, 2 * D, at.used);
    FWA_CHECK(most_pieces >= 1, FWA_UNSUPPORTED, "D = %lld; embedding_backward on CUDA takes at most %zu columns",
              static_cast<long long>(D), (FWA_CUDA_WORKSPACE_BYTES - at.used) / (2 * sizeof(float)));
    const sorted list = {at.sorted_keys, at.sorted_row, R, entries, fwa_max(least_piece, fwa_ceil_div(R, most_pieces))};
    const auto pieces = static_cast<unsigned>(fwa_ceil_div(R, list.piece));
    constexpr int N = sum_columns;
    const bool packed = D % pack_size<T> == 0 && rows_aligned(dy) && rows_aligned(dw);
    const int64_t lanes = fwa_ceil_div(D, packed ? N : 1);
    const auto threads = static_cast<unsigned>(fwa_min(fwa_round_up(lanes, 32), sum_threads));
    const dim3 blocks(pieces, static_cast<unsigned>(fwa_ceil_div(lanes, threads)));
    FWA_CHECK(blocks.y <= 65535, FWA_UNSUPPORTED, "D = %lld is too wide for embedding_backward on CUDA",
              static_cast<long long>(D));
    auto *sum = packed ? embedding_piece_kernel<T, N> : embedding_piece_kernel<T, 1>;
    auto *edges = packed ? embedding_edge_kernel<N> : embedding_edge_kernel<1>;
    sum<<<blocks, threads, 0, stream->handle>>>(rows_of<float>(dw), at.partial, rows_of<const T>(dy), list, D);
    FWA_CUDA_LAUNCHED();
    edges<<<blocks, threads, 0, stream->handle>>>(rows_of<float>(dw), at.partial, list, D);
    FWA_CUDA_LAUNCHED();
    return FWA_OK;
}

template <typename T>
fwa_status embedding_backward(fwa_stream *stream, fwa_tensor dw, fwa_tensor dy, fwa_tensor tokens) {
    FWA_TRY(check<T>(dw, FWA_F32, dy, tokens));
    for (int64_t r = 0, R = dy.shape[0]; r < R; r += most_rows) {
        const int64_t count = fwa_min(most_rows, R - r);
        FWA_TRY(add_rows<T>(stream, dw, fwa_tensor_slice(dy, 0, r, count), fwa_tensor_slice(tokens, 0, r, count)));
    }
    return FWA_OK;
}

__global__ void __launch_bounds__(256)
    document_starts_kernel(uint8_t *reset, const int32_t *tokens, int32_t token, int64_t R) {
    for (int64_t r = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; r < R;
         r += static_cast<int64_t>(gridDim.x) * blockDim.x)
        reset[r] = tokens[r] == token;
}

template <typename T>
fwa_status document_starts(fwa_stream *stream, fwa_tensor reset, fwa_tensor tokens, int32_t token) {
    FWA_EXPECT_DIMS(tokens, 1);
    const int64_t R = tokens.shape[0];
    FWA_EXPECT_DENSE(tokens, FWA_I32, 1, R);
    FWA_EXPECT_DENSE(reset, FWA_U8, 1, R);
    document_starts_kernel<<<grid(stream, R, 256, 16), 256, 0, stream->handle>>>(
        data_of<uint8_t>(reset), data_of<const int32_t>(tokens), token, R);
    FWA_CUDA_LAUNCHED();
    return FWA_OK;
}

} // namespace

FWA_CUDA_ENTRIES(document_starts, document_starts,
                 (fwa_stream * stream, fwa_tensor reset, fwa_tensor tokens, int32_t token),
                 (stream, reset, tokens, token))
FWA_CUDA_ENTRIES(embedding_forward, embedding_forward,
                 (fwa_stream * stream, fwa_tensor y, fwa_tensor w, fwa_tensor tokens), (stream, y, w, tokens))
FWA_CUDA_ENTRIES(embedding_backward, embedding_backward,
                 (fwa_stream * stream, fwa_tensor dw, fwa_tensor dy, fwa_tensor tokens), (stream, dw, dy, tokens))
