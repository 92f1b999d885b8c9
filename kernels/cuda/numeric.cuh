// What kernels share on the device: element types with fp32 arithmetic, 16-byte packs, sums over lanes, warps and
// blocks.
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

// The same as words, for kernels that hold what they loaded for a while: single elements of 16 bits would be taken
// apart and put together on the way.
template <int N, typename T> __device__ inline pieces<T, N> load_words(const T *from) {
    pieces<T, N> raw;
#pragma unroll
    for (int i = 0; i < raw.count; i++) raw.at[i] = reinterpret_cast<const typename pieces<T, N>::type *>(from)[i];
    return raw;
}
template <int N, typename T> __device__ inline void store(T *to, const pieces<T, N> &raw) {
#pragma unroll
    for (int i = 0; i < raw.count; i++) reinterpret_cast<typename pieces<T, N>::type *>(to)[i] = raw.at[i];
}

// Words as floats and back; two bf16 a word.
template <typename T, int N> __device__ inline void unpack(float (&to)[N], const pieces<T, N> &from) {
    if constexpr (sizeof(T) == 2 && N % 2 == 0) {
        struct words {
            uint32_t at[N / 2];
        };
        const auto raw = __builtin_bit_cast(words, from);
#pragma unroll
        for (int i = 0; i < N / 2; i++) {
            to[2 * i] = __uint_as_float(raw.at[i] << 16);
            to[2 * i + 1] = __uint_as_float(raw.at[i] & 0xffff0000u);
        }
    } else {
        const auto raw = __builtin_bit_cast(pack<T, N>, from);
#pragma unroll
        for (int i = 0; i < N; i++) to[i] = to_float(raw.at[i]);
    }
}
template <typename T, int N> __device__ inline pieces<T, N> repack(const float (&from)[N]) {
    pieces<T, N> to;
    if constexpr (to.bytes % 4 != 0) {
        pack<T, N> raw;
        for (int i = 0; i < N; i++) raw.at[i] = from_float<T>(from[i]);
        to = __builtin_bit_cast(pieces<T, N>, raw);
    } else {
        constexpr int count = to.bytes / 4;
        uint32_t word[count];
#pragma unroll
        for (int i = 0; i < count; i++) {
            if constexpr (sizeof(T) == 2)
                asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word[i]) : "f"(from[2 * i + 1]), "f"(from[2 * i]));
            else
                word[i] = __float_as_uint(from[i]);
        }
#pragma unroll
        for (int i = 0; i < to.count; i++) { // written as vectors: other ways end in narrow stores
            if constexpr (count >= 4)
                to.at[i] = make_uint4(word[4 * i], word[4 * i + 1], word[4 * i + 2], word[4 * i + 3]);
            else if constexpr (count == 2)
                to.at[i] = make_uint2(word[0], word[1]);
            else
                to.at[i] = word[0];
        }
    }
    return to;
}

// 2^x and 1 / x by one instruction each, to a few 1e-7; results below 1e-38 become 0.
__device__ inline float power2(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
__device__ inline float quick_reciprocal(float x) {
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
constexpr float log2_e = 1.4426950408889634f, ln_2 = 0.6931471805599453f;

// The sigmoid: to the last bits for float, the quick instructions (a few 1e-7 for |x| < 8) where the result is rounded
// to bf16.
template <typename T> __device__ inline float sigmoid(float x) {
    if constexpr (sizeof(T) == sizeof(float)) return 1.0f / (1.0f + expf(-x));
    return quick_reciprocal(1.0f + power2(-log2_e * x));
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

constexpr unsigned everyone = 0xffffffffu; // all lanes of a warp

// Sum over a warp, on each of its lanes.
template <typename T> __device__ inline T warp_sum(T x) {
    for (int offset = 16; offset > 0; offset /= 2) x += __shfl_xor_sync(everyone, x, offset);
    return x;
}

// Inclusive sums over the lanes of a warp from the first (suffix: the last) on.
__device__ inline float warp_prefix_sum(float x, int lane) {
    for (int reach = 1; reach < 32; reach *= 2) {
        const float other = __shfl_up_sync(everyone, x, reach);
        if (lane >= reach) x += other;
    }
    return x;
}
__device__ inline float warp_suffix_sum(float x, int lane) {
    for (int reach = 1; reach < 32; reach *= 2) {
        const float other = __shfl_down_sync(everyone, x, reach);
        if (lane + reach < 32) x += other;
    }
    return x;
}

// Sum over a group of `lanes` neighbouring threads of a one-dimensional block (a power of two up to 32), on each of
// them. The whole group must come here.
__device__ inline float lanes_sum(float x, int lanes) {
    const unsigned group = everyone >> (32 - lanes) << (threadIdx.x % 32 & ~(lanes - 1));
    for (int offset = lanes / 2; offset > 0; offset /= 2) x += __shfl_xor_sync(group, x, offset);
    return x;
}

// Sum over a group of `lanes` neighbouring threads (a power of two up to 32), on each of them. The whole warp must come
// here.
__device__ inline float warp_part_sum(float x, int lanes) {
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2)
        if (offset < lanes) x += __shfl_xor_sync(everyone, x, offset);
    return x;
}

// Sums over groups of `lanes` neighbouring threads (4, 8, 16 or 32) of four values at once: thread i of a group gets
// the sum of value i / (lanes / 4). The whole warp must come here.
__device__ inline float lanes_sum4(const float (&value)[4], int lanes) {
    const int half = lanes / 2, quarter = lanes / 4;
    const bool upper = threadIdx.x & half, odd = threadIdx.x & quarter;
    float a = upper ? value[2] : value[0], b = upper ? value[3] : value[1];
    a += __shfl_xor_sync(everyone, upper ? value[0] : value[2], half);
    b += __shfl_xor_sync(everyone, upper ? value[1] : value[3], half);
    float sum = odd ? b : a;
    sum += __shfl_xor_sync(everyone, odd ? a : b, quarter);
    if (lanes > 16) sum += __shfl_xor_sync(everyone, sum, 4);
    if (lanes > 8) sum += __shfl_xor_sync(everyone, sum, 2);
    if (lanes > 4) sum += __shfl_xor_sync(everyone, sum, 1);
    return sum;
}
// What thread `from` of this thread's group holds.
__device__ inline float lanes_get(float x, int from, int lanes) {
    return __shfl_sync(everyone, x, from, lanes);
}

// Sum over the threads of a block (whole warps, at most 1024 threads), the same bits on every thread and every time.
// `space` holds 32 floats of shared memory. Meets at two barriers.
__device__ inline float block_sum(float x, float *space) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    x = warp_sum(x);
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
