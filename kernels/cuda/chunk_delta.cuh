// The bf16 chunk kernels of the delta core (docs/kernels.md). K, V in {64, 128}; a chunk is 64 steps.
//
// Where bf16 is too coarse for an operand it goes as two bf16 matrices, x = high + low to 16 bits: three products
// instead of one. Those are the inverse T of a chunk's system and what it is applied to, and the masked reads P and R.
//
// Matrices that one kernel leaves for another are 8x8 blocks of 128 bytes in device memory: a warp writes a block out
// of its accumulators at once, and a row of a block is a piece that is copied into a tile without registers. S^T, dS'^T
// [V,K], R^T [V,64]: a row of blocks after another; T: see inverse_block.
#ifndef FWA_KERNELS_CUDA_CHUNK_DELTA_CUH
#define FWA_KERNELS_CUDA_CHUNK_DELTA_CUH

#include "kernels/cuda/chunk_rate.cuh"

namespace fwa {

constexpr int inverse_pieces = 20 * 32; // of a chunk: ten blocks of 16x16 in two parts

// What the kernels need of the gates of a chunk, u, w and seen as in chunk.cuh and docs/kernels.md. The decay between
// rows of different blocks of 16 is near_i far_bs, b being the block of i: no exponent is above 0.
struct mask_gates {
    float u[64], w[64];
    float near[64], far[3][64]; // e^{u_i - u'}, w_s e^{u' - u_s} with u' in front of block 1, 2, 3
};
struct state_gates {
    float history[64], sight[64], leave[64]; // e^{u_i}; of what a residual sees; w_s e^{u_C - u_s}
};
struct delta_gates : mask_gates, state_gates {
    float seen[64];
};
static_assert(sizeof(delta_gates) == sizeof(mask_gates) + sizeof(state_gates) + 256, "one behind the other");

struct delta_task : chunk_task {
    delta_gates *gates;         // [B,H,chunks]
    uint4 *inverse;             // [B,H,chunks,inverse_pieces]
    uint4 *residuals;           // R^T [B,H,chunks,V,64]; null: not kept
    float *dq_parts, *dx_parts; // of value heads that share keys, [B,H,chunks,64,K]; null: each has its own
};

// Gates, energies, and T.
fwa_status chunk_delta_solve(cudaStream_t stream, const delta_task &task, const chunk_rate &rate);
// Receives the call's state. Where there are several segments, the state before each, S_end and transitions.
fwa_status chunk_delta_starts(cudaStream_t stream, const delta_task &task, const fwa_mixer_call *call, int K, int V);
// o, and S_end where there is one segment; states and residuals where they are not null.
fwa_status chunk_delta_forward(cudaStream_t stream, const delta_task &task, int K, int V);
// A pass forward by blocks of three slices of V (chunk_delta_groups.cu), K = V = 128: whether there are enough of them
// to fill the GPU, and the pass, through whole segments or each `alone`.
bool chunk_delta_grouped(const delta_task &task, int K, int V, int slices);
fwa_status chunk_delta_forward_groups(cudaStream_t stream, const delta_task &task, int slices, bool alone);
// Receives the gradient of the call's state. Where there are several segments, that behind each, and dS0.
fwa_status chunk_delta_ends(cudaStream_t stream, const delta_task &task, const fwa_mixer_call *call, int K, int V);
// dv and `d_states`, and dS0 where there is one segment.
fwa_status chunk_delta_scan(cudaStream_t stream, const delta_task &task, int K, int V);
// dq, dk, edge_x and the gradients of scalars, from states, residuals, dv and `d_states`.
fwa_status chunk_delta_grads(cudaStream_t stream, const delta_task &task, const chunk_rate &rate);

// The place of a 16x16 block of T: rows of blocks 3, then 2 and 0, then 1, each in two parts, so that a warp always has
// a block of its own.
__device__ inline int inverse_block(int row, int column, int part) {
    if (row == 3) return part * 4 + column;
    if (row == 1) return 16 + part * 2 + column;
    return 8 + part * 4 + (row == 2 ? column : 3);
}
// Block 4 n + warp of these, n in 0 .. 4.
struct inverse_place {
    int row, column, part;
    __device__ inverse_place(int n, int warp) {
        if (n < 4) {
            const bool first = n >= 2 && warp == 3;
            row = n < 2 ? 3 : first ? 0 : 2, column = first ? 0 : warp, part = n % 2;
        } else {
            row = 1, column = warp % 2, part = warp / 2;
        }
    }
};

__device__ inline int64_t tile_index(const delta_task &a, int64_t head, int c) {
    return head * a.chunks + c;
}
__device__ inline uint4 *inverse_at(const delta_task &a, int64_t head, int c) {
    return a.inverse + tile_index(a, head, c) * inverse_pieces;
}

// a and b in two parts.
__device__ inline void split_pair(uint32_t &high, uint32_t &low, float a, float b) {
    high = bf16_pair(a, b);
    low = bf16_pair(a - __uint_as_float(high << 16), b - __uint_as_float(high & 0xffff0000u));
}

// A first operand out of accumulators, in two parts.
template <int n> struct split_rows {
    uint32_t high[n / 8][4], low[n / 8][4];
    split_rows() = default;
    __device__ explicit split_rows(const float (&d)[n]) {
#pragma unroll
        for (int i = 0; i < n / 2; i++) split_pair(high[i / 4][i % 4], low[i / 4][i % 4], d[i * 2], d[i * 2 + 1]);
    }
};

// The numbers of a pair of bf16.
struct pair_halves {
    __device__ static float low(uint32_t pair) {
        return __uint_as_float(pair << 16);
    }
    __device__ static float high(uint32_t pair) {
        return __uint_as_float(pair & 0xffff0000u);
    }
};

// What leaves of R: columns times `by`, rounded once. halves: pair_halves, or others for the same numbers.
template <typename halves>
__device__ inline void leaving_rows(uint32_t (&to)[4][4], const split_rows<32> &R, const float *by) {
    const int t = static_cast<int>(threadIdx.x) % 4;
#pragma unroll
    for (int i = 0; i < 16; i++) {
        const float2 f = *reinterpret_cast<const float2 *>(by + i / 2 * 8 + t * 2);
        const uint32_t high = R.high[i / 4][i % 4], low = R.low[i / 4][i % 4];
        to[i / 4][i % 4] =
            bf16_pair((halves::low(high) + halves::low(low)) * f.x, (halves::high(high) + halves::high(low)) * f.y);
    }
}

} // namespace fwa
#endif
