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

// N neighbouring elements, read and written in pieces of at most 16 bytes. The pieces are named as integers: element by
// element, compilers fall back to narrow stores.
template <typename T, int N> struct alignas(N * sizeof(T) < 16 ? N * sizeof(T) : 16) pack { T at[N]; };

template <int bytes> struct piece_type { using type = uint4; };
template <> struct piece_type<8> { using type = uint2; };
template <> struct piece_type<4> { using type = uint32_t; };
template <> struct piece_type<2> { using type = uint16_t; };

template <typename T, int N> struct pieces {
    static constexpr int bytes = N * static_cast<int>(sizeof(T));
    using type = typename piece_type<bytes>::type;
    static constexpr int count = bytes / static_cast<int>(sizeof(type));
    type at[count];
};

template <int N, typename T> __device__ inline pack<T, N> load(const T *from) {
    pieces<T, N> raw;
#pragma unroll
    for (int i = 0; i < raw.count; i++) raw.at[i] = reinterpret_cast<const typename pieces<T, N>::type *>(from)[i];
    return __builtin_bit_cast(pack<T, N>, raw);
}
template <int N, typename T> __device__ inline void store(T *to, const pack<T, N> &value) {
    const auto raw = __builtin_bit_cast(pieces<T, N>, value);
#pragma unroll
    for (int i = 0; i < raw.count; i++) reinterpret_cast<typename pieces<T, N>::type *>(to)[i] = raw.at[i];
}
template <typename T> constexpr int pack_size = 16 / static_cast<int>(sizeof(T));

// e^x and the sigmoid: to the last bits for float, the quick instructions (a few 1e-7 for |x| < 8) where the result is
// rounded to bf16.
template <typename T> __device__ inline float exponential(float x) {
    if constexpr (sizeof(T) == sizeof(float)) return expf(x);
    return __expf(x);
}
template <typename T> __device__ inline float sigmoid(float x) {
    if constexpr (sizeof(T) == sizeof(float)) return 1.0f / (1.0f + expf(-x));
    return __fdividef(1.0f, 1.0f + __expf(-x));
}
// d/dx of x sigmoid(x), given s = sigmoid(x).
__device__ inline float silu_slope(float x, float s) {
    return s * (1.0f + x * (1.0f - s));
}

// quotient and remainder of a / b, a >= 0, b > 0: in 32 bits where they suffice.
__device__ inline void divide(int64_t a, int64_t b, int64_t *quotient, int64_t *remainder) {
    if (((a | b) >> 32) == 0) {
        const auto q = static_cast<uint32_t>(a) / static_cast<uint32_t>(b);
        *quotient = q;
        *remainder = static_cast<uint32_t>(a) - q * static_cast<uint32_t>(b);
    } else {
        *quotient = a / b;
        *remainder = a % b;
    }
}

// Sum over a group of `lanes` neighbouring threads of a one-dimensional block (a power of two up to 32), on each of
// them. The whole group must come here.
__device__ inline float lanes_sum(float x, int lanes) {
    const unsigned group = 0xffffffffu >> (32 - lanes) << (threadIdx.x % 32 & ~(lanes - 1));
    for (int offset = lanes / 2; offset > 0; offset /= 2) x += __shfl_xor_sync(group, x, offset);
    return x;
}

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

// Whether packs can be read along every row of this view: base and strides are multiples of 16 bytes. An absent tensor
// is no hindrance.
inline bool rows_aligned(fwa_tensor t) {
    bool aligned = reinterpret_cast<std::uintptr_t>(t.data) % 16 == 0;
    for (int i = 0; i + 1 < t.ndim; i++) {
        const auto bytes = static_cast<std::uint64_t>(t.stride[i]) * fwa_dtype_size(t.dtype);
        aligned = aligned && (t.shape[i] == 1 || bytes % 16 == 0);
    }
    return aligned;
}

} // namespace fwa
#endif
