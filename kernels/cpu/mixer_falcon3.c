// Falcon-3: descriptor, and the Falcon rate with the largest eigenvalue on the window core.
#include "kernels/cpu/mixer_common.h"

#if FWA_REAL_BITS == 64
static const fwa_rule_limit limits[] = {
    {.condition = "window = 1 and the same detach_scale", .equals = "falcon1", .window = 1, .detach_scale = 0},
    {.condition = "window = 1 and the same detach_scale", .equals = "falcon1", .window = 1, .detach_scale = 1},
    {0},
};

const fwa_rule fwa_rule_falcon3 = {
    .name = "falcon3",
    .title = "gradient step on the mean squared residual of the last B pairs, with a step per head",
    .equations = "(4.14), (4.16), (4.20)",
    .core = FWA_CORE_WINDOW,
    .state = FWA_STATE_MATRIX,
    .inputs = FWA_INPUT_BETA | FWA_INPUT_LAMBDA,
    .switches = FWA_SWITCH_SHIFT | FWA_SWITCH_READ | FWA_SWITCH_STEP | FWA_SWITCH_RIDGE | FWA_SWITCH_WINDOW |
                FWA_SWITCH_PHI | FWA_SWITCH_QK_NORM | FWA_SWITCH_CONV | FWA_SWITCH_GATE,
    .forms = FWA_FORM_RECURRENT | FWA_FORM_PARALLEL | FWA_FORM_CHUNK,
    .default_window = 4,
    .default_detach_scale = true,
    .default_beta_range = 2,
    .limits = limits,
};
#endif

FWA_MIXER_CPU(falcon3, fwa_core_window, fwa_rate_falcon_top, false)
