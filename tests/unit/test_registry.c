// The registry: rules, operator tables and backends are found by name, and what is missing says so.
#include "tests/check.h"

#include <omp.h>

#include "kernels/backends.h"
#include "kernels/registry.h"

static void every_rule_is_found_by_name(void **state) {
    (void)state;
    const char *const names[] = {
#define FWA_MIXER(name, backends) #name,
#include "kernels/mixers.def"
#undef FWA_MIXER
    };
    const int count = (int)(sizeof names / sizeof names[0]);
    assert_int_equal(fwa_rule_count(), count);
    for (int i = 0; i < count; i++) {
        const fwa_rule *rule = fwa_rule_find(names[i]);
        if (!rule) fail_msg("fwa_rule_%s: its name is '%s'", names[i], fwa_rule_at(i)->name);
        assert_ptr_equal(rule, fwa_rule_at(i));
        assert_string_equal(rule->name, names[i]);
        assert_true(fwa_rule_on_backend(names[i], FWA_BACKEND_CPU));
    }
}

static void unknown_rules_are_null(void **state) {
    (void)state;
    assert_null(fwa_rule_find("no_such_rule"));
    assert_null(fwa_rule_find(""));
    assert_null(fwa_rule_at(-1));
    assert_null(fwa_rule_at(fwa_rule_count()));
    assert_false(fwa_rule_on_backend("no_such_rule", FWA_BACKEND_CPU));
    assert_false(fwa_rule_on_backend("no_such_rule", FWA_BACKEND_CUDA));
}

static void limits_name_rules_that_exist(void **state) {
    (void)state;
    for (int i = 0; i < fwa_rule_count(); i++) {
        const fwa_rule_limit *limit = fwa_rule_at(i)->limits;
        for (; limit && limit->equals; limit++) {
            if (!fwa_rule_find(limit->equals)) fail_msg("%s: limit '%s'", fwa_rule_at(i)->name, limit->equals);
            assert_non_null(limit->condition);
        }
    }
}

static void mixers_follow_the_precision(void **state) {
    (void)state;
    const fwa_dtype precisions[] = {FWA_F32, FWA_F64};
    const fwa_mixer *found[2];
    for (int i = 0; i < fwa_rule_count(); i++) {
        const fwa_rule *rule = fwa_rule_at(i);
        for (int p = 0; p < 2; p++) {
            fwa_backend *backend;
            check_ok(fwa_backend_create(&backend, FWA_BACKEND_CPU, precisions[p], 0, 1));
            check_ok(fwa_mixer_find(backend, rule, &found[p]));
            assert_ptr_equal(found[p]->rule, rule);
            assert_non_null(found[p]->sizes);
            assert_non_null(found[p]->forward);
            assert_non_null(found[p]->backward);
            backend->destroy(backend);
        }
        assert_ptr_not_equal(found[0], found[1]);
    }
}

static void a_rule_without_kernels_is_refused_by_name(void **state) {
    (void)state;
    const fwa_rule foreign = {.name = "no_such_rule"};
    const fwa_mixer *mixer = NULL;
    fwa_backend *backend;
    check_ok(fwa_backend_create(&backend, FWA_BACKEND_CPU, FWA_F32, 0, 1));
    check_status(fwa_mixer_find(backend, &foreign, &mixer), FWA_UNSUPPORTED);
    assert_non_null(strstr(fwa_error_message(), "no_such_rule"));
    assert_non_null(strstr(fwa_error_message(), "cpu"));
    backend->destroy(backend);
}

static void assert_table_full(const fwa_ops *ops) {
#define FWA_OP(backends, name, parameters, arguments) assert_true(ops->name != NULL);
#include "kernels/ops.def"
#undef FWA_OP
}

static void tables_have_no_null_entry(void **state) {
    (void)state;
    const fwa_dtype precisions[] = {FWA_F32, FWA_F64};
    for (int p = 0; p < 2; p++) {
        fwa_backend *backend;
        check_ok(fwa_backend_create(&backend, FWA_BACKEND_CPU, precisions[p], 0, 1));
        assert_table_full(backend->ops);
        check_ok(fwa_backend_complete(backend));
        backend->destroy(backend);
    }
    assert_table_full(&fwa_ops_missing_cuda_f32);
    assert_table_full(&fwa_ops_missing_cuda_bf16);
}

static void operators_are_listed(void **state) {
    (void)state;
    bool found = false;
    for (int i = 0; i < fwa_op_count(); i++) {
        assert_true(fwa_op_on_backend(i, FWA_BACKEND_CPU));
        if (strcmp(fwa_op_name(i), "rmsnorm_forward") != 0) continue;
        found = true;
        assert_true(fwa_op_on_backend(i, FWA_BACKEND_CUDA));
    }
    assert_true(found);
    assert_null(fwa_op_name(-1));
    assert_null(fwa_op_name(fwa_op_count()));
    assert_false(fwa_op_on_backend(fwa_op_count(), FWA_BACKEND_CPU));
}

static void missing_operators_say_their_name(void **state) {
    (void)state;
    fwa_tensor none = fwa_tensor_absent();
    check_status(fwa_ops_missing_cuda_bf16.rotary(NULL, none, none, 0, 10000.0, false), FWA_UNSUPPORTED);
    assert_non_null(strstr(fwa_error_message(), "'rotary'"));
    assert_non_null(strstr(fwa_error_message(), "cuda"));
    assert_non_null(strstr(fwa_error_message(), "bf16"));
    check_status(fwa_ops_missing_cuda_f32.add(NULL, none, none), FWA_UNSUPPORTED);
    assert_non_null(strstr(fwa_error_message(), "'add'"));
    assert_non_null(strstr(fwa_error_message(), "f32"));
}

// Whether `name` stands in `message` as a whole entry of the list in brackets.
static bool lists(const char *message, const char *name) {
    for (const char *at = strstr(message, name); at; at = strstr(at + 1, name)) {
        char before = at == message ? 0 : at[-1], after = at[strlen(name)];
        if ((before == '(' || before == ' ') && (after == ',' || after == ')')) return true;
    }
    return false;
}

// The list in the message is exactly what ops.def does not mark CPU_CUDA; known without a GPU.
static void an_incomplete_table_is_refused_with_its_gaps(void **state) {
    (void)state;
    const fwa_backend cuda = {.kind = FWA_BACKEND_CUDA, .name = "cuda", .compute = FWA_BF16, .master = FWA_F32};
    int gaps = 0;
    for (int i = 0; i < fwa_op_count(); i++) gaps += !fwa_op_on_backend(i, FWA_BACKEND_CUDA);
    check_status(fwa_backend_complete(&cuda), gaps ? FWA_UNSUPPORTED : FWA_OK);
    for (int i = 0; gaps && i < fwa_op_count(); i++) {
        bool listed = lists(fwa_error_message(), fwa_op_name(i));
        if (listed == fwa_op_on_backend(i, FWA_BACKEND_CUDA)) fail_msg("%s: %s", fwa_op_name(i), fwa_error_message());
    }
}

static void backends_refuse_foreign_precisions(void **state) {
    (void)state;
    fwa_backend *backend = (fwa_backend *)(uintptr_t)1;
    check_status(fwa_backend_create(&backend, FWA_BACKEND_CPU, FWA_BF16, 0, 1), FWA_UNSUPPORTED);
    assert_null(backend);
    assert_non_null(strstr(fwa_error_message(), "bf16"));
    assert_non_null(strstr(fwa_error_message(), "f32"));
    check_status(fwa_backend_create(&backend, FWA_BACKEND_CPU, FWA_I32, 0, 1), FWA_UNSUPPORTED);
    check_status(fwa_backend_create(&backend, FWA_BACKEND_CUDA, FWA_F64, 0, 1), FWA_UNSUPPORTED);
    assert_non_null(strstr(fwa_error_message(), "f64"));
    check_status(fwa_backend_create(&backend, FWA_BACKEND_CPU, FWA_F32, 1, 1), FWA_UNSUPPORTED);
    check_status(fwa_backend_create(&backend, FWA_BACKEND_CPU, FWA_F32, 0, -1), FWA_CONFIG);
}

// Any precision can be planned for, with the rules' sizes of the CPU.
static void plans_need_no_device(void **state) {
    (void)state;
    const fwa_dtype precisions[] = {FWA_F64, FWA_F32, FWA_BF16};
    for (int p = 0; p < 3; p++) {
        fwa_backend *backend;
        const fwa_mixer *mixer = NULL;
        check_ok(fwa_backend_create_plan(&backend, precisions[p], 1));
        assert_true(backend->plan_only);
        assert_int_equal(backend->compute, precisions[p]);
        assert_int_equal(backend->master, precisions[p] == FWA_F64 ? FWA_F64 : FWA_F32);
        for (int i = 0; i < fwa_rule_count(); i++) {
            check_ok(fwa_mixer_find(backend, fwa_rule_at(i), &mixer));
            assert_ptr_equal(mixer->rule, fwa_rule_at(i));
        }
        backend->destroy(backend);
    }
}

// Scratch grows with threads, and a plan leaves those of the process alone.
static void plans_count_threads(void **state) {
    (void)state;
    fwa_backend *backend;
    const int threads = omp_get_max_threads();
    check_ok(fwa_backend_create_plan(&backend, FWA_F32, threads + 3));
    assert_int_equal(backend->threads, threads + 3);
    assert_int_equal(omp_get_max_threads(), threads);
    backend->destroy(backend);
}

static void cuda_is_there_or_says_why_not(void **state) {
    (void)state;
    fwa_backend *backend;
    char text[256];
    int devices = fwa_backend_device_count(FWA_BACKEND_CUDA);
    if (devices > 0) {
        check_status(fwa_backend_create(&backend, FWA_BACKEND_CUDA, FWA_BF16, devices, 1), FWA_UNSUPPORTED);
        assert_non_null(strstr(fwa_error_message(), "visible"));
        return;
    }
    check_status(fwa_backend_create(&backend, FWA_BACKEND_CUDA, FWA_BF16, 0, 1), FWA_UNSUPPORTED);
    const char *message = fwa_error_message();
    if (fwa_backend_built(FWA_BACKEND_CUDA))
        assert_true(strstr(message, "driver") || strstr(message, "no CUDA device"));
    else
        assert_non_null(strstr(message, "FWA_CUDA=ON"));
    check_status(fwa_backend_describe(FWA_BACKEND_CUDA, 0, text, sizeof text), FWA_UNSUPPORTED);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_rule_is_found_by_name),
        cmocka_unit_test(unknown_rules_are_null),
        cmocka_unit_test(limits_name_rules_that_exist),
        cmocka_unit_test(mixers_follow_the_precision),
        cmocka_unit_test(a_rule_without_kernels_is_refused_by_name),
        cmocka_unit_test(tables_have_no_null_entry),
        cmocka_unit_test(operators_are_listed),
        cmocka_unit_test(missing_operators_say_their_name),
        cmocka_unit_test(an_incomplete_table_is_refused_with_its_gaps),
        cmocka_unit_test(backends_refuse_foreign_precisions),
        cmocka_unit_test(plans_need_no_device),
        cmocka_unit_test(plans_count_threads),
        cmocka_unit_test(cuda_is_there_or_says_why_not),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
