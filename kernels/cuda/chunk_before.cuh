// Reads before the write for chunk kernels, which read behind it: o_t = S_{t-1}^T q_t is what a query at step t - 1
// reads behind its write. So queries and gradients of o go a step forward into dense copies, o and dq come a step back,
// and the first step, which reads the state that comes in, is seen to here. A document's first step reads an empty
// state. For any core whose reads take no part in its writes.
#ifndef FWA_KERNELS_CUDA_CHUNK_BEFORE_CUH
#define FWA_KERNELS_CUDA_CHUNK_BEFORE_CUH

#include "kernels/cpu/bump.h"
#include "kernels/cuda/chunk.cuh"
#include "kernels/cuda/mixer_task.cuh"

namespace fwa {

// Dense [B,T,Hq,K] and [B,T,H,V]; row t is that of step t + 1.
struct moved_reads {
    __nv_bfloat16 *q, *o; // o: its gradient in the backward pass
    __nv_bfloat16 *dq;
};

// Takes memory where the read comes before the write, else nothing.
void plan_moved_reads(const mixer_task &a, bool backward, fwa_bump *scratch, moved_reads *to);
// q, and in the backward pass the gradient of o, into the copies, which the task has from now on. Nothing without them.
fwa_status move_reads(cudaStream_t stream, const mixer_task &a, const moved_reads &to, chunk_task *task);
// o, behind the forward kernels.
fwa_status return_reads(cudaStream_t stream, const mixer_task &a, const moved_reads &from);
// dq_0, and what the first step adds to the gradient of the incoming state, behind the kernel that writes it; then the
// other rows of dq, behind the kernels that write theirs.
fwa_status return_first_grads(cudaStream_t stream, const mixer_task &a, const moved_reads &from);
fwa_status return_read_grads(cudaStream_t stream, const mixer_task &a, const moved_reads &from);

} // namespace fwa
#endif
