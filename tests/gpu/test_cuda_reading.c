// On a GPU: sequences read in segments over a memory give the outputs of the whole, for every rule, with blocks of
// tokens in the chunk form and single ones in the recurrent form. f32 is held to the whole in f32; bf16 too, where
// segments may be off by twice what the whole in bf16 is, as they round their states alike and what feeds them
// elsewhere.
#include "tests/gpu/device_check.h"

#include "layers/model.h"

enum { B = 2, T = 84, BLOCK = 32 };
#define F32_LIMIT  1e-4 // products of other shapes, sums in other orders, over two layers
#define BF16_FLOOR 0.01

static int32_t tokens[B * T], targets[B * T];

static fwa_model_spec spec_of(const fwa_rule *rule) {
    fwa_model_spec spec;
    memset(&spec, 0, sizeof spec);
    spec.L = 2;
    spec.D = 64;
    spec.H = 2;
    spec.K = 64;
    spec.F = 96;
    spec.N = 304;
    spec.vocab = 300;
    spec.logit_scale = 1.0;
    spec.mixer_count = 1;
    fwa_mixer_spec *m = &spec.mixer[0];
    snprintf(m->name, sizeof m->name, "%s", rule->name);
    m->rule = rule;
    m->options = fwa_mixer_options_default(rule);
    m->qk_norm = rule->switches & FWA_SWITCH_QK_NORM ? rule->default_qk_norm : FWA_NORM_NONE;
    m->conv = rule->switches & FWA_SWITCH_CONV ? 4 : 0;
    m->gate = rule->switches & FWA_SWITCH_GATE;
    m->rotary = rule->switches & FWA_SWITCH_ROTARY;
    m->beta_range = rule->default_beta_range;
    m->beta_init = 0.5;
    m->lambda_init = 0.1;
    m->state = rule->switches & FWA_SWITCH_STATE_SPACE ? 64 : 0;
    return spec;
}

static fwa_model *open_model(const fwa_model_spec *spec, fwa_backend *backend) {
    fwa_model *model;
    check_ok(fwa_model_create(&model, spec, backend, false));
    check_ok(fwa_model_commit(model, backend, 5));
    return model;
}

// Rows [start, start + count) of the final norm, on the host.
static void keep_rows(fwa_tensor out, const fwa_activations *acts, int start) {
    fwa_backend *backend = acts->ctx.backend;
    const int64_t count = acts->ctx.T, D = acts->n.shape[1];
    const fwa_tensor host = device_read(backend, acts->n);
    for (int64_t b = 0; b < B; b++)
        for (int64_t i = 0; i < count * D; i++)
            check_set(out, (b * T + start) * D + i, check_get(host, b * count * D + i));
}

static fwa_tensor read_whole(const fwa_model_spec *spec, fwa_backend *backend) {
    fwa_model *model = open_model(spec, backend);
    fwa_tensor out = check_new(FWA_F64, B, T, spec->D, 0);
    fwa_activations *acts;
    fwa_step_state *state;
    check_ok(fwa_activations_create(&acts, model, backend, B, T, false, (fwa_pieces){NULL, 0}));
    check_ok(fwa_activations_commit(acts));
    check_ok(backend->alloc(backend, (void **)&state, sizeof *state));
    check_ok(backend->fill(backend, backend->stream, state, 0, sizeof *state));
    check_ok(fwa_model_load(acts, tokens, targets));
    check_ok(fwa_model_evaluate(acts, state));
    keep_rows(out, acts, 0);
    backend->free(backend, state);
    fwa_activations_destroy(acts);
    fwa_model_destroy(model);
    return out;
}

static void read_segment(fwa_activations *acts, int start, fwa_tensor out) {
    int32_t part[B * BLOCK];
    const int count = (int)acts->ctx.T;
    for (int b = 0; b < B; b++) memcpy(part + b * count, tokens + b * T + start, (size_t)count * sizeof *part);
    check_ok(fwa_model_read(acts, part));
    keep_rows(out, acts, start);
}

// A few single tokens, two blocks, and the rest one by one.
static fwa_tensor read_segments(const fwa_model_spec *spec, fwa_backend *backend) {
    fwa_model *model = open_model(spec, backend);
    fwa_tensor out = check_new(FWA_F64, B, T, spec->D, 0);
    fwa_memory *memory;
    fwa_activations *one, *block;
    check_ok(fwa_memory_create(&memory, model, backend, B, T));
    check_ok(fwa_activations_create_over(&one, memory, 1));
    check_ok(fwa_activations_create_over(&block, memory, BLOCK));
    check_ok(fwa_activations_commit(one));
    check_ok(fwa_activations_commit(block));
    for (int t = 0; t < T;) {
        fwa_activations *acts = t >= 5 && t + BLOCK <= T ? block : one;
        read_segment(acts, t, out);
        t += (int)acts->ctx.T;
    }
    check_ok(fwa_model_logits(one));
    fwa_activations_destroy(one);
    fwa_activations_destroy(block);
    fwa_memory_destroy(memory);
    fwa_model_destroy(model);
    return out;
}

static bool segments_equal_the_whole(const fwa_model_spec *spec, fwa_backend *f32, fwa_backend *bf16) {
    const fwa_tensor truth = read_whole(spec, f32);
    const double full = check_error(read_segments(spec, f32), truth);
    const double whole = check_error(read_whole(spec, bf16), truth);
    const double half = check_error(read_segments(spec, bf16), truth);
    const bool right = full <= F32_LIMIT && half <= 2.0 * whole + BF16_FLOOR;
    printf("%-18s %-8s f32 %.1e   bf16 %.1e, whole %.1e%s\n", spec->mixer[0].name,
           spec->mixer[0].rotary ? "rotary" : "", full, half, whole, right ? "" : "  WRONG");
    check_release(NULL);
    return right;
}

static void test_segments_equal_the_whole(void **state) {
    (void)state;
    fwa_backend *f32 = device_open(FWA_F32), *bf16 = device_open(FWA_BF16);
    int failed = 0;
    for (int r = 0; r < fwa_rule_count(); r++) {
        if (!fwa_rule_on_backend(fwa_rule_at(r)->name, FWA_BACKEND_CUDA)) continue;
        fwa_model_spec spec = spec_of(fwa_rule_at(r));
        failed += !segments_equal_the_whole(&spec, f32, bf16);
        if (!spec.mixer[0].rotary) continue;
        spec.mixer[0].rotary = false;
        failed += !segments_equal_the_whole(&spec, f32, bf16);
    }
    bf16->destroy(bf16);
    f32->destroy(f32);
    assert_int_equal(failed, 0);
}

int main(void) {
    for (int i = 0; i < B * T; i++) {
        tokens[i] = (int32_t)fwa_rng_below(3, 0, (uint64_t)i, 300);
        targets[i] = (int32_t)fwa_rng_below(3, 1, (uint64_t)i, 300);
    }
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_segments_equal_the_whole)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
