// Hopper's asynchronous products of a warpgroup (128 threads) as PTX: D [64,N] += A [64,16] B [16,N], bf16 with fp32
// sums. Only for sm_90a: FWA_WGMMA says whether the code being compiled may use it.
//
// Shared operands are tiles of 64 columns, 128 bytes a row, swizzled as `swizzled<64>` (mma.cuh) does, each tile on a
// multiple of 1024 bytes; wider matrices are several tiles one behind the other. A thread's part of D and of an A in
// registers is what mma.sync has for the 16 rows of its warp: warp w owns rows 16 w .. 16 w + 15.
//
// Order of use: writes to shared memory, `shared_fence`, a barrier; `wgmma_begin`, products, `wgmma_commit`; before D
// or an A in registers is touched again `wgmma_wait` and `settle`.
#ifndef FWA_KERNELS_CUDA_WGMMA_CUH
#define FWA_KERNELS_CUDA_WGMMA_CUH

#include <cstdint>

#include "kernels/cuda/mma.cuh"

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define FWA_WGMMA 1
#else
#define FWA_WGMMA 0
#endif

namespace fwa {

// Keeps the compiler from moving uses of registers across this point.
template <int n> __device__ inline void settle(float (&d)[n][4]) {
#pragma unroll
    for (int i = 0; i < n; i++) asm volatile("" : "+f"(d[i][0]), "+f"(d[i][1]), "+f"(d[i][2]), "+f"(d[i][3])::"memory");
}
template <int n> __device__ inline void settle(uint32_t (&a)[n][4]) {
#pragma unroll
    for (int i = 0; i < n; i++) asm volatile("" : "+r"(a[i][0]), "+r"(a[i][1]), "+r"(a[i][2]), "+r"(a[i][3])::"memory");
}

#if FWA_WGMMA

// Makes the thread's writes to shared memory visible to wgmma.
__device__ inline void shared_fence() {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
__device__ inline void wgmma_begin() {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ inline void wgmma_commit() {
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
template <int groups> __device__ inline void wgmma_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(groups) : "memory");
}

// Descriptor of a swizzled operand. Rows of 16-byte pieces stand in groups of eight, 1024 bytes apart. Where the
// columns are those of D (a transposed B), `next` is the distance in bytes between tiles of 64 columns.
__device__ inline uint64_t wgmma_operand(const void *tile, uint32_t next = 16) {
    constexpr uint64_t swizzle_128 = uint64_t{1} << 62, groups = uint64_t{1024 >> 4} << 32;
    return swizzle_128 | groups | static_cast<uint64_t>(next >> 4) << 16 | (shared_address(tile) & 0x3FFFF) >> 4;
}

#define FWA_FOUR(d, i) "+f"(d[i][0]), "+f"(d[i][1]), "+f"(d[i][2]), "+f"(d[i][3])
#define FWA_EIGHT_FOURS(d, i)                                                                                          \
    FWA_FOUR(d, i), FWA_FOUR(d, i + 1), FWA_FOUR(d, i + 2), FWA_FOUR(d, i + 3), FWA_FOUR(d, i + 4),                    \
        FWA_FOUR(d, i + 5), FWA_FOUR(d, i + 6), FWA_FOUR(d, i + 7)
#define FWA_32_NAMES                                                                                                   \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, "   \
    "%24, %25, %26, %27, %28, %29, %30, %31"
#define FWA_64_NAMES                                                                                                   \
    FWA_32_NAMES ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, "   \
                 "%51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"

// D = A B, or D += A B where `add`; A [64 rows,16 columns] and B [N rows,16 columns] both with rows along their
// columns.
__device__ inline void wgmma(float (&d)[8][4], uint64_t a, uint64_t b, int add) {
    asm volatile("{\n.reg .pred add;\nsetp.ne.b32 add, %34, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" FWA_32_NAMES
                 "}, %32, %33, add, 1, 1, 0, 0;\n}"
                 : FWA_EIGHT_FOURS(d, 0)
                 : "l"(a), "l"(b), "r"(add));
}
__device__ inline void wgmma(float (&d)[16][4], uint64_t a, uint64_t b, int add) {
    asm volatile("{\n.reg .pred add;\nsetp.ne.b32 add, %66, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" FWA_64_NAMES
                 "}, %64, %65, add, 1, 1, 0, 0;\n}"
                 : FWA_EIGHT_FOURS(d, 0), FWA_EIGHT_FOURS(d, 8)
                 : "l"(a), "l"(b), "r"(add));
}
// D += A B with A in registers and B [16 rows,N columns]: transposed.
__device__ inline void wgmma(float (&d)[8][4], const uint32_t (&a)[4], uint64_t b) {
    asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" FWA_32_NAMES
                 "}, {%32, %33, %34, %35}, %36, 1, 1, 1, 1;"
                 : FWA_EIGHT_FOURS(d, 0)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}
__device__ inline void wgmma(float (&d)[16][4], const uint32_t (&a)[4], uint64_t b) {
    asm volatile("wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" FWA_64_NAMES
                 "}, {%64, %65, %66, %67}, %68, 1, 1, 1, 1;"
                 : FWA_EIGHT_FOURS(d, 0), FWA_EIGHT_FOURS(d, 8)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}

#undef FWA_FOUR
#undef FWA_EIGHT_FOURS
#undef FWA_32_NAMES
#undef FWA_64_NAMES
#endif

} // namespace fwa
#endif
