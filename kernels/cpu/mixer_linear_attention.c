// Linear attention: descriptor, and a step of 1 on the additive core.
#include "kernels/cpu/mixer_common.h"

#if FWA_REAL_BITS == 64
const fwa_rule fwa_rule_linear_attention = {
    .name = "linear_attention",
    .title = "additive memory of keys and values, with nothing ever forgotten",
    .equations = "S += k v^T, o = S^T q; normalised: z += k, o / (z^T q + eps_attn)",
    .core = FWA_CORE_ADDITIVE,
    .state = FWA_STATE_MATRIX,
    .switches = FWA_SWITCH_SHIFT | FWA_SWITCH_READ | FWA_SWITCH_NORMALIZED_READ | FWA_SWITCH_PHI | FWA_SWITCH_QK_NORM |
                FWA_SWITCH_CONV | FWA_SWITCH_GATE,
    .forms = FWA_FORM_RECURRENT | FWA_FORM_PARALLEL | FWA_FORM_CHUNK,
    .default_shift = FWA_SHIFT_SAME_STEP,
    .default_window = 1,
    .default_qk_norm = FWA_NORM_L2,
};
#endif

FWA_MIXER_CPU(linear_attention, fwa_core_additive, fwa_rate_plain, false)
