// How a rule makes the write weight w_t and the decay gamma_t of every step out of its scalars, and how gradients go
// back: the CUDA side of cpu/rate.h. Scalars are computed in double, as on the CPU: 1 - alpha cancels where the decay
// is strong.
#ifndef FWA_KERNELS_CUDA_RATE_CUH
#define FWA_KERNELS_CUDA_RATE_CUH

#include "kernels/cuda/mixer_task.cuh"

namespace fwa {

enum class rate_kind {
    none,      // attention: no weights
    plain,     // beta and log_decay as they come (docs/math/README.md §7)
    falcon,    // energy, ridge, normalised step, clamp (docs/math/README.md §6)
    falcon_top // the same with the largest eigenvalue as the energy
};

// What a rate wants to know of the keys.
__host__ __device__ constexpr energy_kind energy_of(rate_kind rate) {
    if (rate == rate_kind::falcon) return energy_kind::mean;
    return rate == rate_kind::falcon_top ? energy_kind::top : energy_kind::none;
}

// Rates whose gates sum_gates sums up.
__host__ __device__ constexpr bool has_gates(rate_kind rate) {
    return rate == rate_kind::falcon || rate == rate_kind::falcon_top;
}

// Energies (energy.cu), then w and gamma.
fwa_status rate_forward(cudaStream_t stream, rate_kind kind, const mixer_task &task);
// From dw and dgamma to dbeta, dlambda, dlog_decay and `pulls`, the gradient of every step's energy.
fwa_status rate_backward(cudaStream_t stream, rate_kind kind, const mixer_task &task);

// What sums of gates need beside a task; in scratch.
struct gate_memory {
    float *band;
    fwa_gate_sums *parts;
};
// Lays out first, drop and the rest for a task that is described and has no other memory.
gate_memory plan_gates(mixer_task *task, fwa_bump *scratch);
// Adds to *sums of device memory what fwa_mixer.gates says.
fwa_status sum_gates(cudaStream_t stream, rate_kind kind, const mixer_task &task, const gate_memory &memory,
                     fwa_gate_sums *sums);

// Energies of all steps; z, the eigenvectors of the largest eigenvalues, where it is not null.
fwa_status energy_forward(cudaStream_t stream, const mixer_task &task);
// Bytes of task.jacobi: 0 where the matrices fit shared memory.
size_t energy_work(const mixer_task &task);

} // namespace fwa
#endif
