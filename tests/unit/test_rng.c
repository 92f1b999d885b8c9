// Philox against its published answers, and the distributions drawn from it.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/rng.h"

static void test_known_answers(void **state) {
    (void)state;
    const struct {
        uint64_t key, high, low;
        uint32_t out[4];
    } cases[] = {
        {0, 0, 0, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {UINT64_MAX, UINT64_MAX, UINT64_MAX, {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {0x299f31d0a4093822, 0x0370734413198a2e, 0x85a308d3243f6a88, {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint32_t out[4];
        fwa_philox(cases[i].key, cases[i].high, cases[i].low, out);
        for (int j = 0; j < 4; j++) assert_int_equal(out[j], cases[i].out[j]);
    }
    assert_true(fwa_rng_u64(0, 0, 0) == 0xe169c58d6627e8d5);
}

static void test_draws_are_functions_of_all_three(void **state) {
    (void)state;
    uint64_t draw = fwa_rng_u64(1, 2, 3);
    assert_true(draw == fwa_rng_u64(1, 2, 3));
    assert_true(draw != fwa_rng_u64(2, 2, 3));
    assert_true(draw != fwa_rng_u64(1, 3, 3));
    assert_true(draw != fwa_rng_u64(1, 2, 4));
    assert_true(fwa_rng_u64(1, 2, (uint64_t)1 << 40) != fwa_rng_u64(1, 2, 0));
}

static void test_uniform(void **state) {
    (void)state;
    enum { N = 200000 };
    double sum = 0, square = 0;
    for (uint64_t i = 0; i < N; i++) {
        double u = fwa_rng_uniform(7, 1, i);
        assert_true(u >= 0 && u < 1);
        sum += u;
        square += u * u;
    }
    assert_true(fabs(sum / N - 0.5) < 5 * sqrt(1.0 / 12 / N)); // five standard errors
    assert_true(fabs(square / N - 1.0 / 3) < 5 * sqrt(4.0 / 45 / N));
}

static void test_normal(void **state) {
    (void)state;
    enum { N = 200000 };
    double moment[5] = {0}, within = 0;
    for (uint64_t i = 0; i < N; i++) {
        double x = fwa_rng_normal(7, 2, i), power = 1;
        assert_true(isfinite(x));
        for (int j = 0; j < 5; j++, power *= x) moment[j] += power / N;
        within += fabs(x) < 1;
    }
    assert_true(fabs(moment[1]) < 5 / sqrt(N));
    assert_true(fabs(moment[2] - 1) < 5 * sqrt(2.0 / N));
    assert_true(fabs(moment[3]) < 5 * sqrt(15.0 / N));
    assert_true(fabs(moment[4] - 3) < 5 * sqrt(96.0 / N));
    assert_true(fabs(within / N - 0.682689) < 5 * sqrt(0.2166 / N));
}

static void test_below(void **state) {
    (void)state;
    enum { N = 70000, BOUND = 7 };
    int count[BOUND] = {0};
    for (uint64_t i = 0; i < N; i++) {
        uint64_t x = fwa_rng_below(7, 3, i, BOUND);
        assert_true(x < BOUND);
        count[x]++;
    }
    for (int i = 0; i < BOUND; i++) assert_true(abs(count[i] - N / BOUND) < 5 * 93); // sqrt(10000 * 6/7) = 93
    assert_int_equal(fwa_rng_below(7, 3, 0, 1), 0);
    assert_true(fwa_rng_below(7, 3, 0, UINT64_MAX) > 0);
}

static void assert_permutation(uint64_t key, uint64_t n) {
    unsigned char *seen = calloc(n, 1);
    assert_non_null(seen);
    for (uint64_t i = 0; i < n; i++) {
        uint64_t image = fwa_rng_permute(key, n, i);
        assert_true(image < n);
        assert_int_equal(seen[image], 0);
        seen[image] = 1;
    }
    free(seen);
}

static void test_permutations(void **state) {
    (void)state;
    const uint64_t sizes[] = {1, 2, 3, 5, 64, 1000, 12345};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (uint64_t key = 0; key < 5; key++) assert_permutation(key, sizes[i]);
}

static void test_permutations_differ(void **state) {
    (void)state;
    enum { N = 1000 };
    int same_key = 0, identity = 0, next = 0;
    for (uint64_t i = 0; i < N; i++) {
        uint64_t a = fwa_rng_permute(1, N, i);
        same_key += a == fwa_rng_permute(2, N, i);
        identity += a == i;
        next += fwa_rng_permute(1, N, (i + 1) % N) == (a + 1) % N;
    }
    assert_true(same_key < 12 && identity < 12 && next < 12); // one of each is expected of a random permutation
    int swapped = 0;
    for (uint64_t key = 0; key < 400; key++) swapped += fwa_rng_permute(key, 2, 0) == 1;
    assert_true(swapped > 150 && swapped < 250);
}

// All 24 orders of four, and where one element of 100 goes, come up evenly over the keys.
static void test_permutations_are_even(void **state) {
    (void)state;
    enum { KEYS = 24000 };
    int orders[256] = {0}, place[100] = {0}, distinct = 0;
    for (uint64_t key = 0; key < KEYS; key++) {
        unsigned order = 0;
        for (uint64_t i = 0; i < 4; i++) order = order << 2 | (unsigned)fwa_rng_permute(key, 4, i);
        orders[order]++;
        place[fwa_rng_permute(key, 100, 17)]++;
    }
    for (int i = 0; i < 256; i++) {
        distinct += orders[i] > 0;
        if (orders[i] > 0) assert_true(abs(orders[i] - KEYS / 24) < 300);
    }
    assert_int_equal(distinct, 24);
    for (int i = 0; i < 100; i++) assert_true(abs(place[i] - KEYS / 100) < 90);
}

static void test_large_permutation(void **state) {
    (void)state;
    const uint64_t n = ((uint64_t)1 << 63) + 12345;
    for (uint64_t i = 0; i < 100; i++) {
        uint64_t image = fwa_rng_permute(3, n, n - 1 - i);
        assert_true(image < n);
        for (uint64_t j = 0; j < i; j++) assert_true(image != fwa_rng_permute(3, n, n - 1 - j));
    }
}

static void test_hash(void **state) {
    (void)state;
    assert_true(fwa_rng_hash("blocks.0.mixer.q.weight") == fwa_rng_hash("blocks.0.mixer.q.weight"));
    assert_true(fwa_rng_hash("blocks.0.mixer.q.weight") != fwa_rng_hash("blocks.1.mixer.q.weight"));
    assert_true(fwa_rng_hash("") != fwa_rng_hash("a"));
    assert_true(fwa_rng_hash("ab") != fwa_rng_hash("ba"));
    // Saved runs depend on it: FNV-1a of "a" is af63dc4c8601ec8c, mixed by the finaliser of splitmix64.
    assert_true(fwa_rng_hash("a") == 0x2c0bdbf481420f8);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_known_answers),
        cmocka_unit_test(test_draws_are_functions_of_all_three),
        cmocka_unit_test(test_uniform),
        cmocka_unit_test(test_normal),
        cmocka_unit_test(test_below),
        cmocka_unit_test(test_permutations),
        cmocka_unit_test(test_permutations_differ),
        cmocka_unit_test(test_permutations_are_even),
        cmocka_unit_test(test_large_permutation),
        cmocka_unit_test(test_hash),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
