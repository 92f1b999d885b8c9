// What the first loss of a bench's step must be: of logits that are known, and whether other losses are noticed.
#include "tests/check.h"

#include <math.h>

#include "train/bench/guess.h"

enum { IDS = 7, WIDTH = 2 };

static fwa_bench_guess guess_of(const double n[WIDTH], const double E[][WIDTH], double scale) {
    double columns[WIDTH][FWA_GUESS_ROWS];
    fwa_bench_guess guess = {0};
    const fwa_model_spec model = {.D = WIDTH, .N = IDS + 1, .vocab = IDS, .logit_scale = scale};
    for (int d = 0; d < WIDTH; d++)
        for (int r = 0; r < FWA_GUESS_ROWS; r++) columns[d][r] = n[d];
    check_ok(fwa_bench_guess_add(&guess, &columns[0][0], E, FWA_F64, &model));
    return guess;
}

static void equal_logits_leave_the_uniform_guess(void **state) {
    (void)state;
    const double n[WIDTH] = {1, -1}, E[IDS + 1][WIDTH] = {{0}};
    const fwa_bench_guess guess = guess_of(n, E, 8);
    assert_true(guess.rows == FWA_GUESS_ROWS && fabs(guess.loss / guess.rows - log(IDS)) < 1e-12);
    assert_true(fabs(guess.squares / guess.rows - log(IDS) * log(IDS)) < 1e-12 && guess.spread == 0);
}

// Logits 0 but for one, 8 * 0.5; the id behind the vocabulary has no probability.
static void the_logit_scale_counts_and_ids_that_do_not_exist_do_not(void **state) {
    (void)state;
    const double n[WIDTH] = {0.5, 3}, E[IDS + 1][WIDTH] = {{0}, {0}, {1, 0}, {0}, {0}, {0}, {0}, {100, 100}};
    const fwa_bench_guess guess = guess_of(n, E, 8);
    assert_true(fabs(guess.loss / guess.rows - (log(IDS - 1 + exp(4)) - 4.0 / IDS)) < 1e-12);
    assert_true(fabs(guess.spread / guess.rows - (16.0 / IDS - pow(4.0 / IDS, 2))) < 1e-12);
}

static void other_losses_are_noticed(void **state) {
    (void)state;
    const fwa_bench_guess guess = {.rows = 100, .loss = 710, .squares = 5042, .spread = 324}; // 7.1 +- 0.1, +- 1.8
    check_ok(fwa_bench_guess_check(&guess, 7.2, 2048));
    check_status(fwa_bench_guess_check(&guess, log(257), 2048), FWA_FAULTY);
    check_status(fwa_bench_guess_check(&guess, 7.5, 2048), FWA_FAULTY);
    check_status(fwa_bench_guess_check(&guess, (double)NAN, 2048), FWA_FAULTY);
    check_ok(fwa_bench_guess_check(&guess, 7.5, 128)); // chance
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_logits_leave_the_uniform_guess),
        cmocka_unit_test(the_logit_scale_counts_and_ids_that_do_not_exist_do_not),
        cmocka_unit_test(other_losses_are_noticed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
