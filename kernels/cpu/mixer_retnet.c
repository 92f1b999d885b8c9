// RetNet, and Lightning Attention with its decays: descriptor, and a given decay on the additive core.
#include "kernels/cpu/mixer_common.h"

#if FWA_REAL_BITS == 64
static const fwa_rule_limit limits[] = {
    {.condition = "log_decay = 0",
     .equals = "linear_attention",
     .detach_scale = -1,
     .moves = FWA_LIMIT_SAME_STEP,
     .fixed = FWA_INPUT_LOG_DECAY},
    {.condition = "the same recurrence", .equals = "mamba2", .detach_scale = -1},
    {0},
};

const fwa_rule fwa_rule_retnet = {
    .name = "retnet",
    .title = "additive memory with a decay per head that the layer gives",
    .equations = "S = e^{log_decay} S + k v^T, o = S^T q",
    .core = FWA_CORE_ADDITIVE,
    .state = FWA_STATE_MATRIX,
    .inputs = FWA_INPUT_LOG_DECAY,
    .switches = FWA_SWITCH_READ | FWA_SWITCH_ROTARY | FWA_SWITCH_GATE | FWA_SWITCH_DECAY | FWA_SWITCH_QUERY_SCALE,
    .forms = FWA_FORM_RECURRENT | FWA_FORM_PARALLEL | FWA_FORM_CHUNK,
    .default_window = 1,
    .limits = limits,
};
#endif

FWA_MIXER_CPU(retnet, fwa_core_additive, fwa_rate_plain, false)
