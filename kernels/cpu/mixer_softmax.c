// Softmax attention: descriptor, and the attention core. Its state is the cache of all keys and values.
#include "kernels/cpu/mixer_common.h"

#if FWA_REAL_BITS == 64
const fwa_rule fwa_rule_softmax = {
    .name = "softmax",
    .title = "causal softmax attention over all earlier tokens",
    .equations = "o_t = sum_j softmax_j(q_t . k_j / sqrt(K)) v_j, j <= t",
    .core = FWA_CORE_ATTENTION,
    .state = FWA_STATE_CACHE,
    .switches = FWA_SWITCH_ROTARY,
    .forms = FWA_FORM_RECURRENT | FWA_FORM_PARALLEL | FWA_FORM_CHUNK,
    .default_window = 1,
    .qk_scale_power = -0.5,
};
#endif

FWA_MIXER_CPU(softmax, fwa_core_attention, fwa_rate_none, false)
