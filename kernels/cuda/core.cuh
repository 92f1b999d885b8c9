// What a core is on CUDA: the part of a rule that moves information between tokens (cpu/core.h has the equations). It
// works on the dense arrays of a task (mixer_task.cuh): reads qs, xs, vs, w, gamma, writes os and the state; backward
// reads d_os and adds to dvs, dxs (zero before), overwrites dqs, dw, dgamma.
#ifndef FWA_KERNELS_CUDA_CORE_CUH
#define FWA_KERNELS_CUDA_CORE_CUH

#include "kernels/cuda/mixer_task.cuh"

namespace fwa {

struct core {
    const char *kernel; // named in the log
    // Sets Kp, Vp, slices; FWA_UNSUPPORTED where the shape is beyond the kernel.
    fwa_status (*shape)(mixer_task *task);
    // Takes its own arrays out of `saved` and `scratch`.
    void (*plan)(mixer_task *task, fwa_bump *saved, fwa_bump *scratch, bool backward);
    fwa_status (*forward)(cudaStream_t stream, const mixer_task &task);
    fwa_status (*backward)(cudaStream_t stream, const mixer_task &task);
};

// General recurrent kernels (steps.cuh). core_delta and core_window are the same.
extern const core core_additive, core_delta, core_window, core_column_additive, core_column_delta;
extern const core core_attention; // core_attention.cu

} // namespace fwa
#endif
