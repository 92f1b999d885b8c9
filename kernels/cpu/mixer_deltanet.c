// DeltaNet: descriptor, and beta as the step on the delta core.
#include "kernels/cpu/mixer_common.h"

#if FWA_REAL_BITS == 64
const fwa_rule fwa_rule_deltanet = {
    .name = "deltanet",
    .title = "delta rule: the step beta moves the memory of a key towards its value",
    .equations = "S = (I - beta k k^T) S + beta k v^T, o = S^T q",
    .core = FWA_CORE_DELTA,
    .state = FWA_STATE_MATRIX,
    .inputs = FWA_INPUT_BETA,
    .switches = FWA_SWITCH_READ | FWA_SWITCH_QK_NORM | FWA_SWITCH_CONV | FWA_SWITCH_GATE,
    .forms = FWA_FORM_RECURRENT | FWA_FORM_PARALLEL | FWA_FORM_CHUNK,
    .default_window = 1,
    .default_qk_norm = FWA_NORM_L2,
    .default_beta_range = 1,
};
#endif

FWA_MIXER_CPU(deltanet, fwa_core_delta, fwa_rate_plain, false)
