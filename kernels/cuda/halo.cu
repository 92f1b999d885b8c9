// What a piece of a sequence sees of the rows before it: nothing from before the last document start among them
// (contract: halo_mask in ops.def).
//
// Shapes: x [B,n,C] in T, reset [B,n], both with strided rows; any sizes. Cost: one write of what is cleared. Mapping:
// blocks along C and a block row a sequence; every thread looks for the last start itself, as n is a few rows.
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/numeric.cuh"

namespace {

using namespace fwa;

constexpr int threads = 256;

template <typename T>
__global__ void __launch_bounds__(threads)
    halo_mask_kernel(T *x, int64_t stride_b, int64_t stride_n, const uint8_t *reset, int64_t reset_stride, int64_t n,
                     int64_t C) {
    const int64_t b = blockIdx.y;
    int64_t first = n - 1;
    while (first > 0 && !reset[b * reset_stride + first]) first--;
    for (int64_t j = 0; j < first; j++)
        for (int64_t c = static_cast<int64_t>(blockIdx.x) * threads + threadIdx.x; c < C;
             c += static_cast<int64_t>(gridDim.x) * threads)
            x[b * stride_b + j * stride_n + c] = from_float<T>(0.0f);
}

template <typename T> fwa_status halo_mask(fwa_stream *stream, fwa_tensor x, fwa_tensor reset) {
    FWA_EXPECT_DIMS(x, 3);
    const int64_t B = x.shape[0], n = x.shape[1], C = x.shape[2];
    FWA_EXPECT(x, element<T>::dtype, 3, B, n, C);
    FWA_EXPECT(reset, FWA_U8, 2, B, n);
    const dim3 blocks(grid(stream, C, threads, 16), static_cast<unsigned>(B));
    FWA_CHECK(B <= 65535, FWA_UNSUPPORTED, "halo_mask: %lld sequences, expected at most 65535",
              static_cast<long long>(B));
    halo_mask_kernel<<<blocks, threads, 0, stream->handle>>>(data_of<T>(x), x.stride[0], x.stride[1],
                                                             data_of<const uint8_t>(reset), reset.stride[0], n, C);
    FWA_CUDA_LAUNCHED();
    return FWA_OK;
}

} // namespace

FWA_CUDA_ENTRIES(halo_mask, halo_mask, (fwa_stream * stream, fwa_tensor x, fwa_tensor reset), (stream, x, reset))
