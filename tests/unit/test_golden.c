// Golden answers: every rule of the registry, every case file of it, every form, several chunk sizes, in double and
// float. Cases stand in tests/golden; where FWA_GOLDEN_DIR names the full set, that is used instead.
#include <dirent.h>

#include "golden.h"

// The answers are in double from another order of summation, and cases with strong decay or long chains of writes lose
// digits: far above rounding in either precision, far below what a wrong term makes.
#define LIMIT_F64 1e-9
#define LIMIT_F32 1e-4

typedef struct worst {
    double error;
    char where[160];
} worst;

static const char *golden_folder(void) {
    const char *folder = getenv("FWA_GOLDEN_DIR");
    return folder && folder[0] ? folder : FWA_SOURCE_DIR "/tests/golden";
}

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
        fail_msg("%s, form %d, chunk %lld, %s: %s: error %.3g, limit %.3g", name, (int)spec.form,
                 (long long)spec.options.chunk, fwa_dtype_name(spec.dtype), tensor, error, limit);
    if (error > record->error) {
        record->error = error;
        snprintf(record->where, sizeof record->where, "%s, %s, form %d, chunk %lld", name, tensor, (int)spec.form,
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

static void run_file(const char *name, const fwa_rule *rule, worst record[2]) {
    char path[512];
    snprintf(path, sizeof path, "%s/%s", golden_folder(), name);
    hid_t file = H5Fopen(path, H5F_ACC_RDONLY, H5P_DEFAULT);
    if (file < 0) fail_msg("cannot open %s", path);
    case_spec spec = golden_spec(file, rule);
    spec.dtype = FWA_F64;
    run_forms(file, name, spec, &record[0]);
    spec.dtype = FWA_F32;
    run_forms(file, name, spec, &record[1]);
    H5Fclose(file);
}

// The rule attribute of a file is this rule's name; a name with _normalized is that of the rule's normalised read.
static bool file_is_of(const char *name, const char *rule) {
    char path[512], text[64];
    if (strlen(name) < 4 || strcmp(name + strlen(name) - 3, ".h5") != 0) return false;
    snprintf(path, sizeof path, "%s/%s", golden_folder(), name);
    hid_t file = H5Fopen(path, H5F_ACC_RDONLY, H5P_DEFAULT);
    if (file < 0) fail_msg("cannot open %s", path);
    golden_rule(file, text);
    H5Fclose(file);
    char *suffix = strstr(text, "_normalized");
    if (suffix) *suffix = '\0';
    return strcmp(text, rule) == 0;
}

static void test_golden(void **state) {
    (void)state;
    for (int i = 0; i < fwa_rule_count(); i++) {
        const fwa_rule *rule = fwa_rule_at(i);
        worst record[2] = {{0}};
        int files = 0;
        DIR *folder = opendir(golden_folder());
        if (!folder) fail_msg("cannot read %s", golden_folder());
        for (struct dirent *entry = readdir(folder); entry; entry = readdir(folder)) {
            if (!file_is_of(entry->d_name, rule->name)) continue;
            run_file(entry->d_name, rule, record);
            files++;
        }
        closedir(folder);
        if (!files) fail_msg("no golden case of %s in %s", rule->name, golden_folder());
        print_message("%s: %d cases; worst f64 %.2g (%s), f32 %.2g (%s)\n", rule->name, files, record[0].error,
                      record[0].where, record[1].error, record[1].where);
    }
}

// A NaN in a tensor is not hidden by the finite error of a later one.
static void test_nan_is_an_error(void **state) {
    (void)state;
    const char *tensor;
    int compared;
    hid_t file = H5Fopen(FWA_SOURCE_DIR "/tests/golden/falcon1_basic.h5", H5F_ACC_RDONLY, H5P_DEFAULT);
    assert_true(file >= 0);
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
