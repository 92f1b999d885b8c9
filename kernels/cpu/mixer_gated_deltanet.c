// Gated DeltaNet: descriptor, and beta as the step on the delta core, after a given decay.
#include "kernels/cpu/mixer_common.h"

#if FWA_REAL_BITS == 64
static const fwa_rule_limit limits[] = {
    {.condition = "log_decay = 0", .equals = "deltanet", .detach_scale = -1, .fixed = FWA_INPUT_LOG_DECAY},
    {0},
};

const fwa_rule fwa_rule_gated_deltanet = {
    .name = "gated_deltanet",
    .title = "delta rule on a memory that first decays per token and head",
    .equations = "S = e^{log_decay} (I - beta k k^T) S + beta k v^T, o = S^T q",
    .core = FWA_CORE_DELTA,
    .state = FWA_STATE_MATRIX,
    .inputs = FWA_INPUT_BETA | FWA_INPUT_LOG_DECAY,
    .switches = FWA_SWITCH_READ | FWA_SWITCH_QK_NORM | FWA_SWITCH_CONV | FWA_SWITCH_GATE,
    .forms = FWA_FORM_RECURRENT | FWA_FORM_PARALLEL | FWA_FORM_CHUNK,
    .default_window = 1,
    .default_qk_norm = FWA_NORM_L2,
    .default_beta_range = 1,
    .limits = limits,
};
#endif

FWA_MIXER_CPU(gated_deltanet, fwa_core_delta, fwa_rate_plain, true)
