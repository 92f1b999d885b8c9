// Softmax cross-entropy with its gradient in place (contract: cross_entropy in ops.def).
//
//   loss[r] = log sum_{i<vocab} e^{l_i - m} + m - l_target,  m = max_{i<vocab} l_i
//   gradient: l_i <- e^{l_i - m} / sum - [i = target], 0 beyond vocab; prediction[r] = the first i with l_i = m
//
// Shapes: logits [R,N] in T, rows may be strided; loss [R] fp32, targets, prediction [R] i32. Any R >= 1, 1 <= vocab <=
// N. A row without target has loss 0 and gradient 0; a target beyond the vocabulary has loss NaN, which the step's
// guard refuses. Numerics: fp32, running maximum and sum in one reading, one rounding to T for the gradient. Cost:
// bound by memory, R N elements read and (gradient) written. Mapping: one block a row; the row stays in shared memory
// where it fits, otherwise the second reading comes from the caches; a thread holds every blockDim-th pack of 16 bytes,
// so it reads back only what it wrote itself.
#include "kernels/cuda/launch.cuh"

namespace {

using namespace fwa;

constexpr int most_threads = 1024, unroll = 4;
constexpr int64_t most_columns = 1 << 30; // columns are counted in 32 bits
constexpr size_t wide_bytes = 100u << 10; // rows beyond this leave room for one block on a multiprocessor

// Maximum of some logits, the sum of e^{l - max}, and where the first pack that holds the maximum begins. Of none: less
// than any logit of use, but finite, so that -inf beyond the vocabulary gives e^{-inf} and not NaN.
struct partial {
    float max, sum;
    int at;
};
constexpr partial nothing = {-1e30f, 0.0f, INT_MAX};

// e^{l - shift}: as 2^{l log2 e - base} for bf16, base = shift log2 e.
template <typename T> __device__ float base_of(float shift) {
    return sizeof(T) == 2 ? shift * log2_e : shift;
}
template <typename T> __device__ float term(float l, float base) {
    return sizeof(T) == 2 ? power2(l * log2_e - base) : expf(l - base);
}

// e^{max - shift} of a partial sum, at most 1: for `nothing`, l log2 e in one rounding less its value in two is no 0.
template <typename T> __device__ float weight(float max, float base) {
    return sizeof(T) == 2 ? power2(fminf(max * log2_e - base, 0.0f)) : expf(max - base);
}

template <typename T> __device__ partial join(partial a, partial b) {
    const float max = fmaxf(a.max, b.max), base = base_of<T>(max);
    const bool first = a.max > b.max || (a.max == b.max && a.at < b.at);
    return {max, a.sum * weight<T>(a.max, base) + b.sum * weight<T>(b.max, base), first ? a.at : b.at};
}

template <typename T> __device__ partial block_join(partial own, partial *space) {
    for (int offset = 16; offset > 0; offset /= 2) {
        const partial other = {__shfl_xor_sync(everyone, own.max, offset), __shfl_xor_sync(everyone, own.sum, offset),
                               __shfl_xor_sync(everyone, own.at, offset)};
        own = join<T>(own, other);
    }
    __syncthreads();
    if (threadIdx.x % 32 == 0) space[threadIdx.x / 32] = own;
    __syncthreads();
    own = threadIdx.x % 32 < blockDim.x / 32 ? space[threadIdx.x % 32] : nothing;
    for (int offset = 16; offset > 0; offset /= 2) {
        const partial other = {__shfl_xor_sync(everyone, own.max, offset), __shfl_xor_sync(everyone, own.sum, offset),
                               __shfl_xor_sync(everyone, own.at, offset)};
        own = join<T>(own, other);
    }
    return own;
}

// Elements c .. c+N-1 of a row in fp32, -inf beyond vocab.
template <typename T, int N> __device__ void values(float (&l)[N], const pieces<T, N> &from, int c, int vocab) {
    unpack(l, from);
    if (c + N <= vocab) return;
#pragma unroll
    for (int i = 0; i < N; i++) l[i] = c + i < vocab ? l[i] : -INFINITY;
}

// Adds elements c .. c+N-1 of a row.
template <typename T, int N> __device__ void add_pack(partial *own, const pieces<T, N> &raw, int c, int vocab) {
    float l[N], max, sum = 0.0f;
    values<T, N>(l, raw, c, vocab);
    max = l[0];
#pragma unroll
    for (int i = 1; i < N; i++) max = fmaxf(max, l[i]);
    if (max > own->max) own->at = c;
    max = fmaxf(max, own->max);
    const float base = base_of<T>(max);
#pragma unroll
    for (int i = 0; i < N; i++) sum += term<T>(l[i], base);
    own->sum = own->sum * weight<T>(own->max, base) + sum;
    own->max = max;
}

// This thread's packs of the row, kept in `kept` where there is one; several are loaded before the first is used.
template <typename T, int N> __device__ partial read_row(const T *row, T *kept, int vocab) {
    partial own = nothing;
    const int step = static_cast<int>(blockDim.x) * N;
    int c = static_cast<int>(threadIdx.x) * N;
    for (; c + (unroll - 1) * step < vocab; c += unroll * step) {
        pieces<T, N> raw[unroll];
#pragma unroll
        for (int u = 0; u < unroll; u++) raw[u] = load_words<N>(row + c + u * step);
#pragma unroll
        for (int u = 0; u < unroll; u++) {
            if (kept) store(kept + c + u * step, raw[u]);
            add_pack<T, N>(&own, raw[u], c + u * step, vocab);
        }
    }
    for (; c < vocab; c += step) {
        const auto raw = load_words<N>(row + c);
        if (kept) store(kept + c, raw);
        add_pack<T, N>(&own, raw, c, vocab);
    }
    return own;
}

// The first index of the maximum within the pack that holds it.
template <typename T, int N> __device__ int first_index(const T *row, const partial &all, int vocab) {
    if (all.at == INT_MAX) return 0;
    int first = all.at;
    while (first + 1 < vocab && to_float(row[first]) != all.max) first++;
    return first;
}

// d loss / d logits of a row from its values in `from` (the row itself or its copy). Without a target: zeros.
template <typename T, int N>
__device__ void write_gradient(T *row, const T *from, partial all, int target, int vocab, int columns) {
    // 1 / sum joins the exponent for bf16.
    const float base = base_of<T>(all.max) + (sizeof(T) == 2 ? log2f(all.sum) : 0.0f);
    const float scale = sizeof(T) == 2 ? 1.0f : 1.0f / all.sum;
    const int step = static_cast<int>(blockDim.x) * N, end = target >= 0 ? vocab : 0;
    int c = static_cast<int>(threadIdx.x) * N;
#pragma unroll 4
    for (; c < end; c += step) {
        float p[N];
        values<T, N>(p, load_words<N>(from + c), c, vocab);
#pragma unroll
        for (int i = 0; i < N; i++) p[i] = sizeof(T) == 2 ? term<T>(p[i], base) : term<T>(p[i], base) * scale;
        if (target >= c && target < c + N) { // seldom
#pragma unroll
            for (int i = 0; i < N; i++) p[i] -= c + i == target ? 1.0f : 0.0f;
        }
        store(row + c, repack<T>(p));
    }
    for (; c < columns; c += step) store(row + c, pieces<T, N>{});
}

template <typename T, int N>
__global__ void __launch_bounds__(most_threads)
    cross_entropy_kernel(float *loss, int *prediction, rows<T> logits, const int *targets, int columns, int vocab,
                         bool gradient, bool keep) {
    extern __shared__ __align__(16) unsigned char shared[];
    __shared__ partial space[32];
    T *kept = keep ? reinterpret_cast<T *>(shared) : nullptr;
    const int64_t r = blockIdx.x;
    T *row = logits.row(r);
    const T *from = keep ? kept : row;
    const int target = targets[r] < vocab ? targets[r] : -1;
    const float at_target = target >= 0 && threadIdx.x == 0 ? to_float(row[target]) : 0.0f;
    partial all = {0.0f, 1.0f, 0};
    if (target >= 0 || prediction) all = block_join<T>(read_row<T, N>(row, kept, vocab), space);
    if (threadIdx.x == 0) {
        const float missing = targets[r] < vocab ? 0.0f : NAN;
        if (prediction) prediction[r] = first_index<T, N>(from, all, vocab);
        loss[r] = target >= 0 ? logf(all.sum) + (all.max - at_target) : missing;
    }
    if (!gradient) return;
    if (!keep) __syncthreads(); // thread 0 has read what it needs of the row
    write_gradient<T, N>(row, from, all, target, vocab, columns);
}

// Threads so that each has about four packs, as many as two blocks of a multiprocessor may have.
int threads_for(int64_t packs, size_t row_bytes) {
    const int64_t most = row_bytes > wide_bytes ? most_threads : most_threads / 2;
    return static_cast<int>(fwa_min(fwa_round_up(fwa_ceil_div(packs, unroll), 32), most));
}

template <typename T>
fwa_status cross_entropy(fwa_stream *stream, fwa_tensor loss, fwa_tensor prediction, fwa_tensor logits,
                         fwa_tensor targets, int64_t vocab, bool gradient) {
    FWA_EXPECT_DIMS(logits, 2);
    const int64_t R = logits.shape[0], columns = logits.shape[1];
    FWA_EXPECT(logits, element<T>::dtype, 2, R, columns);
    FWA_EXPECT_DENSE(loss, FWA_F32, 1, R);
    FWA_EXPECT_DENSE(targets, FWA_I32, 1, R);
    if (fwa_tensor_present(prediction)) FWA_EXPECT_DENSE(prediction, FWA_I32, 1, R);
    FWA_CHECK(R <= INT_MAX, FWA_UNSUPPORTED, "logits: got %lld rows, expected less than 2^31",
              static_cast<long long>(R));
    FWA_CHECK(columns <= most_columns, FWA_UNSUPPORTED, "logits: got %lld columns, expected at most %lld",
              static_cast<long long>(columns), static_cast<long long>(most_columns));
    FWA_CHECK(vocab >= 1 && vocab <= columns, FWA_ERROR, "vocab: got %lld, expected 1 to %lld",
              static_cast<long long>(vocab), static_cast<long long>(columns));
    constexpr int N = pack_size<T>;
    const bool packed = columns % N == 0 && rows_aligned(logits);
    auto *kernel = packed ? cross_entropy_kernel<T, N> : cross_entropy_kernel<T, 1>;
    const auto bytes = static_cast<size_t>(fwa_round_up(vocab, N)) * sizeof(T);
    const bool keep = bytes + 1024 <= static_cast<size_t>(stream->shared_bytes);
    if (keep)
        FWA_CUDA_TRY(
            cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes)));
    const int threads = threads_for(fwa_ceil_div(vocab, packed ? N : 1), bytes);
    kernel<<<static_cast<unsigned>(R), threads, keep ? bytes : 0, stream->handle>>>(
        data_of<float>(loss), data_of<int>(prediction), rows_of<T>(logits), data_of<const int>(targets),
        static_cast<int>(columns), static_cast<int>(vocab), gradient, keep);
    FWA_CUDA_LAUNCHED();
    return FWA_OK;
}

} // namespace

FWA_CUDA_ENTRIES(cross_entropy, cross_entropy,
                 (fwa_stream * stream, fwa_tensor loss, fwa_tensor prediction, fwa_tensor logits, fwa_tensor targets,
                  int64_t vocab, bool gradient),
                 (stream, loss, prediction, logits, targets, vocab, gradient))
