// The recurrent form of cores with matrix state (additive, delta, window), step by step; also how one token is decoded.
#ifndef FWA_KERNELS_CPU_STEPS_H
#define FWA_KERNELS_CPU_STEPS_H

#include "kernels/cpu/core.h"

int64_t FWA_T(fwa_steps_saved)(const fwa_core_task *task);
size_t FWA_T(fwa_steps_scratch)(const fwa_core_task *task, bool backward);
// delta: what is written is the residual of each pair of the window instead of its v.
void FWA_T(fwa_steps_forward)(const fwa_core_task *task, bool delta);
void FWA_T(fwa_steps_backward)(const fwa_core_task *task, const fwa_core_grads *grads, bool delta);

// Of o_t = S^T q_t: dq_t += S d_o_t, dS += q_t d_o_t^T; S [K,V] is the state that was read.
void FWA_T(fwa_steps_read_backward)(const fwa_core_task *task, const fwa_core_grads *grads, int64_t t, const real *S);

#endif
