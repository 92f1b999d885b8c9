// Tiles that the copy engine brings (TMA), and the barriers in shared memory that say so: one thread asks for a tile,
// and no thread waits for another that waits. Rows outside of a tensor come as zeros.
#ifndef FWA_KERNELS_CUDA_CHUNK_BULK_CUH
#define FWA_KERNELS_CUDA_CHUNK_BULK_CUH

#include <cuda.h>

#include "core/shape.h"
#include "kernels/cuda/chunk.cuh"
#include "kernels/cuda/device.h"

namespace fwa {

// `count` arrivals, and the bytes that arrivals announce, end a phase; who waits names the parity of the phase, 0 for
// the first.
__device__ inline void phase_create(uint64_t *barrier, int count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(count) : "memory");
}
// By the lanes of a warp together, as one arrival.
__device__ inline void phase_arrive(uint64_t *barrier) {
    __syncwarp();
    if (threadIdx.x % 32 == 0)
        asm volatile("{.reg .b64 state; mbarrier.arrive.shared::cta.b64 state, [%0];}" ::"r"(shared_address(barrier))
                     : "memory");
}
// An arrival of one thread that announces bytes.
__device__ inline void phase_expect(uint64_t *barrier, int bytes) {
    FWA_SM90A(
        "{.reg .b64 state; mbarrier.arrive.expect_tx.shared::cta.b64 state, [%0], %1;}" ::"r"(shared_address(barrier)),
        "r"(bytes)
        : "memory");
}
__device__ inline void phase_wait(uint64_t *barrier, int parity) {
    uint32_t ended = 1;
    do {
        FWA_SM90A("{.reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p;}"
                  : "=r"(ended)
                  : "r"(shared_address(barrier)), "r"(parity)
                  : "memory");
    } while (!ended);
    __syncwarp();
}

// Registers of the warpgroup's threads from here on, a multiple of 8.
template <int count> __device__ inline void registers_give() {
    FWA_SM90A("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(count));
}
template <int count> __device__ inline void registers_take() {
    FWA_SM90A("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(count));
}

// A bf16 tensor [B,T,H,width] as the copy engine sees it.
using tile_map = CUtensorMap;

// 64 rows of 64 columns from (b, t, h, column) on, swizzled as all tiles; 8192 bytes of `barrier`. By one thread.
__device__ inline void tile_copy(__nv_bfloat16 *tile, const tile_map &map, int column, int h, int t, int b,
                                 uint64_t *barrier) {
    FWA_SM90A("cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, "
              "%4, %5}], [%6];" ::"r"(shared_address(tile)),
              "l"(&map), "r"(column), "r"(h), "r"(t), "r"(b), "r"(shared_address(barrier))
              : "memory");
}
// Bytes in a row, a multiple of 16.
__device__ inline void bulk_copy(void *to, const void *from, int bytes, uint64_t *barrier) {
    FWA_SM90A("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                  shared_address(to)),
              "l"(from), "r"(bytes), "r"(shared_address(barrier))
              : "memory");
}

// The same up to the second level of the cache.
__device__ inline void tile_fetch(const tile_map &map, int column, int h, int t, int b) {
    FWA_SM90A("cp.async.bulk.prefetch.tensor.4d.L2.global.tile [%0, {%1, %2, %3, %4}];" ::"l"(&map), "r"(column),
              "r"(h), "r"(t), "r"(b)
              : "memory");
}
__device__ inline void bulk_fetch(const void *from, int bytes) {
    FWA_SM90A("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from), "r"(bytes) : "memory");
}

// `steps` rows of a view; absent: nothing.
inline fwa_status tile_map_of(tile_map *map, const chunk_view &view, int B, int steps, int heads, int width) {
    *map = {};
    if (!view.data) return FWA_OK;
    void *function = nullptr;
    cudaDriverEntryPointQueryResult found;
    FWA_CUDA_TRY(
        cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault, &found));
    FWA_CHECK(found == cudaDriverEntryPointSuccess && function, FWA_BACKEND,
              "the driver has no cuTensorMapEncodeTiled, expected one for CUDA 12 or later");
    const auto step = [](int64_t stride, int n) { return static_cast<cuuint64_t>(n > 1 ? stride * 2 : 16); };
    const cuuint64_t sizes[] = {static_cast<cuuint64_t>(width), static_cast<cuuint64_t>(heads),
                                static_cast<cuuint64_t>(fwa_max(steps, 1)), static_cast<cuuint64_t>(B)};
    const cuuint64_t strides[] = {step(view.head, heads), step(view.time, steps), step(view.batch, B)};
    const cuuint32_t box[] = {64, 1, 64, 1}, dense[] = {1, 1, 1, 1};
    const CUresult result = reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(function)(
        map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 4, view.data, sizes, strides, box, dense, CU_TENSOR_MAP_INTERLEAVE_NONE,
        CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    FWA_CHECK(result == CUDA_SUCCESS, FWA_BACKEND,
              "the driver takes no map of a tensor (%d): B %d, T %d, H %d, width %d", static_cast<int>(result), B,
              steps, heads, width);
    return FWA_OK;
}

} // namespace fwa
#endif
