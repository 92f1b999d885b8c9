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
constexpr int blocks_per_multiprocessor = 16;

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
            float cosine[N], sine[N];
            for (int j = 0; j < N; j++) {
                const double turn = static_cast<double>(position + t) * turns[i + j];
                sincospif(2.0f * static_cast<float>(turn - rint(turn)), &sine[j], &cosine[j]);
            }
            for (int64_t h = 0; h < H; h++) {
                const T *from = x.data + b * x.b + t * x.t + h * x.h + i;
                T *to = y.data + b * y.b + t * y.t + h * y.h + i;
                const auto low = load<N>(from), high = load<N>(from + half);
                pack<T, N> y_low, y_high;
                for (int j = 0; j < N; j++) {
                    const float l = to_float(low.at[j]), u = to_float(high.at[j]);
                    y_low.at[j] = from_float<T>(l * cosine[j] - u * sine[j]);
                    y_high.at[j] = from_float<T>(l * sine[j] + u * cosine[j]);
                }
                store(to, y_low);
                store(to + half, y_high);
            }
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
