// Falcon-1A: descriptor, and the Falcon rate on the additive core.
#include "kernels/cpu/mixer_common.h"

#if FWA_REAL_BITS == 64
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
};
#endif

FWA_MIXER_CPU(falcon1a, fwa_core_additive, fwa_rate_falcon, false)
