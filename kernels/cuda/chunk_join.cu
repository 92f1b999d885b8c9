// S_{n+1} = diag(decay_n) S_n + own_n over the segments of a sequence (chunk_join.cuh), in fp32, in place. A thread an
// element of [B,H,K,V]; reads and writes every segment's state once.
#include "kernels/cuda/chunk_join.cuh"

#include "core/shape.h"
#include "kernels/cuda/mixer_task.cuh"

namespace {

using namespace fwa;

constexpr int join_threads = 256;

__global__ void __launch_bounds__(join_threads)
    join_segments_kernel(const __grid_constant__ chunk_task a, chunk_state first, int K, int V, bool columns,
                         bool forward) {
    const int64_t i = static_cast<int64_t>(blockIdx.x) * join_threads + threadIdx.x, head = i / (K * V);
    if (head >= static_cast<int64_t>(a.B) * a.H) return;
    const int at = static_cast<int>(i % (K * V)), width = columns ? V : 1;
    float *states = a.starts + head * a.segments * (K * V) + at;
    const float *decays = a.decays + head * a.segments * width + (columns ? at % V : 0);
    const int asked = asked_segments(a, forward);
    const chunk_state &end = leaving_state(a, forward);
    float carry = first.data ? first.at(head / a.H, head % a.H, at / V)[at % V] : 0.0f;
#pragma unroll 8
    for (int n = 0; n < a.segments; n++) {
        const int segment = forward ? n : a.segments - 1 - n;
        float *state = states + static_cast<int64_t>(segment) * (K * V);
        const float own = n < asked ? *state : 0.0f, decay = n < asked ? decays[segment * width] : 0.0f;
        *state = carry;
        carry = decay * carry + own;
    }
    if (end.data) end.at(head / a.H, head % a.H, at / V)[at % V] = carry;
}

} // namespace

namespace fwa {

fwa_status chunk_join_segments(cudaStream_t stream, const chunk_task &task, const chunk_state &first, bool forward,
                               int K, int V, bool columns) {
    const int64_t elements = static_cast<int64_t>(task.B) * task.H * K * V;
    FWA_LAUNCH(join_segments_kernel, static_cast<unsigned>(fwa_ceil_div(elements, join_threads)), join_threads, 0,
               stream, task, first, K, V, columns, forward);
    return FWA_OK;
}

} // namespace fwa
