// Over every rule: the gradients of a random functional of all outputs, by every input and incoming state, against
// central differences in double; for every form and switch, fresh and continued, with documents and without.
#include "rule_variants.h"

static double functional(void *context) {
    mixer_case *c = context;
    double sum = 0;
    check_ok(c->mixer->forward(c->backend, c->backend->stream, &c->call));
    for (int i = 0; i < CASE_OUTPUTS; i++) {
        const fwa_tensor value = *case_at(c, case_outputs[i].value), arriving = *case_at(c, case_outputs[i].gradient);
        if (fwa_tensor_present(arriving)) sum += check_dot(value, arriving);
    }
    return sum;
}

static void check_gradients(const case_spec *spec, uint64_t seed, double limit) {
    mixer_case c = case_new(spec);
    case_fill(&c, seed);
    if (spec->reset)
        for (int64_t b = 0; b < spec->shape.B; b++) check_set(c.call.reset, b * spec->shape.T + 1 + b, 1);
    case_run(&c);
    for (int i = 0; i < CASE_INPUTS; i++) {
        const fwa_tensor x = *case_at(&c, case_inputs[i].value), dx = *case_at(&c, case_inputs[i].gradient);
        if (!fwa_tensor_present(x)) continue;
        fwa_tensor numeric = fwa_tensor_nd(NULL, FWA_F64, x.ndim, x.shape);
        numeric.data = check_alloc(fwa_tensor_bytes(numeric));
        check_differentiate(functional, &c, x, numeric);
        // The detached scale has no derivative to compare with, except in what does not pass through it.
        const bool through_scale = spec->options.detach_scale && spec->options.ridge == FWA_RIDGE_COUPLED &&
                                   (!strcmp(case_inputs[i].name, "k") || !strcmp(case_inputs[i].name, "k_prev") ||
                                    !strcmp(case_inputs[i].name, "tail_x"));
        const double error = check_error(dx, numeric);
        if (!through_scale && !(error <= limit))
            fail_msg("%s, %s: d%s: error %.3g, limit %.3g (read %s, shift %s, step %s, ridge %s, window %lld)",
                     spec->rule->name, case_form(spec), case_inputs[i].name, error, limit, case_read(spec),
                     case_shift(spec), case_step(spec), case_ridge(spec), (long long)spec->options.window);
    }
    case_free(&c);
    check_release(NULL);
}

static void run_variants(bool carry, bool reset) {
    EACH_RULE(rule) {
        fwa_mixer_options options[VARIANTS_MOST];
        const int count = rule_variants(rule, options);
        for (int i = 0; i < count; i++) {
            EACH_FORM(rule, form) {
                case_spec spec = {.rule = rule, .options = options[i], .form = form, .dtype = FWA_F64, .reset = reset};
                spec.shape = (fwa_mixer_shape){.B = 2, .T = 5, .Hq = 1, .H = 2, .K = 3, .V = 2};
                spec.options.chunk = 2;
                spec.options.eps_attn = 0.01;
                if (carry) spec_carry(&spec, 2);
                check_gradients(&spec, (uint64_t)(40 + i), 1e-7);
            }
        }
    }
}

static void test_fresh(void **state) {
    (void)state;
    run_variants(false, false);
}

static void test_continued(void **state) {
    (void)state;
    run_variants(true, false);
}

static void test_documents(void **state) {
    (void)state;
    run_variants(true, true);
}

// S without a last key: a fresh sequence over a given memory.
static void test_memory_only(void **state) {
    (void)state;
    EACH_RULE(rule) {
        if (rule->state != FWA_STATE_MATRIX) continue;
        EACH_FORM(rule, form) {
            case_spec spec = {.rule = rule, .options = fwa_mixer_options_default(rule), .form = form, .dtype = FWA_F64};
            spec.shape = (fwa_mixer_shape){.B = 1, .T = 4, .Hq = 1, .H = 1, .K = 3, .V = 3};
            spec.S0 = spec.state_out = spec.arriving = true;
            check_gradients(&spec, 91, 1e-7);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_fresh, check_release),
        cmocka_unit_test_teardown(test_continued, check_release),
        cmocka_unit_test_teardown(test_documents, check_release),
        cmocka_unit_test_teardown(test_memory_only, check_release),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
