// The same byte in a part of every row of a matrix: bytes [0, width) of rows that stand `stride` bytes apart.
//
// Rows that are long are left to the library's kernel, which takes tens of microseconds for many short ones whatever
// their width. Here a thread writes one piece, as large as width, stride and address allow, up to 16 bytes. Cost: a
// sector of memory a row where rows are short.
#include "kernels/cuda/fill_rows.h"

#include "kernels/cuda/launch.cuh"

namespace {

using namespace fwa;

constexpr int threads = 256, most_pieces = 8;

template <typename P>
__global__ void __launch_bounds__(threads)
    fill_rows_kernel(char *to, P value, int64_t pieces, int64_t stride, int64_t rows) {
    const int64_t i = static_cast<int64_t>(blockIdx.x) * threads + threadIdx.x;
    int64_t row, piece;
    if (i >= rows * pieces) return;
    divide(i, pieces, &row, &piece);
    *reinterpret_cast<P *>(to + row * stride + piece * static_cast<int64_t>(sizeof(P))) = value;
}

// The largest power of two up to 16 that divides address, width and stride.
size_t piece_bytes(const void *to, size_t width, size_t stride) {
    const size_t all = reinterpret_cast<std::uintptr_t>(to) | width | stride | 16;
    return all & (~all + 1);
}

template <typename P> void launch(cudaStream_t stream, void *to, int byte, size_t width, size_t stride, size_t rows) {
    P value;
    memset(&value, byte, sizeof value);
    const auto pieces = static_cast<int64_t>(width / sizeof(P)), count = static_cast<int64_t>(rows);
    const auto blocks = static_cast<unsigned>(fwa_ceil_div(count * pieces, threads));
    fill_rows_kernel<P>
        <<<blocks, threads, 0, stream>>>(static_cast<char *>(to), value, pieces, static_cast<int64_t>(stride), count);
}

} // namespace

extern "C" fwa_status fwa_cuda_fill_rows(cudaStream_t stream, void *to, int byte, size_t width, size_t stride,
                                         size_t rows) {
    const size_t piece = piece_bytes(to, width, stride);
    if (width == 0 || rows == 0) return FWA_OK;
    if (width / piece > most_pieces || rows * (width / piece) > INT_MAX) {
        FWA_CUDA_TRY(cudaMemset2DAsync(to, stride, byte, width, rows, stream));
        return FWA_OK;
    }
    if (piece == 16)
        launch<uint4>(stream, to, byte, width, stride, rows);
    else if (piece == 8)
        launch<uint2>(stream, to, byte, width, stride, rows);
    else if (piece == 4)
        launch<uint32_t>(stream, to, byte, width, stride, rows);
    else if (piece == 2)
        launch<uint16_t>(stream, to, byte, width, stride, rows);
    else
        launch<uint8_t>(stream, to, byte, width, stride, rows);
    FWA_CUDA_LAUNCHED();
    return FWA_OK;
}
