// What stands at the ends of a sequence and between chunks with a window: keys and pairs that come with a state, those
// that leave with it, and their gradients. Small beside the kernels they serve.
#ifndef FWA_KERNELS_CUDA_CHUNK_EDGES_CUH
#define FWA_KERNELS_CUDA_CHUNK_EDGES_CUH

#include "kernels/cuda/chunk.cuh"
#include "kernels/cuda/mixer_task.cuh"

namespace fwa {

// first_x and first_v (chunk.cuh) from the incoming key and tail.
fwa_status chunk_first_pairs(cudaStream_t stream, const mixer_task &a, const chunk_task &task);
// The leaving key and tail.
fwa_status chunk_last_pairs(cudaStream_t stream, const mixer_task &a, const chunk_task &task);
// dk and dv of the rows that two chunks share.
fwa_status chunk_join_rows(cudaStream_t stream, const mixer_task &a, const chunk_task &task);
// Gradients of the incoming key and tail; adds those of the leaving ones to dk and dv.
fwa_status chunk_state_grads(cudaStream_t stream, const mixer_task &a, const chunk_task &task);

} // namespace fwa
#endif
