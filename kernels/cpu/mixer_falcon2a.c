// Falcon-2A: descriptor, and the Falcon rate on the additive form of the column core.
#include "kernels/cpu/mixer_common.h"

#if FWA_REAL_BITS == 64
static const fwa_rule_limit limits[] = {
    {.condition = "one beta for all value channels", .equals = "falcon1a", .detach_scale = -1},
    {0},
};

const fwa_rule fwa_rule_falcon2a = {
    .name = "falcon2a",
    .title = "gradient step on the inner product of the last pair, with a step per value channel",
    .equations = "(4.7), (4.9), (4.16), (4.20)",
    .core = FWA_CORE_COLUMN,
    .state = FWA_STATE_MATRIX,
    .inputs = FWA_INPUT_BETA_CHANNEL | FWA_INPUT_LAMBDA,
    .switches = FWA_SWITCH_SHIFT | FWA_SWITCH_READ | FWA_SWITCH_STEP | FWA_SWITCH_RIDGE | FWA_SWITCH_PHI |
                FWA_SWITCH_QK_NORM | FWA_SWITCH_CONV | FWA_SWITCH_GATE,
    .forms = FWA_FORM_RECURRENT | FWA_FORM_PARALLEL | FWA_FORM_CHUNK,
    .default_window = 1,
    .default_beta_range = 2,
    .limits = limits,
};
#endif

FWA_MIXER_CPU(falcon2a, fwa_core_column_additive, fwa_rate_falcon, false)
