// Falcon-1A: descriptor, and the Falcon rate on the additive core.
#include "kernels/cpu/mixer_common.h"

#if FWA_REAL_BITS == 64
static const fwa_rule_limit limits[] = {
    {.condition = "ridge none, step direct, beta = 1, shift same_step",
     .equals = "linear_attention",
     .detach_scale = -1,
     .moves = FWA_LIMIT_DIRECT | FWA_LIMIT_NO_RIDGE | FWA_LIMIT_SAME_STEP,
     .fixed = FWA_INPUT_BETA,
     .value = 1},
    {.condition = "ridge none, step direct, beta = 1, shift next_latent",
     .equals = "linear_attention",
     .detach_scale = -1,
     .moves = FWA_LIMIT_DIRECT | FWA_LIMIT_NO_RIDGE | FWA_LIMIT_NEXT_LATENT,
     .fixed = FWA_INPUT_BETA,
     .value = 1},
    {.condition = "ridge none, step direct, beta = 1, a normalised read",
     .equals = "linear_attention",
     .detach_scale = -1,
     .moves = FWA_LIMIT_DIRECT | FWA_LIMIT_NO_RIDGE | FWA_LIMIT_SAME_STEP | FWA_LIMIT_NORMALIZED_READ,
     .fixed = FWA_INPUT_BETA,
     .value = 1},
    {0},
};

const fwa_rule fwa_rule_falcon1a = {
    .name = "falcon1a",
    .title = "gradient step on the inner product of the last pair, with a step per head",
    .equations = "(4.6), (4.8), (4.16), (4.20)",
    .core = FWA_CORE_ADDITIVE,
    .state = FWA_STATE_MATRIX,
    .inputs = FWA_INPUT_BETA | FWA_INPUT_LAMBDA,
    .switches = FWA_SWITCH_SHIFT | FWA_SWITCH_READ | FWA_SWITCH_STEP | FWA_SWITCH_RIDGE | FWA_SWITCH_NORMALIZED_READ |
                FWA_SWITCH_PHI | FWA_SWITCH_QK_NORM | FWA_SWITCH_CONV | FWA_SWITCH_GATE,
    .forms = FWA_FORM_RECURRENT | FWA_FORM_PARALLEL | FWA_FORM_CHUNK,
    .default_window = 1,
    .default_beta_range = 2,
    .limits = limits,
};
#endif

FWA_MIXER_CPU(falcon1a, fwa_core_additive, fwa_rate_falcon, false)
