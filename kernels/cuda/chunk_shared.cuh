// Chunk-parallel backward kernels whose blocks of 256 threads take a chunk of a value head: what a block is for, and
// the ways of its rows of dQ and dX, to the tensors or, where value heads share a query/key head, to parts in fp32
// that are added in the order of the heads.
#ifndef FWA_KERNELS_CUDA_CHUNK_SHARED_CUH
#define FWA_KERNELS_CUDA_CHUNK_SHARED_CUH

#include "kernels/cuda/chunk_rows.cuh"

namespace fwa {

struct tile_of {
    int c, head, b, h, hq;
    tile_of() = default;
    __device__ explicit tile_of(const chunk_task &a) {
        int block;
        asm volatile("mov.u32 %0, %%ctaid.x;" : "=r"(block));
        c = block % a.chunks, head = block / a.chunks, b = head / a.H, h = head % a.H, hq = h / a.group;
    }
};

// This warpgroup's columns of the thread's rows to the block's part of `parts` [B,H,chunks,64,columns].
template <int columns> __device__ inline void keep_part(float *parts, const float (&d)[columns / 4]) {
    const place at;
    float *to = parts + static_cast<int64_t>(blockIdx.x) * (64 * columns);
#pragma unroll
    for (int i = 0; i < columns / 4; i += 2)
        *reinterpret_cast<float2 *>(to + (at.row + i % 4 / 2 * 8) * columns + at.group * (columns / 2) + i / 4 * 8 +
                                    at.t * 2) = make_float2(d[i], d[i + 1]);
}

// Rows of dq and dk, through the tiles of Q and X.
template <int K>
__device__ inline void write_queries(__nv_bfloat16 *q, const uint32_t (&pairs)[K / 8], const chunk_task &a,
                                     const tile_of &tile) {
    __nv_bfloat16 *own = q + own_columns<K>(place().group);
    const int first = tile_step(a, tile.c, 0);
    place_rows<K>(own, pairs);
    copy_rows<K>(own, a.dq.row(tile.b, first, tile.hq), a.dq.time, a.halo, a.T - first);
}
template <int K>
__device__ inline void write_keys(__nv_bfloat16 *x, const float (&dx)[K / 4], const chunk_task &a,
                                  const tile_of &tile) {
    const place at;
    const int64_t rows = (static_cast<int64_t>(tile.head) * a.chunks + tile.c) * (2 * a.halo + 1);
    write_rows<K>(x + own_columns<K>(at.group), dx, a.edge_x ? a.edge_x + rows * K : nullptr, a, a.dk, tile.b, tile.hq,
                  tile.c, a.shift);
    if (a.shift && a.dk.data && tile.c + 1 == a.chunks && at.thread < K / 8)
        *reinterpret_cast<uint4 *>(a.dk.row(tile.b, a.T - 1, tile.hq) + at.thread * 8) = make_uint4(0, 0, 0, 0);
}

// dq, dk and edge_x from the parts of value heads [B,H,chunks,64,K].
fwa_status chunk_add_parts(cudaStream_t stream, const chunk_task &task, const float *dq_parts, const float *dx_parts,
                           int K);

} // namespace fwa
#endif
