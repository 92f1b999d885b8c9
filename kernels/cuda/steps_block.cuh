// How a block of the general recurrent kernel (steps.cuh) is cut, its shared memory, and its sums over lanes and warps.
#ifndef FWA_KERNELS_CUDA_STEPS_BLOCK_CUH
#define FWA_KERNELS_CUDA_STEPS_BLOCK_CUH

#include <cstdint>

#include "kernels/cuda/numeric.cuh"

namespace fwa {

constexpr int64_t piece_steps = 64;
constexpr int slice_columns = 32;
constexpr int kept_pairs = 4; // residuals of a step that shared memory holds

__host__ __device__ constexpr int64_t pieces_of(int64_t T) {
    return (T + piece_steps - 1) / piece_steps;
}

// How a block is cut: W warps with R rows of S each, so that K <= R W, and steps in a part.
template <int R_, int W_, int PART_> struct cut {
    static constexpr int R = R_, W = W_, PART = PART_;
    static constexpr int Kp = R * W, threads = W * 32, state = Kp * slice_columns;
    static constexpr int parts = static_cast<int>(piece_steps) / PART;
};

// By size of K. Sums over warps cost W^2 accesses of shared memory: few warps with many rows.
struct cuts64 {
    using forward = cut<8, 8, 8>;
    using backward = forward;
};
struct cuts128 {
    using forward = cut<16, 8, 8>;
    using backward = cut<16, 8, 4>;
};
struct cuts256 {
    using forward = cut<16, 16, 4>;
    using backward = forward;
};
struct cuts1024 {
    using forward = cut<32, 32, 1>;
    using backward = cut<32, 32, 2>;
};

// Shared memory of a block. w, gamma, v, d_o: 32 columns a step, whether they differ or not.
template <typename C> struct block_memory {
    alignas(16) float x[C::PART][C::Kp];
    alignas(16) float q[C::PART][C::Kp];
    float v[C::PART][slice_columns], d_o[C::PART][slice_columns];
    float w[C::PART][slice_columns], gamma[C::PART][slice_columns];
    int32_t first[C::PART], drop[C::PART];
    float sums[2][C::W][slice_columns];
    float kept[C::PART][kept_pairs][slice_columns];
};

// Each lane hands the half of its `2 half` values that it is not to sum to the lane beside it. By recursion: registers
// need constant indices.
template <int half, int R> __device__ inline void fold_lanes(float (&x)[R]) {
    const bool upper = threadIdx.x & half;
#pragma unroll
    for (int i = 0; i < half; i++) {
        const float sent = upper ? x[i] : x[i + half], kept = upper ? x[i + half] : x[i];
        x[i] = kept + __shfl_xor_sync(everyone, sent, half);
    }
    if constexpr (half > 1) fold_lanes<half / 2>(x);
}

// Sum of x[i] over the lanes of a warp; lane l gets that of i = l % R.
template <int R> __device__ inline float lane_sums(float (&x)[R]) {
    fold_lanes<R / 2>(x);
#pragma unroll
    for (int offset = R; offset < 32; offset *= 2) x[0] += __shfl_xor_sync(everyone, x[0], offset);
    return x[0];
}

template <int R> __device__ inline void load_rows(float (&to)[R], const float *from) {
#pragma unroll
    for (int i = 0; i < R; i += 4) {
        const float4 four = *reinterpret_cast<const float4 *>(from + i);
        to[i] = four.x, to[i + 1] = four.y, to[i + 2] = four.z, to[i + 3] = four.w;
    }
}

template <int R> __device__ inline float dot(const float (&a)[R], const float (&b)[R]) {
    float sum[4] = {};
#pragma unroll
    for (int i = 0; i < R; i++) sum[i % 4] += a[i] * b[i];
    return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

template <int R> __device__ inline void clear(float (&S)[R]) {
#pragma unroll
    for (int i = 0; i < R; i++) S[i] = 0.0f;
}

// Sum of parts [W,32] over the warps, in order.
template <typename C> __device__ __forceinline__ float over_warps(const float (&parts)[C::W][slice_columns], int lane) {
    float sum = 0.0f;
#pragma unroll
    for (int p = 0; p < C::W; p++) sum += parts[p][lane];
    return sum;
}

} // namespace fwa
#endif
