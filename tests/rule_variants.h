// The option sets under which tests try a rule: its defaults, and every switch that it understands moved. Tests ask the
// descriptor, never the name, so a new rule is tried with no new code.
#ifndef FWA_TESTS_RULE_VARIANTS_H
#define FWA_TESTS_RULE_VARIANTS_H

#include "mixer_case.h"

enum { VARIANTS_MOST = 24 };

static inline int rule_variants(const fwa_rule *rule, fwa_mixer_options list[VARIANTS_MOST]) {
    const fwa_mixer_options base = fwa_mixer_options_default(rule);
    int count = 0;
#define VARIANT(...)                                                                                                   \
    do {                                                                                                               \
        fwa_mixer_options *o = &list[count++];                                                                         \
        *o = base;                                                                                                     \
        __VA_ARGS__;                                                                                                   \
    } while (0)
    VARIANT((void)o);
    if (rule->switches & FWA_SWITCH_SHIFT) VARIANT(o->shift = FWA_SHIFT_SAME_STEP);
    if (rule->switches & FWA_SWITCH_READ) {
        VARIANT(o->read = FWA_READ_BEFORE_WRITE);
        VARIANT(o->read = FWA_READ_BEFORE_WRITE; o->shift = FWA_SHIFT_SAME_STEP);
    }
    if (rule->switches & FWA_SWITCH_STEP) {
        VARIANT(o->step = FWA_STEP_DIRECT; o->eta_max = 0.9);
        VARIANT(o->eta_max = 0);
        VARIANT(o->eta_max = 0.2);
        VARIANT(o->eps = 0);
    }
    if (rule->switches & FWA_SWITCH_RIDGE) {
        VARIANT(o->ridge = FWA_RIDGE_UNCOUPLED);
        VARIANT(o->ridge = FWA_RIDGE_UNCOUPLED; o->step = FWA_STEP_DIRECT; o->eta_max = 0.5);
        VARIANT(o->ridge = FWA_RIDGE_NONE);
        VARIANT(o->detach_scale = !base.detach_scale);
        VARIANT(o->eps_gamma = 0.6);
    }
    if (rule->switches & FWA_SWITCH_WINDOW) {
        VARIANT(o->window = 1);
        VARIANT(o->window = 7; o->detach_scale = !base.detach_scale);
        VARIANT(o->window = 300);
    }
    if (rule->switches & FWA_SWITCH_NORMALIZED_READ) VARIANT(o->normalized_read = true);
#undef VARIANT
    assert_true(count <= VARIANTS_MOST);
    return count;
}

// Runs `body` for every rule of the registry; `rule` is the descriptor.
#define EACH_RULE(rule)                                                                                                \
    for (int rule_index_ = 0; rule_index_ < fwa_rule_count(); rule_index_++)                                           \
        for (const fwa_rule *rule = fwa_rule_at(rule_index_); rule; rule = NULL)

// Runs the statement for every form of the rule, recurrent first.
#define EACH_FORM(rule, form)                                                                                          \
    for (fwa_form form = FWA_FORM_RECURRENT; form <= FWA_FORM_CHUNK; form = (fwa_form)(2 * (int)form))                 \
        if (!((rule)->forms & (unsigned)form))                                                                         \
            continue;                                                                                                  \
        else

// A segment that continues another: S and the last key come in, and a tail of `tail` rows at most.
static inline void spec_carry(case_spec *spec, int64_t tail) {
    const bool matrix = spec->rule->state == FWA_STATE_MATRIX;
    spec->S0 = spec->k_prev = matrix;
    spec->tail = matrix && tail > spec->options.window - 1 ? spec->options.window - 1 : tail;
    spec->state_out = spec->arriving = true;
}

#endif
