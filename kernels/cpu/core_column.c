// The column core: step and decay for every value column, additive (r = v) or delta (r the residual). Recurrent form:
// column_steps.c; chunk and parallel form: column_chunk.c.
#include "kernels/cpu/column_chunk.h"
#include "kernels/cpu/column_steps.h"

static int64_t column_saved(const fwa_core_task *task, bool delta) {
    return task->form == FWA_FORM_RECURRENT ? FWA_T(fwa_column_steps_saved)(task)
                                            : FWA_T(fwa_column_chunk_saved)(task, delta);
}

static size_t column_scratch(const fwa_core_task *task, bool delta, bool backward) {
    return task->form == FWA_FORM_RECURRENT ? FWA_T(fwa_column_steps_scratch)(task, backward)
                                            : FWA_T(fwa_column_chunk_scratch)(task, delta, backward);
}

static void column_forward(const fwa_core_task *task, bool delta) {
    if (task->form == FWA_FORM_RECURRENT)
        FWA_T(fwa_column_steps_forward)(task, delta);
    else
        FWA_T(fwa_column_chunk_forward)(task, delta);
}

static void column_backward(const fwa_core_task *task, const fwa_core_grads *grads, bool delta) {
    if (task->form == FWA_FORM_RECURRENT)
        FWA_T(fwa_column_steps_backward)(task, grads, delta);
    else
        FWA_T(fwa_column_chunk_backward)(task, grads, delta);
}

// fwa_core_impl `name` with delta fixed.
#define COLUMN_CORE(name, is_delta)                                                                                    \
    static int64_t name##_saved(const fwa_core_task *task) {                                                           \
        return column_saved(task, is_delta);                                                                           \
    }                                                                                                                  \
    static size_t name##_scratch(const fwa_core_task *task, bool backward) {                                           \
        return column_scratch(task, is_delta, backward);                                                               \
    }                                                                                                                  \
    static void name##_forward(const fwa_core_task *task) {                                                            \
        column_forward(task, is_delta);                                                                                \
    }                                                                                                                  \
    static void name##_backward(const fwa_core_task *task, const fwa_core_grads *grads) {                              \
        column_backward(task, grads, is_delta);                                                                        \
    }                                                                                                                  \
    const fwa_core_impl FWA_T(name) = {                                                                                \
        .core = FWA_CORE_COLUMN,                                                                                       \
        .saved = name##_saved,                                                                                         \
        .scratch = name##_scratch,                                                                                     \
        .forward = name##_forward,                                                                                     \
        .backward = name##_backward,                                                                                   \
    };

COLUMN_CORE(fwa_core_column_additive, false)
COLUMN_CORE(fwa_core_column_delta, true)
