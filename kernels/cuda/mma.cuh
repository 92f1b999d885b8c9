// Tensor-core building blocks, as PTX: asynchronous copies into shared memory, swizzled tiles, ldmatrix, mma.sync.
// Everything here runs from sm_80 on. Fragments are those of the PTX manual: with g = lane / 4 and t = lane % 4, an
// m16n8 accumulator holds (g, 2t), (g, 2t+1), (g+8, 2t), (g+8, 2t+1).
#ifndef FWA_KERNELS_CUDA_MMA_CUH
#define FWA_KERNELS_CUDA_MMA_CUH

#include <cuda_bf16.h>

#include <cstdint>

#include "kernels/cuda/numeric.cuh"

namespace fwa {

__device__ inline uint32_t shared_address(const void *p) {
    return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

// 16 bytes from global to shared memory; zeros where not `valid` (`from` is not read then, but must be a pointer).
__device__ inline void copy_async(void *to, const void *from, bool valid = true) {
    const int bytes = valid ? 16 : 0;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from), "r"(bytes)
                 : "memory");
}
__device__ inline void copy_commit() {
    asm volatile("cp.async.commit_group;" ::: "memory");
}
// Waits until at most `groups` of the thread's own committed groups are under way.
template <int groups> __device__ inline void copy_wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(groups) : "memory");
}

// Index of an element in a tile of bf16 rows of `columns` (a multiple of 64): its 16-byte pieces are permuted within
// groups of eight by the row, so that eight rows of one column of pieces lie in different banks.
template <int columns> __device__ inline int swizzled(int row, int column) {
    static_assert(columns % 64 == 0, "rows of whole 128-byte lines");
    return row * columns + (column ^ (row & 7) << 3);
}

// Four 8x8 matrices of 16-bit elements; lane 8 i + j gives the address of row j of matrix i.
__device__ inline void load_matrix(uint32_t (&r)[4], const void *row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_address(row))
                 : "memory");
}
__device__ inline void load_matrix_transposed(uint32_t (&r)[4], const void *row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_address(row))
                 : "memory");
}

// The transpose of an 8x8 matrix whose row g a lane has in columns 2 t and 2 t + 1.
__device__ inline uint32_t transposed_matrix(uint32_t pair) {
    uint32_t to;
    asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(to) : "r"(pair));
    return to;
}

// d += a b: a 16x16 (rows), b 16x8 (columns), bf16 with fp32 sums.
__device__ inline void mma_bf16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
                 "{%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
// d += a b: a 16x8 (rows), b 8x8 (columns), tf32 with fp32 sums.
__device__ inline void mma_tf32(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
                 "{%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Sum over the four lanes that share rows of accumulators.
__device__ inline float quad_sum(float x) {
    x += __shfl_xor_sync(everyone, x, 1);
    return x + __shfl_xor_sync(everyone, x, 2);
}

// Two floats as the bf16 pair of a fragment: `low` is the element of the smaller index.
__device__ inline uint32_t bf16_pair(float low, float high) {
    uint32_t pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}
__device__ inline uint32_t tf32(float x) {
    uint32_t bits;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(x));
    return bits;
}

} // namespace fwa
#endif
