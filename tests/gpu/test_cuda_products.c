// Algorithms of products on CUDA: chosen, written down, taken over by another backend, left alone where deterministic.
#include "tests/gpu/device_check.h"

enum { M = 768, N = 192, K = 8192 }; // a weight gradient: few tiles, a long sum

// d = a^T b with inputs that are functions of the index alone; a host copy of d.
static fwa_tensor multiply(fwa_backend *on, fwa_dtype out) {
    fwa_tensor a = check_new(FWA_F64, K, M, 0, 0), b = check_new(FWA_F64, K, N, 0, 0);
    for (int64_t i = 0; i < fwa_tensor_count(a); i++) check_set(a, i, fwa_rng_uniform(5, 0, (uint64_t)i) - 0.5);
    for (int64_t i = 0; i < fwa_tensor_count(b); i++) check_set(b, i, fwa_rng_uniform(5, 1, (uint64_t)i) - 0.5);
    fwa_tensor da = device_from(on, a, on->compute, 0), db = device_from(on, b, on->compute, 0);
    fwa_tensor d = device_poisoned(on, check_new(FWA_F64, M, N, 0, 0), out, 0);
    check_ok(on->ops->gemm(on->stream, d, da, true, db, false, fwa_tensor_absent(), 1, 0));
    fwa_tensor got = device_read(on, d);
    device_release(on, da, 0);
    device_release(on, db, 0);
    device_release(on, d, 0);
    return got;
}

// The same bits from two backends, of which the second one has taken over what the first one has chosen.
static void choices_are_taken_over(void **state) {
    (void)state;
    for (int i = 0; i < 2; i++) {
        const fwa_dtype act = i ? FWA_BF16 : FWA_F32;
        fwa_backend *first = device_open(act), *second = device_open(act);
        char *records = NULL, *again = NULL;
        int taken = 0, passed_over = 0;
        fwa_tensor one = multiply(first, FWA_F32), two = multiply(first, act);
        check_ok(first->choices(first, &records));
        print_message("%s", records);
        check_ok(second->choose(second, records, &taken, &passed_over));
        assert_int_equal(taken, i ? 2 : 1);
        assert_int_equal(passed_over, 0);
        check_ok(second->choose(second, records, &taken, &passed_over)); // in place of the same
        check_ok(second->choices(second, &again));
        assert_string_equal(records, again);
        assert_int_equal(check_differences(one, multiply(second, FWA_F32)), 0);
        assert_int_equal(check_differences(two, multiply(second, act)), 0);
        free(again);
        check_ok(second->choices(second, &again)); // and nothing was chosen anew
        assert_string_equal(records, again);
        free(again);
        free(records);
        first->destroy(first);
        second->destroy(second);
        check_release(NULL);
    }
}

// `records` with the text `from` replaced by `to`.
static char *changed(const char *records, const char *from, const char *to) {
    const char *at = strstr(records, from);
    if (!at) fail_msg("no '%s' in %s", from, records);
    const size_t size = strlen(records) + strlen(to) + 1;
    char *text = malloc(size);
    snprintf(text, size, "%.*s%s%s", (int)(at - records), records, to, at + strlen(from));
    return text;
}

static void foreign_records_are_passed_over(void **state) {
    (void)state;
    const char *const changes[][2] = {
        {"operator=gemm", "operator=other"},
        {"device=", "device=Another "},
        {"cublaslt=", "cublaslt=9"},
        {"M=768", "M="},
        {"M=768", "M=-1"},
        {"inputs=bf16", "inputs=i32"},
        {"transpose_a=1", "transpose_a=2"},
        {"algorithm=", "algorithm=7777"},
        {"tile=", "tile=99999"},
        {
            "split_k=",
            "split=",
        },
    };
    fwa_backend *first = device_open(FWA_BF16), *second = device_open(FWA_BF16);
    char *records = NULL, *own = NULL;
    (void)multiply(first, FWA_F32);
    check_ok(first->choices(first, &records));
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        int taken = 5, passed_over = 5;
        char *foreign = changed(records, changes[i][0], changes[i][1]);
        check_ok(second->choose(second, foreign, &taken, &passed_over));
        if (taken != 0 || passed_over != 1) fail_msg("%s: %d taken, %d not", foreign, taken, passed_over);
        free(foreign);
    }
    check_ok(second->choices(second, &own));
    assert_string_equal(own, "");
    free(own);
    free(records);
    first->destroy(first);
    second->destroy(second);
    check_release(NULL);
}

static void deterministic_backends_choose_by_rule(void **state) {
    (void)state;
    fwa_backend *measured = device_open(FWA_BF16), *b[2] = {device_open(FWA_BF16), device_open(FWA_BF16)};
    char *records = NULL, *none = NULL;
    int taken = 5, passed_over = 5;
    fwa_tensor got[2], near = multiply(measured, FWA_F32);
    check_ok(measured->choices(measured, &records));
    for (int i = 0; i < 2; i++) {
        b[i]->deterministic = true;
        if (i) check_ok(b[i]->choose(b[i], records, &taken, &passed_over));
        got[i] = multiply(b[i], FWA_F32);
        check_ok(b[i]->choices(b[i], &none));
        assert_string_equal(none, "");
        free(none);
    }
    assert_int_equal(taken + passed_over, 0);
    assert_int_equal(check_differences(got[0], got[1]), 0);
    check_close(got[0], near, 1e-5);
    free(records);
    measured->destroy(measured);
    for (int i = 0; i < 2; i++) b[i]->destroy(b[i]);
    check_release(NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(choices_are_taken_over),
        cmocka_unit_test(foreign_records_are_passed_over),
        cmocka_unit_test(deterministic_backends_choose_by_rule),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
