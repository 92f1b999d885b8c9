// The recurrent form of the column core, step by step; also how one token is decoded.
#ifndef FWA_KERNELS_CPU_COLUMN_STEPS_H
#define FWA_KERNELS_CPU_COLUMN_STEPS_H

#include "kernels/cpu/core.h"

int64_t FWA_T(fwa_column_steps_saved)(const fwa_core_task *task);
size_t FWA_T(fwa_column_steps_scratch)(const fwa_core_task *task, bool backward);
// delta: what is written is the residual instead of v.
void FWA_T(fwa_column_steps_forward)(const fwa_core_task *task, bool delta);
void FWA_T(fwa_column_steps_backward)(const fwa_core_task *task, const fwa_core_grads *grads, bool delta);

#endif
