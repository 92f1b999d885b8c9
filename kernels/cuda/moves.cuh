// Moves between the tensors of a call and the dense arrays of a task (mixer_task.cuh); the CUDA side of cpu/head.c.
#ifndef FWA_KERNELS_CUDA_MOVES_CUH
#define FWA_KERNELS_CUDA_MOVES_CUH

#include "kernels/cuda/mixer_task.cuh"

namespace fwa {

// first, drop
fwa_status find_windows(cudaStream_t stream, const mixer_task &task);
// These, xs and, where it is not null, qs
fwa_status gather_keys(cudaStream_t stream, const mixer_task &task);
// All of these, and vs
fwa_status gather_inputs(cudaStream_t stream, const mixer_task &task);
// o, and the leaving k_last and tail; S and z leave through the core.
fwa_status scatter_outputs(cudaStream_t stream, const mixer_task &task);
// d_os, through the division of a normalised read
fwa_status gather_grads(cudaStream_t stream, const mixer_task &task);
// From dqs, dxs, dvs and the energy's gradient to dq, dk, dv and the gradients of incoming k_last and tail.
fwa_status scatter_grads(cudaStream_t stream, const mixer_task &task);

} // namespace fwa
#endif
