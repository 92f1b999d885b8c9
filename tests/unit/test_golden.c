// Golden answers: every rule of the registry, every case file of it, every form, several chunk sizes, in double and
// float. Cases stand in tests/golden; where FWA_GOLDEN_DIR names the full set, that is used instead.
#include "golden.h"

// The answers are in double from another order of summation, and cases with strong decay or long chains of writes lose
// digits: far above rounding in either precision, far below what a wrong term makes.
#define LIMIT_F64 1e-9
#define LIMIT_F32 1e-4

typedef struct worst {
    double error;
    char where[160];
} worst;

static void run_case(hid_t file, const char *name, case_spec spec, worst *record) {
    const char *tensor;
    int compared;
    mixer_case c = case_new(&spec);
    golden_fill(file, &c);
    case_run(&c);
    const double error = golden_error(file, &c, &tensor, &compared);
    const double limit = spec.dtype == FWA_F64 ? LIMIT_F64 : LIMIT_F32;
    assert_true(compared > 0);
    if (!(error <= limit))
        fail_msg("%s, %s, chunk %lld, %s: %s: error %.3g, limit %.3g", name, case_form(&spec),
                 (long long)spec.options.chunk, fwa_dtype_name(spec.dtype), tensor, error, limit);
    if (error > record->error) {
        record->error = error;
        snprintf(record->where, sizeof record->where, "%s, %s, %s, chunk %lld", name, tensor, case_form(&spec),
                 (long long)spec.options.chunk);
    }
    case_free(&c);
    check_release(NULL);
}

static void run_forms(hid_t file, const char *name, case_spec spec, worst *record) {
    const int64_t chunks[] = {1, 5, 16, 64, spec.shape.T};
    for (unsigned form = 1; form <= FWA_FORM_CHUNK; form *= 2) {
        if (!(spec.rule->forms & form)) continue;
        spec.form = (fwa_form)form;
        const size_t count = form == FWA_FORM_CHUNK ? sizeof chunks / sizeof chunks[0] : 1;
        for (size_t i = 0; i < count; i++) {
            spec.options.chunk = chunks[i];
            run_case(file, name, spec, record);
        }
    }
}

static void run_file(hid_t file, const char *name, const fwa_rule *rule, void *user) {
    worst *record = user;
    case_spec spec = golden_spec(file, rule);
    spec.dtype = FWA_F64;
    run_forms(file, name, spec, &record[0]);
    spec.dtype = FWA_F32;
    run_forms(file, name, spec, &record[1]);
}

static void test_golden(void **state) {
    (void)state;
    for (int i = 0; i < fwa_rule_count(); i++) {
        worst record[2] = {{0}};
        const fwa_rule *rule = fwa_rule_at(i);
        const int files = golden_each(rule, run_file, record);
        print_message("%s: %d cases; worst f64 %.2g (%s), f32 %.2g (%s)\n", rule->name, files, record[0].error,
                      record[0].where, record[1].error, record[1].where);
    }
}

// A NaN in a tensor is not hidden by the finite error of a later one.
static void test_nan_is_an_error(void **state) {
    (void)state;
    const char *tensor;
    int compared;
    hid_t file = golden_open("falcon1_basic.h5");
    case_spec spec = golden_spec(file, fwa_rule_find("falcon1"));
    spec.dtype = FWA_F64;
    spec.form = FWA_FORM_RECURRENT;
    mixer_case c = case_new(&spec);
    golden_fill(file, &c);
    case_run(&c);
    check_set(*case_at(&c, case_inputs[0].gradient), 0, (double)NAN);
    assert_true(isnan(golden_error(file, &c, &tensor, &compared)));
    assert_string_equal(tensor, case_inputs[0].name);
    assert_true(compared > 1);
    case_free(&c);
    H5Fclose(file);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_nan_is_an_error, check_release),
        cmocka_unit_test_teardown(test_golden, check_release),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
