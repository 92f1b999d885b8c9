// Rotary embedding and its inverse, for f32 and bf16 (contract: rotary in ops.def).
//
//   (y_i, y_{i+K/2}) = (x_i cos - x_{i+K/2} sin, x_i sin + x_{i+K/2} cos),  angle (position + t) base^(-2i/K),
//   negative for the inverse
//
// Shapes: x, y [B,T,H,K] in T, K even and at most 8192, B, T, H may be strided; y may be x. Numerics: the angle in
// turns is computed and reduced to [-1/2, 1/2] in f64, so that late positions keep their accuracy; cosine, sine and
// products are fp32. Cost: bound by memory, every element read and written once. Mapping: a block computes the K/2
// frequencies into shared memory; a thread takes packs of 16 bytes of both halves (single pairs where they are not
// aligned), one cosine and sine for all heads of a step; rows of threads are steps.
#include "kernels/cuda/launch.cuh"

namespace {

using namespace fwa;

constexpr int64_t most_size = 8192;
constexpr int blocks_per_multiprocessor = 16, heads_at_once = 3; // loaded before the first is used

template <typename T> struct view {
    T *data;
    int64_t b, t, h; // strides
};

template <typename T> view<T> view_of(fwa_tensor x) {
    return {static_cast<T *>(x.data), x.stride[0], x.stride[1], x.stride[2]};
}

// turns[i] = +-base^(-2i/K) / (2 pi)
__device__ void fill_turns(double *turns, int64_t half, double log2_base, bool inverse) {
    constexpr double turns_per_radian = 0.15915494309189533577;
    const int size = static_cast<int>(blockDim.x * blockDim.y);
    for (int i = static_cast<int>(threadIdx.y * blockDim.x + threadIdx.x); i < half; i += size) {
        const double frequency = exp2(-log2_base * i / static_cast<double>(half));
        turns[i] = (inverse ? -turns_per_radian : turns_per_radian) * frequency;
    }
    __syncthreads();
}

// One store, which compilers would take apart here.
template <typename T, int N> __device__ void store_whole(T *to, const pieces<T, N> &value) {
    static_assert(pieces<T, N>::count == 1, "a pack of at most 16 bytes");
    __stwb(reinterpret_cast<typename pieces<T, N>::type *>(to), value.at[0]);
}

// Heads first .. first + count - 1 of one step, whose elements i .. i+N-1 stand at from and to.
template <typename T, int N, int HEADS>
__device__ void rotate(T *to, int64_t to_head, const T *from, int64_t from_head, int64_t half, int count,
                       const float (&cosine)[N], const float (&sine)[N]) {
    pieces<T, N> low[HEADS], high[HEADS];
#pragma unroll
    for (int h = 0; h < HEADS; h++) {
        if (h >= count) continue;
        low[h] = load_words<N>(from + h * from_head), high[h] = load_words<N>(from + h * from_head + half);
    }
#pragma unroll
    for (int h = 0; h < HEADS; h++) {
        if (h >= count) continue;
        float l[N], u[N], x[N], y[N];
        unpack(l, low[h]), unpack(u, high[h]);
#pragma unroll
        for (int j = 0; j < N; j++) {
            x[j] = l[j] * cosine[j] - u[j] * sine[j];
            y[j] = l[j] * sine[j] + u[j] * cosine[j];
        }
        low[h] = repack<T>(x), high[h] = repack<T>(y);
    }
#pragma unroll
    for (int h = 0; h < HEADS; h++)
        if (h < count) store_whole(to + h * to_head, low[h]);
#pragma unroll
    for (int h = 0; h < HEADS; h++)
        if (h < count) store_whole(to + h * to_head + half, high[h]);
}

template <typename T, int N>
__global__ void __launch_bounds__(256)
    rotary_kernel(view<T> y, view<const T> x, int64_t steps, int64_t length, int64_t H, int64_t half, int64_t position,
                  double log2_base, bool inverse) {
    extern __shared__ __align__(16) double turns[];
    fill_turns(turns, half, log2_base, inverse);
    for (int64_t row = static_cast<int64_t>(blockIdx.x) * blockDim.y + threadIdx.y; row < steps;
         row += static_cast<int64_t>(gridDim.x) * blockDim.y) {
        int64_t b, t;
        divide(row, length, &b, &t);
        for (int64_t i = static_cast<int64_t>(threadIdx.x) * N; i < half; i += static_cast<int64_t>(blockDim.x) * N) {
            const T *from = x.data + b * x.b + t * x.t + i;
            T *to = y.data + b * y.b + t * y.t + i;
            float cosine[N], sine[N];
#pragma unroll
            for (int j = 0; j < N; j++) {
                const double turn = static_cast<double>(position + t) * turns[i + j];
                sincospif(2.0f * static_cast<float>(turn - rint(turn)), &sine[j], &cosine[j]);
            }
            for (int64_t h = 0; h < H; h += heads_at_once)
                rotate<T, N, heads_at_once>(to + h * y.h, y.h, from + h * x.h, x.h, half,
                                            static_cast<int>(min(H - h, static_cast<int64_t>(heads_at_once))), cosine,
                                            sine);
        }
    }
}

template <typename T>
fwa_status rotary(fwa_stream *stream, fwa_tensor y, fwa_tensor x, int64_t position, double base, bool inverse) {
    FWA_EXPECT_DIMS(x, 4);
    const int64_t B = x.shape[0], length = x.shape[1], H = x.shape[2], K = x.shape[3], half = K / 2;
    FWA_EXPECT(x, element<T>::dtype, 4, B, length, H, K);
    FWA_EXPECT(y, element<T>::dtype, 4, B, length, H, K);
    FWA_CHECK(K % 2 == 0, FWA_ERROR, "x: got head size %lld, expected an even one", static_cast<long long>(K));
    FWA_CHECK(K <= most_size, FWA_UNSUPPORTED, "x: got head size %lld; rotary on CUDA takes at most %lld",
              static_cast<long long>(K), static_cast<long long>(most_size));
    constexpr int N = pack_size<T>;
    const bool packed = half % N == 0 && rows_aligned(x) && rows_aligned(y);
    const int64_t packs = fwa_ceil_div(half, packed ? N : 1);
    unsigned lanes = 1;
    while (lanes < 256 && lanes < packs) lanes *= 2;
    const dim3 threads(lanes, 256 / lanes);
    auto *kernel = packed ? rotary_kernel<T, N> : rotary_kernel<T, 1>;
    const unsigned blocks = grid(stream, B * length, static_cast<int>(threads.y), blocks_per_multiprocessor);
    kernel<<<blocks, threads, static_cast<size_t>(half) * sizeof(double), stream->handle>>>(
        view_of<T>(y), view_of<const T>(x), B * length, length, H, half, position, log2(base), inverse);
    FWA_CUDA_LAUNCHED();
    return FWA_OK;
}

} // namespace

FWA_CUDA_ENTRIES(rotary, rotary,
                 (fwa_stream * stream, fwa_tensor y, fwa_tensor x, int64_t position, double base, bool inverse),
                 (stream, y, x, position, base, inverse))
