// Falcon-3A: descriptor, and the Falcon rate on the additive core with a window of pairs.
#include "kernels/cpu/mixer_common.h"

#if FWA_REAL_BITS == 64
static const fwa_rule_limit limits[] = {
    {.condition = "window = 1 and the same detach_scale", .equals = "falcon1a", .window = 1, .detach_scale = 0},
    {.condition = "window = 1 and the same detach_scale", .equals = "falcon1a", .window = 1, .detach_scale = 1},
    {.condition = "window = 1, ridge none, step direct, beta = 1, shift same_step",
     .equals = "linear_attention",
     .window = 1,
     .detach_scale = -1,
     .moves = FWA_LIMIT_DIRECT | FWA_LIMIT_NO_RIDGE | FWA_LIMIT_SAME_STEP,
     .fixed = FWA_INPUT_BETA,
     .value = 1},
    {.condition = "window = 1, ridge none, step direct, beta = 1, shift next_latent",
     .equals = "linear_attention",
     .window = 1,
     .detach_scale = -1,
     .moves = FWA_LIMIT_DIRECT | FWA_LIMIT_NO_RIDGE | FWA_LIMIT_NEXT_LATENT,
     .fixed = FWA_INPUT_BETA,
     .value = 1},
    {.condition = "window = 1, ridge none, step direct, beta = 1, a normalised read",
     .equals = "linear_attention",
     .window = 1,
     .detach_scale = -1,
     .moves = FWA_LIMIT_DIRECT | FWA_LIMIT_NO_RIDGE | FWA_LIMIT_SAME_STEP | FWA_LIMIT_NORMALIZED_READ,
     .fixed = FWA_INPUT_BETA,
     .value = 1},
    {0},
};

const fwa_rule fwa_rule_falcon3a = {
    .name = "falcon3a",
    .title = "gradient step on the inner products of the last B pairs, with a step per head",
    .equations = "(4.18), (4.19), (4.16), (4.20), (D.1)",
    .core = FWA_CORE_ADDITIVE,
    .state = FWA_STATE_MATRIX,
    .inputs = FWA_INPUT_BETA | FWA_INPUT_LAMBDA,
    .switches = FWA_SWITCH_SHIFT | FWA_SWITCH_READ | FWA_SWITCH_STEP | FWA_SWITCH_RIDGE | FWA_SWITCH_WINDOW |
                FWA_SWITCH_NORMALIZED_READ | FWA_SWITCH_PHI | FWA_SWITCH_QK_NORM | FWA_SWITCH_CONV | FWA_SWITCH_GATE,
    .forms = FWA_FORM_RECURRENT | FWA_FORM_PARALLEL | FWA_FORM_CHUNK,
    .default_window = 4,
    .default_detach_scale = true,
    .default_beta_range = 2,
    .limits = limits,
};
#endif

FWA_MIXER_CPU(falcon3a, fwa_core_additive, fwa_rate_falcon, false)
