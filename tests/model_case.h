// A small model for tests: its spec by rule, the model with random weights on the CPU, activations and one batch.
#ifndef FWA_TESTS_MODEL_CASE_H
#define FWA_TESTS_MODEL_CASE_H

#include "check.h"
#include "kernels/registry.h"
#include "layers/model.h"

enum { MODEL_VARIANTS_MOST = 32 };

// A step that is not divided by the keys' energy is stable with unit keys only: the state would grow without bound, and
// differences over it mean nothing.
static inline fwa_norm stable_norm(const fwa_rule *rule) {
    return rule->switches & FWA_SWITCH_STEP ? FWA_NORM_RMS : FWA_NORM_L2;
}

// A mixer with everything on that the rule understands. Finite differences see through a detached scale, so the scale
// is not detached.
static inline fwa_mixer_spec mixer_spec(const fwa_rule *rule) {
    fwa_mixer_spec spec;
    memset(&spec, 0, sizeof spec);
    snprintf(spec.name, sizeof spec.name, "%s", rule->name);
    spec.rule = rule;
    spec.options = fwa_mixer_options_default(rule);
    spec.options.chunk = 3;
    spec.options.detach_scale = false;
    spec.qk_norm = rule->switches & FWA_SWITCH_QK_NORM ? stable_norm(rule) : FWA_NORM_NONE;
    spec.v_norm = FWA_NORM_NONE;
    spec.phi = FWA_PHI_IDENTITY;
    spec.conv = rule->switches & FWA_SWITCH_CONV ? 4 : 0;
    spec.gate = rule->switches & FWA_SWITCH_GATE;
    spec.rotary = rule->switches & FWA_SWITCH_ROTARY;
    spec.beta_range = rule->default_beta_range;
    spec.beta_init = 0.5;
    spec.lambda_init = 0.01;
    spec.state = rule->switches & FWA_SWITCH_STATE_SPACE ? 5 : 0;
    return spec;
}

// Two layers; ffn and vocabulary are padded.
static inline fwa_model_spec model_spec(const fwa_rule *rule) {
    fwa_model_spec spec;
    memset(&spec, 0, sizeof spec);
    spec.L = 2;
    spec.D = 12;
    spec.H = 3;
    spec.K = 4;
    spec.F = 10;
    spec.N = 20;
    spec.vocab = 17;
    spec.logit_scale = 1.7;
    spec.mixer_count = 1;
    spec.mixer[0] = mixer_spec(rule);
    return spec;
}

// A layer of every rule, the first one once more at the end. Deep enough that roundings and differences grow: for what
// is exact only.
static inline fwa_model_spec model_spec_hybrid(void) {
    fwa_model_spec spec = model_spec(fwa_rule_at(0));
    spec.mixer_count = 0;
    assert_true(fwa_rule_count() <= FWA_MAX_MIXERS);
    for (int r = 0; r < fwa_rule_count(); r++) {
        spec.layer_mixer[spec.mixer_count] = spec.mixer_count;
        spec.mixer[spec.mixer_count++] = mixer_spec(fwa_rule_at(r));
    }
    spec.L = spec.mixer_count + 1;
    return spec;
}

// The next rule of the registry; after the last comes the first.
static inline const fwa_rule *next_rule(const fwa_rule *rule) {
    int at = 0;
    while (fwa_rule_at(at) != rule) at++;
    return fwa_rule_at((at + 1) % fwa_rule_count());
}

// Three layers of two rules: a, b, a.
static inline fwa_model_spec model_spec_pair(const fwa_rule *a, const fwa_rule *b) {
    fwa_model_spec spec = model_spec(a);
    spec.mixer[1] = mixer_spec(b);
    spec.mixer_count = 2;
    spec.L = 3;
    spec.layer_mixer[1] = 1;
    return spec;
}

typedef struct model_variant {
    char name[64];
    fwa_model_spec spec;
} model_variant;

// The small model of a rule; every setting of layer and rule moved that the rule understands; and another rule in its
// middle.
static inline int model_variants(const fwa_rule *rule, model_variant list[MODEL_VARIANTS_MOST]) {
    const unsigned has = rule->switches;
    int count = 0;
#define VARIANT(needs, ...)                                                                                            \
    do {                                                                                                               \
        if ((has & (needs)) != (needs)) break;                                                                         \
        assert_true(count < MODEL_VARIANTS_MOST);                                                                      \
        model_variant *variant = &list[count++];                                                                       \
        variant->spec = model_spec(rule);                                                                              \
        snprintf(variant->name, sizeof variant->name, "%s", #__VA_ARGS__);                                             \
        fwa_mixer_spec *m = &variant->spec.mixer[0];                                                                   \
        fwa_mixer_options *o = &m->options;                                                                            \
        (void)o;                                                                                                       \
        __VA_ARGS__;                                                                                                   \
    } while (0)
    VARIANT(0U, (void)m);
    VARIANT(0U, o->chunk = 64);
    VARIANT(0U, variant->spec.logit_scale = 1.0);
    VARIANT(FWA_SWITCH_QK_NORM, m->qk_norm = FWA_NORM_RMS);
    VARIANT(FWA_SWITCH_QK_NORM, m->qk_norm = FWA_NORM_L2);
    VARIANT(FWA_SWITCH_QK_NORM, m->qk_norm = FWA_NORM_NONE);
    VARIANT(0U, variant->spec.F = 0);
    VARIANT(FWA_SWITCH_QK_NORM, m->v_norm = FWA_NORM_RMS);
    VARIANT(FWA_SWITCH_QK_NORM, m->v_norm = FWA_NORM_L2);
    VARIANT(FWA_SWITCH_PHI, m->phi = FWA_PHI_ELU1);
    VARIANT(FWA_SWITCH_PHI, m->phi = FWA_PHI_RELU);
    VARIANT(FWA_SWITCH_PHI, m->phi = FWA_PHI_SILU);
    VARIANT(FWA_SWITCH_CONV, m->conv = 0);
    VARIANT(FWA_SWITCH_QK_NORM, m->conv = 2; m->qk_norm = FWA_NORM_NONE);
    VARIANT(FWA_SWITCH_DECAY, m->decay = FWA_DECAY_LIGHTNING);
    VARIANT(FWA_SWITCH_STATE_SPACE, m->state = 1);
    VARIANT(FWA_SWITCH_GATE, m->gate = false);
    VARIANT(FWA_SWITCH_ROTARY, m->rotary = false);
    VARIANT(FWA_SWITCH_ROTARY, m->rotary = false; variant->spec.K = 5);
    VARIANT(FWA_SWITCH_RIDGE, o->ridge = FWA_RIDGE_UNCOUPLED);
    VARIANT(FWA_SWITCH_RIDGE, o->ridge = FWA_RIDGE_NONE);
    VARIANT(FWA_SWITCH_RIDGE, o->ridge = FWA_RIDGE_NONE; m->gate = false);
    VARIANT(FWA_SWITCH_SHIFT, o->shift = FWA_SHIFT_SAME_STEP);
    VARIANT(FWA_SWITCH_READ, o->read = FWA_READ_BEFORE_WRITE);
    VARIANT(FWA_SWITCH_STEP, o->step = FWA_STEP_DIRECT; m->qk_norm = FWA_NORM_L2);
    VARIANT(FWA_SWITCH_WINDOW, o->window = 1);
    VARIANT(FWA_SWITCH_WINDOW, o->window = 9);
    VARIANT(FWA_SWITCH_NORMALIZED_READ | FWA_SWITCH_PHI, o->normalized_read = true; m->phi = FWA_PHI_ELU1);
    if (rule->inputs & FWA_INPUT_BETA_CHANNEL) VARIANT(0U, m->beta_rank = 3);
    if (rule->inputs & (FWA_INPUT_BETA | FWA_INPUT_BETA_CHANNEL)) VARIANT(0U, m->beta = FWA_GATE_CONSTANT);
    if (rule->inputs & FWA_INPUT_LAMBDA) VARIANT(0U, m->lambda = FWA_GATE_CONSTANT);
    if (rule->inputs & FWA_INPUT_LAMBDA) VARIANT(0U, m->lambda = m->beta = FWA_GATE_CONSTANT);
    if (rule->inputs & FWA_INPUT_BETA) VARIANT(0U, m->beta_range = 3 - rule->default_beta_range);
#undef VARIANT
    const fwa_rule *other = next_rule(rule);
    assert_true(count < MODEL_VARIANTS_MOST);
    snprintf(list[count].name, sizeof list[count].name, "a layer of %s between", other->name);
    list[count++].spec = model_spec_pair(rule, other);
    return count;
}

enum { MODEL_B = 2, MODEL_T = 7, MODEL_ROWS = MODEL_B * MODEL_T };

typedef struct model_case {
    fwa_backend *backend;
    fwa_model *model;
    fwa_activations *acts; // training, [MODEL_B, MODEL_T]
    fwa_step_state state;
    int32_t tokens[MODEL_ROWS], targets[MODEL_ROWS];
} model_case;

static inline double param_get(const model_case *c, int index, int64_t i) {
    return check_get(fwa_param_named(&c->model->params.at[index], FWA_PARAM_MASTER).tensor, i);
}
static inline void param_set(const model_case *c, int index, int64_t i, double value) {
    check_set(fwa_param_named(&c->model->params.at[index], FWA_PARAM_MASTER).tensor, i, value);
}
static inline fwa_tensor param_grad(const model_case *c, int index) {
    return fwa_param_named(&c->model->params.at[index], FWA_PARAM_GRAD).tensor;
}

// Initial values are small and regular; these leave no part of the model near a symmetry.
static inline void model_shake(const model_case *c) {
    for (int p = 0; p < c->model->params.count; p++)
        for (int64_t i = 0, n = fwa_tensor_count(param_grad(c, p)); i < n; i++)
            param_set(c, p, i, param_get(c, p, i) + 0.3 * fwa_rng_normal(99, (uint64_t)p, (uint64_t)i));
}

static inline fwa_activations *activations_new(model_case *c, int64_t B, int64_t T, bool train) {
    fwa_activations *acts;
    check_ok(fwa_activations_create(&acts, c->model, c->backend, B, T, train, (fwa_pieces){NULL, 0}));
    check_ok(fwa_activations_commit(acts));
    return acts;
}

// In double on one thread; every fifth target is missing. The case must stay at its address.
static inline void model_open(model_case *c, const fwa_model_spec *spec) {
    memset(c, 0, sizeof *c);
    check_ok(fwa_backend_create(&c->backend, FWA_BACKEND_CPU, FWA_F64, 0, 1));
    check_ok(fwa_model_create(&c->model, spec, c->backend, true));
    check_ok(fwa_model_commit(c->model, c->backend, 5));
    c->acts = activations_new(c, MODEL_B, MODEL_T, true);
    model_shake(c);
    for (int r = 0; r < MODEL_ROWS; r++) {
        c->tokens[r] = (int32_t)fwa_rng_below(3, 0, (uint64_t)r, (uint64_t)spec->vocab);
        c->targets[r] = r % 5 == 1 ? -1 : (int32_t)fwa_rng_below(3, 1, (uint64_t)r, (uint64_t)spec->vocab);
    }
}

static inline void model_close(model_case *c) {
    fwa_activations_destroy(c->acts);
    fwa_model_destroy(c->model);
    c->backend->destroy(c->backend);
}

static inline void model_clear(model_case *c) {
    fwa_arena *grads = c->model->params.arena[FWA_PARAM_GRAD];
    memset(fwa_arena_data(grads), 0, fwa_arena_bytes(grads));
    memset(&c->state, 0, sizeof c->state);
}

// One micro-batch, rows from `row` on; gradients and sums are added to.
static inline void model_add(model_case *c, fwa_activations *acts, int row) {
    check_ok(fwa_model_load(acts, c->tokens + row, c->targets + row));
    check_ok(fwa_model_train(acts, &c->state, NULL));
}

static inline void model_train(model_case *c) {
    model_clear(c);
    model_add(c, c->acts, 0);
}

// The summed loss.
static inline double model_evaluate(model_case *c, fwa_activations *acts) {
    memset(&c->state, 0, sizeof c->state);
    check_ok(fwa_model_load(acts, c->tokens, c->targets));
    check_ok(fwa_model_evaluate(acts, &c->state));
    return c->state.loss_sum;
}

// The whole gradient class as one vector, gaps and padding included.
static inline fwa_tensor model_gradients(const model_case *c) {
    fwa_arena *grads = c->model->params.arena[FWA_PARAM_GRAD];
    return fwa_tensor_1d(fwa_arena_data(grads), FWA_F64, (int64_t)(fwa_arena_bytes(grads) / sizeof(double)));
}

// A copy that check_release frees.
static inline fwa_tensor check_duplicate(fwa_tensor t) {
    fwa_tensor copy = fwa_tensor_nd(NULL, t.dtype, t.ndim, t.shape);
    copy.data = check_alloc(fwa_tensor_bytes(t));
    check_copy(copy, t);
    return copy;
}

#endif
