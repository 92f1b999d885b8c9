// The chunk form on the CPU with bf16 operands, as a GPU's kernels have them: every golden case of the rules that have
// it, against the exact answer to the same rounded inputs, within the limits of GPU tests or twice what rounding the
// inputs alone makes; what it refuses.
#include "core/bf16.h"
#include "golden.h"
#include "rule_variants.h"

static bool can_round(const fwa_rule *rule) {
    return rule->core == FWA_CORE_ADDITIVE || rule->core == FWA_CORE_DELTA;
}

// Where keys repeat with flipped signs and steps are close to 2, writes nearly cancel and what bf16 makes of them does
// not: 2.95 of these limits measured, for dlambda.
static double limit_of(const char *file, const char *name, bool gradient) {
    if (strstr(file, "flip_repeat")) return 3 * limit_of("", name, gradient);
    if (!strcmp(name, "beta") || !strcmp(name, "lambda") || !strcmp(name, "log_decay")) return 0.02;
    return gradient ? 0.008 : 0.005;
}

static void round_features(fwa_tensor t) {
    for (int64_t i = 0; fwa_tensor_present(t) && i < fwa_tensor_count(t); i++)
        check_set(t, i, (double)fwa_bf16_to_float(fwa_bf16_from_float((float)check_get(t, i))));
}

// Inputs that the mode takes as they are.
static void fill(hid_t file, mixer_case *c) {
    golden_fill(file, c);
    for (int i = 0; i < 3; i++) round_features(*case_at(c, case_inputs[i].value));
    for (int i = 8; i < CASE_INPUTS; i++) round_features(*case_at(c, case_inputs[i].value));
    round_features(c->grads.d_o);
}

typedef struct record {
    double o, share; // largest error of o; of any tensor as a part of its limit
    char where[96];
} record;

static void compare(hid_t file, const char *name, mixer_case *got, mixer_case *exact, record *r) {
    for (int i = 0; i < CASE_INPUTS + CASE_OUTPUTS; i++) {
        const bool gradient = i < CASE_INPUTS;
        const case_tensor *entry = gradient ? &case_inputs[i] : &case_outputs[i - CASE_INPUTS];
        const size_t at = gradient ? entry->gradient : entry->value;
        const fwa_tensor expected = *case_at(exact, at);
        char path[32];
        snprintf(path, sizeof path, "%s%s", gradient ? "d" : "", entry->name);
        if (!fwa_tensor_present(expected)) continue;
        const fwa_tensor whole = golden_read(file, gradient ? "grad" : "out", path);
        double error = check_error(*case_at(got, at), expected), limit = limit_of(name, entry->name, gradient);
        if (fwa_tensor_present(whole)) limit = fmax(limit, 2 * check_error(expected, whole));
        if (!(error <= limit)) fail_msg("%s: %s: error %.3g, limit %.3g", name, path, error, limit);
        if (i == CASE_INPUTS) r->o = fmax(r->o, error);
        if (error / limit <= r->share) continue;
        r->share = error / limit;
        snprintf(r->where, sizeof r->where, "%s of %s", path, name);
    }
}

static void run_file(hid_t file, const char *name, const fwa_rule *rule, void *user) {
    case_spec spec = golden_spec(file, rule);
    if (spec.options.normalized_read) return;
    spec.form = FWA_FORM_CHUNK;
    spec.dtype = FWA_F64;
    mixer_case exact = case_new(&spec);
    spec.dtype = FWA_F32;
    spec.rounds = true;
    mixer_case rounded = case_new(&spec);
    fill(file, &exact);
    fill(file, &rounded);
    case_run(&exact);
    case_run(&rounded);
    if (spec.shape.T > 1) compare(file, name, &rounded, &exact, user);
    case_free(&exact);
    case_free(&rounded);
    check_release(NULL);
}

static void test_golden_cases(void **state) {
    (void)state;
    EACH_RULE(rule) {
        if (!can_round(rule)) continue;
        record r = {0};
        golden_each(rule, run_file, &r);
        print_message("%s: o %.2g; worst %.2g of its limit (%s)\n", rule->name, r.o, r.share, r.where);
        assert_true(r.o > 5e-4); // it does round
    }
}

// Other cores and forms and the normalised read have no such mode.
static void test_refusals(void **state) {
    (void)state;
    EACH_RULE(rule) {
        size_t saved, scratch;
        fwa_backend *backend;
        const fwa_mixer *mixer;
        fwa_mixer_call call = {.options = fwa_mixer_options_default(rule), .shape = {1, 8, 1, 1, 4, 4}};
        check_ok(fwa_backend_create(&backend, FWA_BACKEND_CPU, FWA_F32, 0, 1));
        backend->rounds = true;
        check_ok(fwa_mixer_find(backend, rule, &mixer));
        EACH_FORM(rule, form) {
            call.form = form;
            const bool expected = can_round(rule) && form == FWA_FORM_CHUNK;
            assert_int_equal(mixer->sizes(backend, &call, &saved, &scratch), expected ? FWA_OK : FWA_UNSUPPORTED);
        }
        call.form = FWA_FORM_CHUNK;
        call.options.normalized_read = rule->switches & FWA_SWITCH_NORMALIZED_READ;
        if (call.options.normalized_read)
            assert_int_equal(mixer->sizes(backend, &call, &saved, &scratch), FWA_UNSUPPORTED);
        backend->destroy(backend);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_golden_cases, check_release),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
