// What the operators of this folder share on the host: entry points of both precisions, typed pointers and rows of
// arguments, grids, and the adding up of partial sums.
#ifndef FWA_KERNELS_CUDA_LAUNCH_CUH
#define FWA_KERNELS_CUDA_LAUNCH_CUH

#include <climits>

#include "core/shape.h"
#include "kernels/arguments.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/numeric.cuh"
#include "kernels/cuda/ops_cuda.h"

// Defines fwa_<name>_cuda_f32 and fwa_<name>_cuda_bf16 by the function template `function`, in the lists of ops.def.
#define FWA_CUDA_ENTRIES(name, function, parameters, arguments)                                                        \
    extern "C" fwa_status fwa_##name##_cuda_f32 parameters {                                                           \
        return function<float> arguments;                                                                              \
    }                                                                                                                  \
    extern "C" fwa_status fwa_##name##_cuda_bf16 parameters {                                                          \
        return function<__nv_bfloat16> arguments;                                                                      \
    }

#define FWA_CUDA_LAUNCHED() FWA_CUDA_TRY(cudaGetLastError())

namespace fwa {

// A view of [R,D] whose rows stand `stride` elements apart.
template <typename T> struct rows {
    T *data;
    int64_t stride;
    __host__ __device__ T *row(int64_t r) const {
        return data + r * stride;
    }
};

template <typename T> rows<T> rows_of(fwa_tensor t) {
    return {static_cast<T *>(t.data), t.stride[0]};
}
template <typename T> T *data_of(fwa_tensor t) {
    return static_cast<T *>(t.data);
}

// Rows of threads over a matrix: x threads go along the packs of a row, y rows are worked on at once.
struct tile {
    dim3 threads;
    unsigned blocks;
};

// 256 threads, whole warps along a row; one block for every y rows.
inline tile tile_rows(int64_t R, int64_t packs) {
    const auto x = static_cast<unsigned>(fwa_min(fwa_round_up(packs, 32), 256));
    const unsigned y = 256 / x;
    return {dim3(x, y), static_cast<unsigned>(fwa_min(fwa_ceil_div(R, y), INT_MAX))};
}

// 2^n lanes, 32 at most, for `packs` packs.
inline int lanes_for(int64_t packs) {
    int lanes = 1;
    while (lanes < 32 && lanes < packs) lanes *= 2;
    return lanes;
}

// Blocks of `threads` for n pieces of work, at most `waves` blocks a multiprocessor: kernels loop over the rest.
inline unsigned grid(const fwa_stream *stream, int64_t n, int threads, int waves) {
    return static_cast<unsigned>(
        fwa_max(1, fwa_min(fwa_ceil_div(n, threads), static_cast<int64_t>(stream->multiprocessors) * waves)));
}

// How many rows of `columns` fp32 partial sums the workspace holds beyond its first `used` bytes, `most` at most.
inline int64_t partial_rows(int64_t most, int64_t columns, size_t used = 0) {
    return fwa_min(most, static_cast<int64_t>((FWA_CUDA_WORKSPACE_BYTES - used) / sizeof(float)) / columns);
}

// The device code of several files: static, so that each has its own copy.
constexpr int reduce_columns = 32, reduce_lanes = 32;

// out[d] += sum_g partial[g,d], d < D.
struct column_sums {
    float *out;
    const float *partial;
    int64_t D;
};

// A block holds 32 columns of one of both; lane j adds rows j, j + 32, ...; then lanes in order.
static __global__ void __launch_bounds__(reduce_columns *reduce_lanes)
    reduce_rows_kernel(column_sums first, column_sums second, int64_t rows) {
    __shared__ float lanes[reduce_lanes][reduce_columns];
    const int64_t blocks = (first.D + reduce_columns - 1) / reduce_columns;
    const bool in_first = blockIdx.x < blocks;
    const column_sums own = in_first ? first : second;
    const int64_t d = (blockIdx.x - (in_first ? 0 : blocks)) * reduce_columns + threadIdx.x;
    float sum = 0.0f;
    if (d < own.D) {
#pragma unroll 8
        for (int64_t g = threadIdx.y; g < rows; g += reduce_lanes) sum += own.partial[g * own.D + d];
    }
    lanes[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y > 0 || d >= own.D) return;
    float total = 0.0f;
    for (int j = 0; j < reduce_lanes; j++) total += lanes[j][threadIdx.x];
    own.out[d] += total;
}

static inline fwa_status reduce_rows(fwa_stream *stream, column_sums first, column_sums second, int64_t rows) {
    const int64_t blocks = fwa_ceil_div(first.D, reduce_columns) + fwa_ceil_div(second.D, reduce_columns);
    reduce_rows_kernel<<<static_cast<unsigned>(blocks), dim3(reduce_columns, reduce_lanes), 0, stream->handle>>>(
        first, second, rows);
    FWA_CUDA_LAUNCHED();
    return FWA_OK;
}
static inline fwa_status reduce_rows(fwa_stream *stream, float *out, const float *partial, int64_t rows, int64_t D) {
    return reduce_rows(stream, {out, partial, D}, {nullptr, nullptr, 0}, rows);
}

} // namespace fwa
#endif
