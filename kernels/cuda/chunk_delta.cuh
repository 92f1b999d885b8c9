// The bf16 chunk kernels of the delta core (docs/kernels.md). K, V in {64, 128}; a chunk is 64 steps.
//
// Where bf16 is too coarse for an operand it goes as two bf16 matrices, x = high + low to 16 bits: three products
// instead of one. Those are the inverse T of a chunk's system and what it is applied to, and the masked reads P and R.
//
// Matrices that one kernel leaves for another are 8x8 blocks of 128 bytes in device memory: a warp writes a block out
// of its accumulators at once, and a row of a block is a piece that is copied into a tile without registers. S^T, dS'^T
// [V,K], R^T [V,64]: a row of blocks after another; of T the blocks on and below the diagonal.
#ifndef FWA_KERNELS_CUDA_CHUNK_DELTA_CUH
#define FWA_KERNELS_CUDA_CHUNK_DELTA_CUH

#include "kernels/cuda/chunk_rate.cuh"

namespace fwa {

// 8x8 blocks on and below the diagonal of T, a piece a row of one; 288 pieces high, then 288 low.
constexpr int inverse_pieces = 36 * 8;

struct delta_task : chunk_task {
    float *seen;                // [B,H,chunks,64] log2 of the decay of what the residual of a step sees, as u
    uint4 *inverse;             // [B,H,chunks,2,288]
    uint4 *residuals;           // R^T [B,H,chunks,V,64]; null: not kept
    float *dq_parts, *dx_parts; // of value heads that share keys, [B,H,chunks,64,K]; null: each has its own
};

// u, w, seen, the energies, and T.
fwa_status chunk_delta_solve(cudaStream_t stream, const delta_task &task, const chunk_rate &rate,
                             const chunk_gates &to);
// o and S_end; states and residuals where they are not null.
fwa_status chunk_delta_forward(cudaStream_t stream, const delta_task &task, int K, int V);
// dv, `grads` and dS0.
fwa_status chunk_delta_scan(cudaStream_t stream, const delta_task &task, int K, int V);
// dq, dk, edge_x and the gradients of scalars, from states, residuals, dv and `grads`.
fwa_status chunk_delta_grads(cudaStream_t stream, const delta_task &task, const chunk_rate &rate);

// Where piece p of T stands. Block rows r and 7 - r have nine blocks together.
struct inverse_place {
    int row, column;
    __device__ explicit inverse_place(int p) {
        const int pair = p / 72, j = p / 8 - pair * 9, lower = 8 - pair;
        row = (j < lower ? 7 - pair : pair) * 8 + p % 8;
        column = (j < lower ? j : j - lower) * 8;
    }
};

__device__ inline uint4 *inverse_at(const delta_task &a, int64_t head, int c) {
    return a.inverse + (head * a.chunks + c) * (2 * inverse_pieces);
}

// a and b in two parts.
__device__ inline void split_pair(uint32_t &high, uint32_t &low, float a, float b) {
    high = bf16_pair(a, b);
    low = bf16_pair(a - __uint_as_float(high << 16), b - __uint_as_float(high & 0xffff0000u));
}

// The 64 rows of a first operand out of accumulators, in two parts.
struct split_rows {
    uint32_t high[4][4], low[4][4];
    __device__ explicit split_rows(const float (&d)[32]) {
#pragma unroll
        for (int i = 0; i < 16; i++) split_pair(high[i / 4][i % 4], low[i / 4][i % 4], d[i * 2], d[i * 2 + 1]);
    }
};

} // namespace fwa
#endif
