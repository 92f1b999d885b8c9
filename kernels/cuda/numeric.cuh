// What kernels share on the device: element types with fp32 arithmetic, 16-byte packs, sums over a block.
#ifndef FWA_KERNELS_CUDA_NUMERIC_CUH
#define FWA_KERNELS_CUDA_NUMERIC_CUH

#include <cuda_bf16.h>

#include <cstdint>

#include "core/tensor.h"

namespace fwa {

template <typename T> struct element;
template <> struct element<float> { static constexpr fwa_dtype dtype = FWA_F32; };
template <> struct element<__nv_bfloat16> { static constexpr fwa_dtype dtype = FWA_BF16; };

__device__ inline float to_float(float x) {
    return x;
}
__device__ inline float to_float(__nv_bfloat16 x) {
    return __bfloat162float(x);
}
template <typename T> __device__ inline T from_float(float x);
template <> __device__ inline float from_float<float>(float x) {
    return x;
}
template <> __device__ inline __nv_bfloat16 from_float<__nv_bfloat16>(float x) {
    return __float2bfloat16_rn(x);
}

// N neighbouring elements, read and written in pieces of at most 16 bytes.
template <typename T, int N> struct alignas(N * sizeof(T) < 16 ? N * sizeof(T) : 16) pack { T at[N]; };
template <int N, typename T> __device__ inline pack<T, N> load(const T *from) {
    return *reinterpret_cast<const pack<T, N> *>(from);
}
template <int N, typename T> __device__ inline void store(T *to, const pack<T, N> &value) {
    *reinterpret_cast<pack<T, N> *>(to) = value;
}
template <typename T> constexpr int pack_size = 16 / static_cast<int>(sizeof(T));

// Sum over the threads of a block (whole warps, at most 1024 threads), the same bits on every thread and every time.
// `space` holds 32 floats of shared memory. Meets at two barriers.
__device__ inline float block_sum(float x, float *space) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    for (int offset = 16; offset > 0; offset /= 2) x += __shfl_xor_sync(0xffffffffu, x, offset);
    if (warps == 1) return x;
    __syncthreads();
    if (lane == 0) space[warp] = x;
    __syncthreads();
    float sum = 0.0f;
    for (int i = 0; i < warps; i++) sum += space[i];
    return sum;
}

// Whether packs can be read along every row of this view: base and row stride are multiples of 16 bytes.
inline bool rows_aligned(fwa_tensor t) {
    const auto address = reinterpret_cast<std::uintptr_t>(t.data);
    const auto row = t.ndim > 1 ? static_cast<std::uint64_t>(t.stride[0]) * fwa_dtype_size(t.dtype) : 0;
    return address % 16 == 0 && row % 16 == 0;
}

} // namespace fwa
#endif
