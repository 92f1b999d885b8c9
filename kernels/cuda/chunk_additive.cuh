// The bf16 chunk kernels of the additive core (docs/kernels.md). K, V in {64, 128}.
#ifndef FWA_KERNELS_CUDA_CHUNK_ADDITIVE_CUH
#define FWA_KERNELS_CUDA_CHUNK_ADDITIVE_CUH

#include "kernels/cuda/chunk_rate.cuh"

namespace fwa {

constexpr int forward_blocks = 3; // of the forward pass, a multiprocessor

// Receives the call's state. Where there are several segments, the state before each and S_end.
fwa_status chunk_additive_starts(cudaStream_t stream, const chunk_task &task, const fwa_mixer_call *call, int K, int V);
// o, and S_end where there is one segment; `states` where it is not null.
fwa_status chunk_additive_forward(cudaStream_t stream, const chunk_task &task, int K, int V);
// Receives the gradient of the call's state. Where there are several segments, that behind each, in `starts`, and dS0.
fwa_status chunk_additive_ends(cudaStream_t stream, const chunk_task &task, const fwa_mixer_call *call, int K, int V);
// `d_states`, and dS0 where there is one segment.
fwa_status chunk_additive_scan(cudaStream_t stream, const chunk_task &task, int K, int V);
// Both passes where value heads share query/key heads, three slices of 64 columns a block; which calls they take.
bool chunk_additive_grouped(const chunk_task &task, int V);
fwa_status chunk_additive_forward_groups(cudaStream_t stream, const chunk_task &task, int K, int V);
fwa_status chunk_additive_scan_groups(cudaStream_t stream, const chunk_task &task, int K, int V); // not without d_o
// dq, dk, dv, edge_x, edge_v and the gradients of scalars, from `states` and `d_states`.
fwa_status chunk_additive_grads(cudaStream_t stream, const chunk_task &task, const chunk_rate &rate);
// The same where value heads share query/key heads.
fwa_status chunk_additive_shared_grads(cudaStream_t stream, const chunk_task &task, const chunk_rate &rate);

} // namespace fwa
#endif
