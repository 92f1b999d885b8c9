// The bf16 chunk kernels of the window core (docs/kernels.md): falcon3. K, V in {64, 128}.
//
// W is 4 or 8, the window at most W pairs; a chunk is 64 - D steps behind a halo of D = W - 1 pairs, so that the tile
// of a chunk holds every pair whose coefficient its steps change. Members of a window are counted from the oldest:
// member m of step i is the pair of row i - D + m, and has weight 0 where the window is shorter.
#ifndef FWA_KERNELS_CUDA_CHUNK_WINDOW_CUH
#define FWA_KERNELS_CUDA_CHUNK_WINDOW_CUH

#include "kernels/cuda/chunk_delta.cuh"

namespace fwa {

struct window_task : chunk_task {
    int window;           // W
    float *seen;          // [B,H,chunks,64] log2 of the decay of what the residuals of a step see, as u
    float *gram;          // [B,Hq,chunks,64,W] x_i . x_{i-p}
    float *top;           // [B,Hq,chunks,64,W] member of the unit eigenvector of the window's largest eigenvalue
    __nv_bfloat16 *fresh; // [B,H,chunks,64,V] residual of every pair at its first step
    // [B,H,chunks,64,V,W] gradients of the coefficients of a step's members behind the step; the near kernel puts two
    // rows [V] in the place of each: the coefficient of the row's pair at its last step, and the gradient of its fresh
    // residual.
    __nv_bfloat16 *members;
    float *close;               // [B,H,chunks,window_close(W)]
    float *dq_parts, *dx_parts; // of value heads that share keys, [B,H,chunks,64,K]; null: each has its own
};

// Sums over V that a chunk's near pairs make, rows r, p back: gradient of x_r . x_{r-p} [64,W], of q_r . x_{r-p}
// [64,W] (p < D), of w_r [64], share of that of the decay of step r [64].
__host__ __device__ constexpr int window_close(int W) {
    return 64 * (2 * W + 2);
}

// u, w, seen, pairs, gram, top, the energies.
fwa_status chunk_window_rate(cudaStream_t stream, const window_task &task, const chunk_rate &rate,
                             const chunk_gates &to);
// Receives the call's state. Where there are several segments, the state before each, S_end and transitions.
fwa_status chunk_window_starts(cudaStream_t stream, const window_task &task, const fwa_mixer_call *call, int K, int V);
// o, and S_end where there is one segment; states and fresh where they are not null.
fwa_status chunk_window_forward(cudaStream_t stream, const window_task &task, int K, int V);
// Receives the gradient of the call's state. Where there are several segments, that behind each, and dS0.
fwa_status chunk_window_ends(cudaStream_t stream, const window_task &task, const fwa_mixer_call *call, int K, int V);
// dv, edge_v, `d_states` and members, and dS0 where there is one segment.
fwa_status chunk_window_scan(cudaStream_t stream, const window_task &task, int K, int V);
// close and what takes the place of members, from fresh and members.
fwa_status chunk_window_near(cudaStream_t stream, const window_task &task, int V);
// dq, dk, edge_x and the gradients of scalars, from states, members, close and `d_states`.
fwa_status chunk_window_grads(cudaStream_t stream, const window_task &task, const chunk_rate &rate);

} // namespace fwa
#endif
