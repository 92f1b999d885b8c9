// Segments of the serial passes of the delta and the window core (docs/kernels.md): a pass over every segment alone
// finds what it makes of an empty state and, in columns of their own, its transition; joined, these give the state in
// front of each, and the pass itself runs on all segments at once.
#ifndef FWA_KERNELS_CUDA_CHUNK_SEGMENTS_CUH
#define FWA_KERNELS_CUDA_CHUNK_SEGMENTS_CUH

#include "kernels/cuda/chunk.cuh"

namespace fwa {

// What a launch goes through: the segments for what they give, or each from an empty state for what it leaves `alone`;
// with slices beyond V / 64 for transitions as well, whose columns are those of a state that begins as the identity and
// to which nothing is written.
struct serial_pass {
    int V, slices;
    bool alone;
};

// Where a block of a serial pass is: 64 columns from v on of a segment of a head. Columns from V on are transitions.
struct segment_place {
    int head, b, h, V, v, segment;
    __device__ segment_place(const chunk_task &a, const serial_pass &pass) {
        const int heads = a.B * a.H, block = static_cast<int>(blockIdx.x);
        V = pass.V, v = block % pass.slices * 64;
        head = block / pass.slices % heads, b = head / a.H, h = head % a.H;
        segment = block / pass.slices / heads;
    }
    __device__ int first_chunk(const chunk_task &a) const {
        return segment * a.length;
    }
    __device__ int end_chunk(const chunk_task &a) const {
        return min(first_chunk(a) + a.length, a.chunks);
    }
};

__device__ inline chunk_state transition_of(const chunk_task &a, int segment, int K) {
    const int64_t size = static_cast<int64_t>(K) * K, head = a.segments * size;
    return {a.transitions + segment * size, a.H * head, head, K};
}

// The warp's 16 columns of the state (or gradient) that the segment begins with; `outer` begins the sequence.
template <int K>
__device__ inline void enter_segment(float (&S)[K / 2], const chunk_task &a, const serial_pass &pass,
                                     const segment_place &at, const chunk_state &outer, int warp) {
    const bool inner = a.segments > 1 && !pass.alone;
    get_state<K>(S,
                 inner        ? segment_state(a, at.segment, K, at.V)
                 : pass.alone ? chunk_state{}
                              : outer,
                 at.b, at.h, at.v + warp * 16);
    if (at.v < at.V) return;
    const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
    for (int i = 0; i < K / 2; i++)
        if (i / 4 * 8 + t * 2 + i % 2 == at.v - at.V + warp * 16 + g + i % 4 / 2 * 8) S[i] = 1.0f;
}

// What it leaves, to segment `next`; `outer` ends the sequence, and belongs to the join where there are several.
template <int K>
__device__ inline void leave_segment(const float (&S)[K / 2], const chunk_task &a, const serial_pass &pass,
                                     const segment_place &at, const chunk_state &outer, int next, int warp) {
    const bool inside = next >= 0 && next < a.segments;
    if (at.v >= at.V)
        set_state<K>(S, transition_of(a, at.segment, K), at.b, at.h, at.v - at.V + warp * 16);
    else if (pass.alone && inside)
        set_state<K>(S, segment_state(a, next, K, at.V), at.b, at.h, at.v + warp * 16);
    else if (!inside && outer.data && (pass.alone || a.segments == 1))
        set_state<K>(S, outer, at.b, at.h, at.v + warp * 16);
}

// All of `starts`, and S_end (dS0) where it is not null, from what single segments made of nothing and left there, and
// S0 (dS_end).
fwa_status chunk_join_transitions(cudaStream_t stream, const chunk_task &task, bool backward, int K, int V);

} // namespace fwa
#endif
