// Every key of a model reaches it: one that was read and then forgotten would make an ablation of what it leaves as it
// is.
#include "io/config_schema.h"
#include "layers/spec.h"
#include "tests/check.h"
#include "train/setup.h"
#include "train/tasks/task.h"

#define MODEL                                                                                                          \
    "model: {layers: 2, d_model: 32, heads: 2, head_dim: 16, ffn: 48, vocab_size: 300}\n"                              \
    "task: {name: addition, width_max: 3}\n"                                                                           \
    "train: {steps: 3, global_batch: 2, micro_batch: 1}\n"                                                             \
    "schedule: {warmup: 1}\n"

static fwa_model_spec spec_of(const char *const *words) {
    fwa_config *config;
    fwa_model_spec spec;
    int count = 0;
    while (words[count]) count++;
    check_ok(fwa_config_parse(&config, MODEL, "case.yaml", words, count));
    check_ok(fwa_setup_model(&spec, config, fwa_source_vocab(config)));
    fwa_config_destroy(config);
    return spec;
}

// The field at an offset, of one of the kinds that the schema has.
static double field(const void *base, size_t offset, fwa_key_kind kind) {
    const void *at = (const char *)base + offset;
    switch (kind) {
    case FWA_KEY_INT:
        return (double)*(const int64_t *)at;
    case FWA_KEY_REAL:
        return *(const double *)at;
    case FWA_KEY_ENUM:
        return *(const int *)at;
    default:
        return *(const bool *)at;
    }
}

#define AT(member, kind) offsetof(fwa_mixer_spec, member), FWA_KEY_##kind

static const struct {
    const char *key, *rule, *value, *other; // `other`: a setting that the value needs
    size_t offset;
    fwa_key_kind kind;
    double expected;
} mixer_keys[] = {
    {"shift", "falcon1", "same_step", NULL, AT(options.shift, ENUM), FWA_SHIFT_SAME_STEP},
    {"shift", "linear_attention", "next_latent", NULL, AT(options.shift, ENUM), FWA_SHIFT_NEXT_LATENT},
    {"read", "deltanet", "before_write", NULL, AT(options.read, ENUM), FWA_READ_BEFORE_WRITE},
    {"qk_norm", "falcon1", "none", NULL, AT(qk_norm, ENUM), FWA_NORM_NONE},
    {"qk_norm", "deltanet", "rms", NULL, AT(qk_norm, ENUM), FWA_NORM_RMS},
    {"v_norm", "falcon1", "l2", NULL, AT(v_norm, ENUM), FWA_NORM_L2},
    {"phi", "falcon1a", "relu", NULL, AT(phi, ENUM), FWA_PHI_RELU},
    {"step", "falcon1", "direct", NULL, AT(options.step, ENUM), FWA_STEP_DIRECT},
    {"ridge", "falcon1", "uncoupled", NULL, AT(options.ridge, ENUM), FWA_RIDGE_UNCOUPLED},
    {"beta", "deltanet", "constant", NULL, AT(beta, ENUM), FWA_GATE_CONSTANT},
    {"beta", "falcon2", "fixed", NULL, AT(beta, ENUM), FWA_GATE_FIXED},
    {"lambda", "falcon3", "constant", NULL, AT(lambda, ENUM), FWA_GATE_CONSTANT},
    {"beta_init", "falcon2", "0.25", NULL, AT(beta_init, REAL), 0.25},
    {"beta_range", "falcon1", "1", NULL, AT(beta_range, REAL), 1},
    {"beta_range", "deltanet", "2", NULL, AT(beta_range, REAL), 2},
    {"beta_rank", "falcon2a", "3", NULL, AT(beta_rank, INT), 3},
    {"lambda_init", "falcon3", "0.125", NULL, AT(lambda_init, REAL), 0.125},
    {"eps", "falcon1", "0.5", NULL, AT(options.eps, REAL), 0.5},
    {"eps_gamma", "falcon1", "0.5", NULL, AT(options.eps_gamma, REAL), 0.5},
    {"eta_max", "falcon1", "0.75", NULL, AT(options.eta_max, REAL), 0.75},
    {"window", "falcon3a", "7", NULL, AT(options.window, INT), 7},
    {"chunk", "falcon1", "16", NULL, AT(options.chunk, INT), 16},
    {"decay", "retnet", "lightning", NULL, AT(decay, ENUM), FWA_DECAY_LIGHTNING},
    {"state", "mamba2", "24", NULL, AT(state, INT), 24},
    {"conv", "gated_deltanet", "2", NULL, AT(conv, INT), 2},
    {"gate", "gated_deltanet", "false", NULL, AT(gate, BOOL), false},
    {"rotary", "retnet", "false", NULL, AT(rotary, BOOL), false},
    {"rotary", "softmax", "false", NULL, AT(rotary, BOOL), false},
    {"normalized_read", "falcon1a", "true", "phi=relu", AT(options.normalized_read, BOOL), true},
    {"detach_scale", "falcon1", "true", NULL, AT(options.detach_scale, BOOL), true},
    {"detach_scale", "falcon3", "false", NULL, AT(options.detach_scale, BOOL), false},
};
enum { MIXER_KEYS = sizeof mixer_keys / sizeof *mixer_keys };

static void a_mixers_keys_reach_it(void **state) {
    (void)state;
    for (int i = 0; i < MIXER_KEYS; i++) {
        char rule[64], other[64], setting[64];
        snprintf(rule, sizeof rule, "model.mixer.rule=%s", mixer_keys[i].rule);
        snprintf(other, sizeof other, "model.mixer.%s", mixer_keys[i].other ? mixer_keys[i].other : "chunk=64");
        snprintf(setting, sizeof setting, "model.mixer.%s=%s", mixer_keys[i].key, mixer_keys[i].value);
        const fwa_model_spec without = spec_of((const char *const[]){rule, other, NULL});
        const fwa_model_spec with = spec_of((const char *const[]){rule, other, setting, NULL});
        const double got = field(&with.mixer[0], mixer_keys[i].offset, mixer_keys[i].kind);
        if (got != mixer_keys[i].expected) fail_msg("%s: got %g, expected %g", setting, got, mixer_keys[i].expected);
        if (field(&without.mixer[0], mixer_keys[i].offset, mixer_keys[i].kind) == got)
            fail_msg("%s is the default of %s, and shows nothing", setting, mixer_keys[i].rule);
        assert_string_equal(with.mixer[0].rule->name, mixer_keys[i].rule);
    }
    for (const fwa_key *key = fwa_mixer_keys; key->path; key++) {
        bool known = !strcmp(key->path, "rule");
        for (int i = 0; i < MIXER_KEYS; i++) known |= !strcmp(key->path, mixer_keys[i].key);
        if (!known) fail_msg("model.mixer.%s: no line of this test sets it", key->path);
    }
}

static void a_models_keys_reach_it(void **state) {
    (void)state;
    const fwa_model_spec s =
        spec_of((const char *const[]){"model.layers=5", "model.d_model=256", "model.heads=3", "model.head_dim=8",
                                      "model.ffn=40", "model.vocab_size=512", "model.mixers=[a, b, a]",
                                      "model.mixer={a: {rule: falcon1}, b: {rule: softmax}}", NULL});
    assert_true(s.L == 5 && s.D == 256 && s.H == 3 && s.K == 8 && s.F == 40 && s.N == 512 && s.vocab == 259);
    assert_true(s.logit_scale == 4 && !s.reset_documents && s.mixer_count == 2);
    static const char *const expected[] = {"a", "b", "a", "a", "b"};
    for (int l = 0; l < 5; l++) assert_string_equal(s.mixer[s.layer_mixer[l]].name, expected[l]);
    const fwa_model_spec other =
        spec_of((const char *const[]){"model.logit_scale=3", "data.reset_documents=true", NULL});
    assert_true(other.logit_scale == 3 && other.reset_documents);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(a_mixers_keys_reach_it, check_release),
        cmocka_unit_test_teardown(a_models_keys_reach_it, check_release),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
