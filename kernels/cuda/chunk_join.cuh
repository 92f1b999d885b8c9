// The loop over segments of a sequence (chunk_split.cuh) for cores whose decays are numbers.
#ifndef FWA_KERNELS_CUDA_CHUNK_JOIN_CUH
#define FWA_KERNELS_CUDA_CHUNK_JOIN_CUH

#include "kernels/cuda/chunk.cuh"

namespace fwa {

// Turns what each segment makes of an empty state, in `starts`, into the state before it (gradient: behind it), from
// `first` on, and into S_end (dS0) where it is not null. decays: a number a segment, or, where `columns`, one a column
// of V.
fwa_status chunk_join_segments(cudaStream_t stream, const chunk_task &task, const chunk_state &first, bool forward,
                               int K, int V, bool columns);

} // namespace fwa
#endif
