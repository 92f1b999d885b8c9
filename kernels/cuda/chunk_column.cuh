// The bf16 chunk kernels of the column core (docs/kernels.md). K, V in {64, 128}; a chunk is 64 steps.
//
// Every column of V has its own steps and decays, and a mask of its own for each is too much. A column's decays are
// therefore taken apart at references: with u the running log of its decay and m_b its value in the middle of a few
// steps b,
//
//   e^{u_i - u_s} = e^{u_i - m_b} e^{m_b - m_a} e^{m_a - u_s}         i in b, s in a
//
// so that products of matrices are left between. The middle factor is <= 1; the outer ones span half of b and a alone,
// at most eight steps with decays of at least `least_decay`, and stay far inside the range of bf16 and fp32.
#ifndef FWA_KERNELS_CUDA_CHUNK_COLUMN_CUH
#define FWA_KERNELS_CUDA_CHUNK_COLUMN_CUH

#include "kernels/cuda/chunk_rate.cuh"

namespace fwa {

constexpr double least_decay = 1e-3; // eps_gamma that the references allow

// fp32 tensor [B,T,H,V] with dense, 16-byte aligned rows; absent: null.
struct column_view {
    float *data;
    int64_t batch, time, head;
    __device__ float *row(int64_t b, int64_t t, int64_t h) const {
        return data + b * batch + t * time + h * head;
    }
};

struct column_task : chunk_task {
    column_view beta, dbeta;
    // [B,H,chunks,64]: 1 / (E + lambda + eps), 0 for a step that writes nothing; lambda; how many documents have
    // started in the chunk up to and with the step; E.
    float4 *tokens;
    bool documents;             // some may start inside
    float most, least;          // eta_max, infinite where it is off; eps_gamma
    chunk_view r;               // residuals [B,T,H,V], of falcon2
    float2 *sums;               // [B,H,V/64,chunks,64] gradients of lambda and the denominator, summed over 64 columns
    float *dq_parts, *dx_parts; // of value heads that share keys, [B,H,chunks,64,K]; null: each has its own
};

// tokens, from keys and scalars.
fwa_status chunk_column_rate(cudaStream_t stream, const column_task &task, const chunk_rate &rate);
// o, and S_end where there is one segment; `states` and r where they are not null. delta: falcon2.
fwa_status chunk_column_forward(cudaStream_t stream, const column_task &task, int K, int V, bool delta);
// Receives the incoming states; where there are several segments, finds the state before each and S_end.
fwa_status chunk_column_starts(cudaStream_t stream, const column_task &task, const fwa_mixer_call *call, int K, int V);
// The same of gradients: that behind each, and dS0.
fwa_status chunk_column_ends(cudaStream_t stream, const column_task &task, const fwa_mixer_call *call, int K, int V);
// falcon2a: `d_states`, and dS0 where there is one segment.
fwa_status chunk_column_carry(cudaStream_t stream, const column_task &task, int K, int V);
// falcon2: `d_states`, dv and dS0.
fwa_status chunk_column_scan(cudaStream_t stream, const column_task &task, int K, int V);
// dbeta and `sums`; dv where not delta.
fwa_status chunk_column_gates(cudaStream_t stream, const column_task &task, int K, int V, bool delta);
// dq, dk, edge_x, dlambda.
fwa_status chunk_column_grads(cudaStream_t stream, const column_task &task, const chunk_rate &rate, bool delta);

__device__ inline float log2_of(float x) {
    float y;
    asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// A step of one column: eta, and its decay.
struct column_step {
    float eta, gamma;
    bool cut, clamped; // eta by eta_max, the decay by eps_gamma
};
__device__ inline column_step step_of(const column_task &a, float inverse, float lambda, float beta) {
    column_step s;
    const float eta = beta * inverse;
    s.cut = eta > a.most;
    s.eta = fminf(eta, a.most);
    const float alpha = s.eta * lambda;
    s.clamped = alpha >= 1.0f - a.least;
    s.gamma = fmaxf(1.0f - alpha, a.least);
    return s;
}

__device__ inline const float4 *tokens_at(const column_task &a, int64_t head, int c) {
    return a.tokens + (head * a.chunks + c) * 64;
}

} // namespace fwa
#endif
