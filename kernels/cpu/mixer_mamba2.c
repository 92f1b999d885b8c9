// Mamba-2 (SSD): descriptor, and a given decay on the additive core. q is C, k is B, v is dt x, log_decay is
// -exp(A_log) dt.
#include "kernels/cpu/mixer_common.h"

#if FWA_REAL_BITS == 64
static const fwa_rule_limit limits[] = {
    {.condition = "log_decay = 0",
     .equals = "linear_attention",
     .detach_scale = -1,
     .moves = FWA_LIMIT_SAME_STEP,
     .fixed = FWA_INPUT_LOG_DECAY},
    {0},
};

const fwa_rule fwa_rule_mamba2 = {
    .name = "mamba2",
    .title = "additive memory with a decay per token and head; q and k shared by all heads",
    .equations = "S = e^{log_decay} S + k v^T, o = S^T q; q = C, k = B, v = dt x",
    .core = FWA_CORE_ADDITIVE,
    .state = FWA_STATE_MATRIX,
    .inputs = FWA_INPUT_LOG_DECAY,
    .switches = FWA_SWITCH_READ | FWA_SWITCH_CONV | FWA_SWITCH_GATE | FWA_SWITCH_STATE_SPACE,
    .forms = FWA_FORM_RECURRENT | FWA_FORM_PARALLEL | FWA_FORM_CHUNK,
    .default_window = 1,
    .limits = limits,
};
#endif

FWA_MIXER_CPU(mamba2, fwa_core_additive, fwa_rate_plain, false)
