// What gates of [R,H] share: threads that go along h in groups of 2^n lanes while the rest of a block takes other rows,
// and the backward pass that leaves column sums. A thread sums its rows, a block its threads in order, reduce_rows the
// blocks in order: an order fixed by R, H and the number of multiprocessors.
#ifndef FWA_KERNELS_CUDA_GATES_CUH
#define FWA_KERNELS_CUDA_GATES_CUH

#include "kernels/cuda/launch.cuh"

namespace fwa {

constexpr int gate_threads = 256, gate_blocks = 4; // threads of a block, blocks a multiprocessor

inline dim3 gate_block(int64_t H) {
    const int lanes = lanes_for(H);
    return dim3(static_cast<unsigned>(lanes), static_cast<unsigned>(gate_threads / lanes));
}

// y(r, h) of every element.
template <typename F> __global__ void __launch_bounds__(gate_threads) gate_each_kernel(F set, int64_t R, int64_t H) {
    for (int64_t r = static_cast<int64_t>(blockIdx.x) * blockDim.y + threadIdx.y; r < R;
         r += static_cast<int64_t>(gridDim.x) * blockDim.y) {
        for (int64_t h = threadIdx.x; h < H; h += blockDim.x) set(r, h);
    }
}

template <typename F> fwa_status gate_each(fwa_stream *stream, F set, int64_t R, int64_t H) {
    const dim3 threads = gate_block(H);
    const auto blocks = static_cast<unsigned>(fwa_min(fwa_ceil_div(R, threads.y), INT_MAX));
    gate_each_kernel<<<blocks, threads, 0, stream->handle>>>(set, R, H);
    FWA_CUDA_LAUNCHED();
    return FWA_OK;
}

// Sum over the rows of threads of a block; on the first row.
__device__ inline float gate_column(float own, float *space) {
    __syncthreads();
    space[threadIdx.y * blockDim.x + threadIdx.x] = own;
    __syncthreads();
    float total = 0.0f;
    for (unsigned j = 0; j < blockDim.y && threadIdx.y == 0; j++) total += space[j * blockDim.x + threadIdx.x];
    return total;
}

// partial[2][gridDim,H]: sums over the rows of a block of what term(r, h) returns.
template <typename F>
__global__ void __launch_bounds__(gate_threads) gate_sums_kernel(float *partial, F term, int64_t R, int64_t H) {
    __shared__ float space[gate_threads];
    for (int64_t first = 0; first < H; first += blockDim.x) {
        const int64_t h = first + threadIdx.x;
        float2 sum = {0.0f, 0.0f};
        for (int64_t r = static_cast<int64_t>(blockIdx.x) * blockDim.y + threadIdx.y; r < R && h < H;
             r += static_cast<int64_t>(gridDim.x) * blockDim.y) {
            const float2 more = term(r, h);
            sum.x += more.x;
            sum.y += more.y;
        }
        const float x = gate_column(sum.x, space), y = gate_column(sum.y, space);
        if (threadIdx.y > 0 || h >= H) continue;
        partial[blockIdx.x * H + h] = x;
        partial[(static_cast<int64_t>(gridDim.x) + blockIdx.x) * H + h] = y;
    }
}

// dfirst[h] += sum_r term(r, h).x, dsecond[h] += sum_r term(r, h).y; dsecond may be absent.
template <typename F>
fwa_status gate_sums(fwa_stream *stream, float *dfirst, float *dsecond, F term, int64_t R, int64_t H) {
    const dim3 threads = gate_block(H);
    const int64_t blocks = partial_rows(grid(stream, R, static_cast<int>(threads.y), gate_blocks), 2 * H);
    FWA_CHECK(blocks >= 1, FWA_UNSUPPORTED, "H = %lld; gates on CUDA are at most %zu", static_cast<long long>(H),
              FWA_CUDA_WORKSPACE_BYTES / (2 * sizeof(float)));
    auto *partial = static_cast<float *>(stream->workspace);
    gate_sums_kernel<<<static_cast<unsigned>(blocks), threads, 0, stream->handle>>>(partial, term, R, H);
    FWA_CUDA_LAUNCHED();
    return reduce_rows(stream, {dfirst, partial, H}, {dsecond, partial + blocks * H, dsecond ? H : 0}, blocks);
}

} // namespace fwa
#endif
