// Over every rule: all forms agree, in ugly shapes, under every switch, with and without carried state, in double and
// float; shared query heads equal expanded ones; strided views equal dense tensors; extreme inputs stay finite.
#include "rule_variants.h"

// Runs `form` of `spec` with its type and compares it with the recurrence in double.
static void compare_forms(case_spec spec, uint64_t seed, double limit_f64, double limit_f32) {
    spec.form = FWA_FORM_RECURRENT;
    spec.dtype = FWA_F64;
    mixer_case expected = case_new(&spec);
    case_fill(&expected, seed);
    case_run(&expected);
    EACH_FORM(spec.rule, form) {
        for (int f32 = 0; f32 < 2; f32++) {
            spec.form = form;
            spec.dtype = f32 ? FWA_F32 : FWA_F64;
            mixer_case got = case_new(&spec);
            case_fill(&got, seed);
            case_run(&got);
            case_compare(&got, &expected, f32 ? limit_f32 : limit_f64);
            case_free(&got);
        }
    }
    case_free(&expected);
}

// Forms sum in different orders: rounding, which chains of T steps make larger, is what the limits leave room for.
#define LIMIT_F64 1e-10
#define LIMIT_F32 1e-4

static void test_ugly_shapes(void **state) {
    (void)state;
    const int64_t lengths[] = {1, 2, 63, 65};
    EACH_RULE(rule) {
        fwa_mixer_options options[VARIANTS_MOST];
        const int count = rule_variants(rule, options);
        for (int i = 0; i < count * 8; i++) {
            case_spec spec = {.rule = rule, .options = options[i / 8]};
            spec.shape = (fwa_mixer_shape){.B = 2, .T = lengths[i % 4], .Hq = 1, .H = 2, .K = 5, .V = 3 + 8 * (i % 4)};
            spec.options.chunk = i % 3 == 0 ? 64 : i % 3 == 1 ? 16 : 7;
            spec.options.eps_attn = 0.1; // o of a single pair hardly depends on q: dq would be rounding alone
            if (i % 8 >= 4) spec_carry(&spec, i % 3 + 1);
            compare_forms(spec, (uint64_t)i, LIMIT_F64, LIMIT_F32);
        }
    }
}

static void test_long(void **state) {
    (void)state;
    EACH_RULE(rule) {
        case_spec spec = {.rule = rule, .options = fwa_mixer_options_default(rule)};
        spec.shape = (fwa_mixer_shape){.B = 1, .T = 1000, .Hq = 1, .H = 1, .K = 9, .V = 6};
        spec_carry(&spec, 3);
        compare_forms(spec, 5, LIMIT_F64, LIMIT_F32);
    }
}

// Query and key heads shared by value heads: the same as each value head with its own copy, gradients summed.
static void test_shared_heads(void **state) {
    (void)state;
    EACH_RULE(rule) {
        EACH_FORM(rule, form) {
            case_spec spec = {.rule = rule, .options = fwa_mixer_options_default(rule), .form = form, .dtype = FWA_F64};
            spec.shape = (fwa_mixer_shape){.B = 2, .T = 21, .Hq = 2, .H = 6, .K = 4, .V = 5};
            spec.options.chunk = 8;
            spec_carry(&spec, 2);
            mixer_case shared = case_new(&spec);
            spec.shape.Hq = 6;
            mixer_case own = case_new(&spec);
            case_fill(&shared, 3);
            case_fill(&own, 3);
            for (int i = 0; i < CASE_INPUTS + CASE_OUTPUTS; i++) {
                const bool input = i < CASE_INPUTS;
                const case_tensor *entry = input ? &case_inputs[i] : &case_outputs[i - CASE_INPUTS];
                const size_t at = input ? entry->value : entry->gradient;
                const fwa_tensor from = *case_at(&shared, at), to = *case_at(&own, at);
                const char *heads = strchr(entry->shape, 'q');
                if (!heads || !fwa_tensor_present(from)) continue;
                const int dim = (int)(heads - entry->shape);
                for (int64_t h = 0; h < 6; h++)
                    check_copy(fwa_tensor_slice(to, dim, h, 1), fwa_tensor_slice(from, dim, h / 3, 1));
                if (!input) // a gradient that arrives once must not be counted for each copy
                    for (int64_t h = 0; h < 6; h++)
                        if (h % 3) check_fill_value(fwa_tensor_slice(to, dim, h, 1), 0);
            }
            case_run(&shared);
            case_run(&own);
            check_close(shared.call.o, own.call.o, 1e-12);
            for (int i = 0; i < CASE_INPUTS; i++) {
                const fwa_tensor got = *case_at(&shared, case_inputs[i].gradient);
                const fwa_tensor parts = *case_at(&own, case_inputs[i].gradient);
                const char *heads = strchr(case_inputs[i].shape, 'q');
                if (!fwa_tensor_present(got)) continue;
                if (!heads) {
                    check_close(got, parts, 1e-12);
                    continue;
                }
                const int dim = (int)(heads - case_inputs[i].shape);
                for (int64_t h = 0; h < 2; h++) {
                    const fwa_tensor sum = fwa_tensor_slice(parts, dim, 3 * h, 1);
                    for (int64_t more = 1; more < 3; more++) {
                        const fwa_tensor part = fwa_tensor_slice(parts, dim, 3 * h + more, 1);
                        for (int64_t e = 0; e < fwa_tensor_count(sum); e++)
                            check_set(sum, e, check_get(sum, e) + check_get(part, e));
                    }
                    check_close(fwa_tensor_slice(got, dim, h, 1), sum, 1e-12);
                }
            }
            case_free(&shared);
            case_free(&own);
        }
    }
}

// The same elements as rows of a packed projection [B,T,P] with foreign columns around them.
static fwa_tensor packed_copy(fwa_tensor dense) {
    const int64_t B = dense.shape[0], T = dense.shape[1], columns = dense.shape[2] * dense.shape[3];
    fwa_tensor view = check_new_strided(dense.dtype, B, T, columns, 3, 5);
    view = fwa_tensor_as_4d(view, B, T, dense.shape[2], dense.shape[3]);
    check_copy(view, dense);
    return view;
}

static void test_strided_views(void **state) {
    (void)state;
    EACH_RULE(rule) {
        case_spec spec = {.rule = rule, .options = fwa_mixer_options_default(rule), .form = FWA_FORM_CHUNK};
        spec.shape = (fwa_mixer_shape){.B = 2, .T = 37, .Hq = 3, .H = 3, .K = 4, .V = 5};
        spec.dtype = FWA_F32;
        mixer_case dense = case_new(&spec);
        mixer_case packed = case_new(&spec);
        case_fill(&dense, 11);
        case_fill(&packed, 11);
        fwa_tensor *views[] = {&packed.call.q,   &packed.call.k,   &packed.call.v,   &packed.call.o,
                               &packed.grads.dq, &packed.grads.dk, &packed.grads.dv, &packed.grads.d_o};
        for (size_t i = 0; i < sizeof views / sizeof views[0]; i++) *views[i] = packed_copy(*views[i]);
        case_run(&dense);
        check_ok(packed.mixer->forward(packed.backend, packed.backend->stream, &packed.call));
        check_ok(packed.mixer->backward(packed.backend, packed.backend->stream, &packed.call, &packed.grads));
        assert_int_equal(check_differences(packed.call.o, dense.call.o), 0);
        assert_int_equal(check_differences(packed.grads.dq, dense.grads.dq), 0);
        assert_int_equal(check_differences(packed.grads.dk, dense.grads.dk), 0);
        assert_int_equal(check_differences(packed.grads.dv, dense.grads.dv), 0);
        case_free(&dense);
        case_free(&packed);
        check_release(NULL);
    }
}

// Every key equal, of length `length`; `spread` times as much of their random contents stays.
static void equal_keys(fwa_tensor k, double length, double spread) {
    const int64_t K = k.shape[k.ndim - 1];
    for (int64_t i = 0; i < fwa_tensor_count(k); i++)
        check_set(k, i, length / sqrt((double)K) * ((i % K % 2 ? 1 : -1) + spread * check_get(k, i)));
}

static void fill_present(fwa_tensor t, double value) {
    if (fwa_tensor_present(t)) check_fill_value(t, value);
}

// Where `mixed`, two of three steps keep everything.
static void fill_decay(fwa_tensor t, double value, bool mixed) {
    fill_present(t, value);
    for (int64_t i = 0; mixed && fwa_tensor_present(t) && i < fwa_tensor_count(t); i++)
        if (i % 3) check_set(t, i, 0);
}

// Limit in float for equal keys: residuals alternate in sign from step to step, so a gradient of the decay is a sum of
// up to C terms that cancel to the size of one, and loses a factor C (measured: 9.5e-5 at C = 64, 8.9e-4 at C = 1000).
static double extreme_limit(const case_spec *spec) {
    if (spec->dtype == FWA_F64) return 1e-10;
    const int64_t C = spec->form == FWA_FORM_PARALLEL ? spec->shape.T : spec->options.chunk;
    return 64 * (double)C * 0x1p-24;
}

// What rules fear: long equal keys (unit ones where the step is direct) with beta 1.999, and a decay at its limit in
// every step. (Over a cache exactly equal keys would make dq exactly 0.)
static void run_extreme(const fwa_rule *rule, bool strong_decay, bool mixed) {
    case_spec spec = {.rule = rule, .options = fwa_mixer_options_default(rule), .form = FWA_FORM_RECURRENT};
    spec.shape = (fwa_mixer_shape){.B = 1, .T = 1000, .Hq = 1, .H = 1, .K = 8, .V = 4};
    spec.dtype = FWA_F64;
    mixer_case expected = case_new(&spec);
    EACH_FORM(rule, form) {
        for (int f32 = 0; f32 < 2; f32++) {
            spec.form = form;
            spec.dtype = f32 ? FWA_F32 : FWA_F64;
            mixer_case got = case_new(&spec);
            case_fill(&got, 21);
            if (!strong_decay)
                equal_keys(got.call.k, case_needs_unit_keys(&got) ? 1 : 30, rule->state == FWA_STATE_CACHE ? 0.01 : 0);
            fill_present(got.call.beta, (double)1.999f);
            fill_decay(got.call.lambda, strong_decay ? 1e6 : 0, mixed);
            fill_decay(got.call.log_decay, strong_decay ? -100 : 0, mixed);
            case_run(&got);
            if (form == FWA_FORM_RECURRENT && !f32) {
                case_free(&expected);
                expected = got;
                continue;
            }
            case_compare(&got, &expected, extreme_limit(&spec));
            case_free(&got);
        }
    }
    case_free(&expected);
}

static void test_extreme_keys(void **state) {
    (void)state;
    EACH_RULE(rule) run_extreme(rule, false, false);
}

static void test_extreme_decay(void **state) {
    (void)state;
    EACH_RULE(rule) {
        run_extreme(rule, true, false);
        run_extreme(rule, true, true);
    }
}

// Scores of a cache that fall by more than e^709 from one block of keys to the next: the largest one so far stays what
// exponents are taken of.
static void test_falling_scores(void **state) {
    (void)state;
    EACH_RULE(rule) {
        if (rule->state != FWA_STATE_CACHE) continue;
        mixer_case cases[2][3];
        static const fwa_form forms[] = {FWA_FORM_RECURRENT, FWA_FORM_CHUNK, FWA_FORM_PARALLEL};
        for (int f32 = 0; f32 < 2; f32++)
            for (int f = 0; f < 3; f++) {
                case_spec spec = {.rule = rule, .options = fwa_mixer_options_default(rule), .form = forms[f]};
                spec.shape = (fwa_mixer_shape){.B = 1, .T = 150, .Hq = 1, .H = 1, .K = 8, .V = 4};
                spec.dtype = f32 ? FWA_F32 : FWA_F64;
                mixer_case *c = &cases[f32][f];
                *c = case_new(&spec);
                case_fill(c, 22);
                for (int64_t i = 0; i < fwa_tensor_count(c->call.q); i++) {
                    check_set(c->call.q, i, check_get(c->call.q, i) + 15);
                    check_set(c->call.k, i, check_get(c->call.k, i) + (i / 8 < spec.options.chunk ? 15 : -15));
                }
                case_run(c);
                if (f32 || f) case_compare(c, &cases[0][0], f32 ? extreme_limit(&spec) : 1e-10);
            }
        for (int i = 0; i < 6; i++) case_free(&cases[i / 3][i % 3]);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ugly_shapes),    cmocka_unit_test(test_long),
        cmocka_unit_test(test_shared_heads),   cmocka_unit_test(test_strided_views),
        cmocka_unit_test(test_extreme_keys),   cmocka_unit_test(test_extreme_decay),
        cmocka_unit_test(test_falling_scores),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
