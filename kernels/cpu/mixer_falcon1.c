// Falcon-1: descriptor, and the Falcon rate on the delta core.
#include "kernels/cpu/mixer_common.h"

#if FWA_REAL_BITS == 64
static const fwa_rule_limit limits[] = {
    {
        .condition = "ridge none, step direct, shift same_step",
        .equals = "deltanet",
        .detach_scale = -1,
        .moves = FWA_LIMIT_DIRECT | FWA_LIMIT_NO_RIDGE | FWA_LIMIT_SAME_STEP,
    },
    {0},
};

const fwa_rule fwa_rule_falcon1 = {
    .name = "falcon1",
    .title = "gradient step on the squared residual of the last pair, with a step per head",
    .equations = "(3.3), (3.4), (4.16), (4.20)",
    .core = FWA_CORE_DELTA,
    .state = FWA_STATE_MATRIX,
    .inputs = FWA_INPUT_BETA | FWA_INPUT_LAMBDA,
    .switches = FWA_SWITCH_SHIFT | FWA_SWITCH_READ | FWA_SWITCH_STEP | FWA_SWITCH_RIDGE | FWA_SWITCH_PHI |
                FWA_SWITCH_QK_NORM | FWA_SWITCH_CONV | FWA_SWITCH_GATE,
    .forms = FWA_FORM_RECURRENT | FWA_FORM_PARALLEL | FWA_FORM_CHUNK,
    .default_window = 1,
    .default_beta_range = 2,
    .limits = limits,
};
#endif

FWA_MIXER_CPU(falcon1, fwa_core_delta, fwa_rate_falcon, false)
