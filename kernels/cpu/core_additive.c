// The additive core: S_t = gamma_t S_{t-1} + w_t sum_{j in I_t} x_j v_j^T. No unknowns inside a chunk. Recurrent form:
// steps.c; chunk and parallel form: chunk.c.
#include "kernels/cpu/chunk.h"
#include "kernels/cpu/steps.h"

static int64_t additive_saved(const fwa_core_task *task) {
    return task->form == FWA_FORM_RECURRENT ? FWA_T(fwa_steps_saved)(task) : FWA_T(fwa_chunk_saved)(task, NULL);
}

static size_t additive_scratch(const fwa_core_task *task, bool backward) {
    return task->form == FWA_FORM_RECURRENT ? FWA_T(fwa_steps_scratch)(task, backward)
                                            : FWA_T(fwa_chunk_scratch)(task, NULL, backward);
}

static void additive_forward(const fwa_core_task *task) {
    if (task->form == FWA_FORM_RECURRENT)
        FWA_T(fwa_steps_forward)(task, false);
    else
        FWA_T(fwa_chunk_forward)(task, NULL);
}

static void additive_backward(const fwa_core_task *task, const fwa_core_grads *grads) {
    if (task->form == FWA_FORM_RECURRENT)
        FWA_T(fwa_steps_backward)(task, grads, false);
    else
        FWA_T(fwa_chunk_backward)(task, grads, NULL);
}

const fwa_core_impl FWA_T(fwa_core_additive) = {
    .core = FWA_CORE_ADDITIVE,
    .rounds = true,
    .saved = additive_saved,
    .scratch = additive_scratch,
    .forward = additive_forward,
    .backward = additive_backward,
};
