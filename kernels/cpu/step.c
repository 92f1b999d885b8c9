// The end of a step: mean loss, gradient norm, gradient scale, and whether the step may change anything.
//
// The norm is compared with its running mean over accepted steps; skipped steps leave that mean as it is, so neither a
// NaN nor a spike ever enters it.
#include <math.h>

#include "kernels/cpu/ops_cpu.h"
#include "kernels/cpu/real.h"

static bool must_skip(const fwa_step_state *state, const fwa_step_options *options) {
    if (!(state->valid > 0) || !isfinite(state->loss) || !isfinite(state->grad_norm)) return true;
    bool guarded = options->spike_factor > 0 && state->accepted >= options->guard_window;
    return guarded && !(state->grad_norm <= options->spike_factor * state->norm_mean);
}

fwa_status FWA_T(fwa_step_finish_cpu)(fwa_stream *stream, fwa_step_state *state, const fwa_step_options *options) {
    (void)stream;
    state->loss = state->loss_sum / state->valid;
    state->grad_norm = sqrt(state->grad_square) / state->valid;
    state->skip = must_skip(state, options);
    if (state->skip) {
        state->grad_scale = 0;
        state->skipped++;
        state->skipped_in_a_row++;
        return FWA_OK;
    }
    bool clipped = options->clip > 0 && state->grad_norm > options->clip;
    state->grad_scale = (clipped ? options->clip / state->grad_norm : 1) / state->valid;
    state->accepted++;
    state->skipped_in_a_row = 0;
    int64_t window = options->guard_window < state->accepted ? options->guard_window : state->accepted;
    state->norm_mean += (state->grad_norm - state->norm_mean) / (double)(window < 1 ? 1 : window);
    return FWA_OK;
}
