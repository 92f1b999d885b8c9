// Drawing the next token: frequencies are those of the softmax, cut as top_k and top_p say; a draw is a function of
// seed and position.
#include <math.h>

#include "check.h"
#include "train/eval/sampler.h"

enum { IDS = 7, DRAWS = 20000 };
static const double logits[IDS] = {0.3, 1.5, -2.0, 1.5, 0.9, -INFINITY, 0.0};
static const int order[IDS] = {1, 3, 4, 0, 6, 2, 5}; // most probable first

static void count_draws(const fwa_sampling *how, double share[IDS]) {
    fwa_sampler sampler;
    check_ok(fwa_sampler_open(&sampler, how, IDS));
    for (int i = 0; i < IDS; i++) share[i] = 0.0;
    for (int64_t n = 0; n < DRAWS; n++) {
        int32_t id;
        check_ok(fwa_sampler_draw(&sampler, logits, n, &id));
        assert_in_range(id, 0, IDS - 1);
        share[id] += 1.0 / DRAWS;
    }
    fwa_sampler_close(&sampler);
}

// Only the first `kept` of the order, in proportion.
static void check_frequencies(const fwa_sampling *how, int kept) {
    double share[IDS], sum = 0.0;
    count_draws(how, share);
    for (int i = 0; i < kept; i++) sum += exp(logits[order[i]] / how->temperature);
    for (int i = 0; i < IDS; i++) {
        const double p = i < kept ? exp(logits[order[i]] / how->temperature) / sum : 0.0;
        const double error = 4.5 * sqrt(p * (1.0 - p) / DRAWS) + 1e-9; // standard errors; rounding of the sum
        if (fabs(share[order[i]] - p) > error)
            fail_msg("id %d: share %.4f, expected %.4f +- %.4f", order[i], share[order[i]], p, error);
    }
}

static void test_frequencies(void **state) {
    (void)state;
    // Shares at temperature 1: 0.324 0.324 0.178 0.098 0.072 0.010
    const struct {
        double temperature;
        int64_t top_k;
        double top_p;
        int kept;
    } cases[] = {
        {1.0, 0, 1.0, 6},  {0.5, 0, 1.0, 6}, {2.5, 0, 1.0, 6}, {1.0, 1, 1.0, 1},  {1.0, 2, 1.0, 2},
        {1.0, 5, 1.0, 5},  {1.0, 9, 1.0, 6}, {1.0, 0, 0.3, 1}, {1.0, 0, 0.6, 2},  {1.0, 0, 0.66, 3},
        {1.0, 0, 0.93, 5}, {1.0, 3, 0.9, 3}, {1.0, 3, 0.7, 2}, {1.0, 4, 1e-9, 1}, {1.5, 4, 0.99, 4},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const fwa_sampling how = {cases[i].temperature, cases[i].top_k, cases[i].top_p, i};
        check_frequencies(&how, cases[i].kept);
    }
}

static void test_greedy_takes_the_first_of_equals(void **state) {
    (void)state;
    double share[IDS];
    count_draws(&(fwa_sampling){.temperature = 0.0, .top_k = 3, .top_p = 0.5}, share);
    assert_true(share[1] > 0.999);
}

static void test_draws_are_functions_of_seed_and_position(void **state) {
    (void)state;
    int differ = 0;
    fwa_sampler a, b, other;
    const fwa_sampling how = {1.0, 0, 1.0, 5}, another = {1.0, 0, 1.0, 6};
    check_ok(fwa_sampler_open(&a, &how, IDS));
    check_ok(fwa_sampler_open(&b, &how, IDS));
    check_ok(fwa_sampler_open(&other, &another, IDS));
    for (int64_t n = 0; n < 100; n++) {
        int32_t x, y, z;
        check_ok(fwa_sampler_draw(&a, logits, 99 - n, &x));
        check_ok(fwa_sampler_draw(&b, logits, 99 - n, &y));
        check_ok(fwa_sampler_draw(&other, logits, 99 - n, &z));
        assert_int_equal(x, y);
        differ += x != z;
    }
    assert_true(differ > 20);
    fwa_sampler_close(&a);
    fwa_sampler_close(&b);
    fwa_sampler_close(&other);
}

static void test_what_is_no_number_is_refused(void **state) {
    (void)state;
    fwa_sampler sampler;
    int32_t id;
    double wrong[IDS] = {0};
    check_ok(fwa_sampler_open(&sampler, &(fwa_sampling){1.0, 0, 1.0, 0}, IDS));
    wrong[4] = NAN;
    assert_int_equal(fwa_sampler_draw(&sampler, wrong, 0, &id), FWA_NONFINITE);
    wrong[4] = INFINITY;
    assert_int_equal(fwa_sampler_draw(&sampler, wrong, 0, &id), FWA_NONFINITE);
    for (int i = 0; i < IDS; i++) wrong[i] = -INFINITY;
    assert_int_equal(fwa_sampler_draw(&sampler, wrong, 0, &id), FWA_NONFINITE);
    fwa_sampler_close(&sampler);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_frequencies),
        cmocka_unit_test(test_greedy_takes_the_first_of_equals),
        cmocka_unit_test(test_draws_are_functions_of_seed_and_position),
        cmocka_unit_test(test_what_is_no_number_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
