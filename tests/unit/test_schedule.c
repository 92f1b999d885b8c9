// Learning rates: exact end points, monotone ways up and down, wsd's plateau, odd lengths, against closed formulas.
#include "tests/check.h"

#include "train/schedule.h"

static fwa_config make(fwa_schedule_kind kind, int64_t steps, int64_t warmup) {
    fwa_config config;
    memset(&config, 0, sizeof config);
    config.optimizer.lr = 1e-3;
    config.schedule.kind = (int)kind;
    config.schedule.warmup = warmup;
    config.schedule.min_lr = 5e-5;
    config.schedule.decay_fraction = 0.2;
    config.train.steps = steps;
    return config;
}

static void test_end_points(void **state) {
    (void)state;
    static const int64_t sizes[][2] = {{100000, 2000}, {1000, 50}, {2000, 200}, {13, 3}, {7, 1}, {3, 2}};
    for (int kind = FWA_SCHEDULE_COSINE; kind <= FWA_SCHEDULE_CONSTANT; kind++) {
        for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
            const int64_t steps = sizes[s][0], warmup = sizes[s][1];
            const fwa_config config = make((fwa_schedule_kind)kind, steps, warmup);
            const double last = kind == FWA_SCHEDULE_CONSTANT ? config.optimizer.lr : config.schedule.min_lr;
            assert_true(fwa_schedule_rate(&config, 1) == config.optimizer.lr / (double)warmup);
            assert_true(fwa_schedule_rate(&config, warmup) == config.optimizer.lr);
            assert_true(fwa_schedule_rate(&config, steps) == last);
            assert_true(fwa_schedule_rate(&config, steps + 1) == last);
            assert_true(fwa_schedule_rate(&config, 10 * steps) == last);
        }
    }
}

static void test_monotone(void **state) {
    (void)state;
    for (int kind = FWA_SCHEDULE_COSINE; kind <= FWA_SCHEDULE_CONSTANT; kind++) {
        const fwa_config config = make((fwa_schedule_kind)kind, 1000, 70);
        for (int64_t n = 1; n < 1000; n++) {
            const double now = fwa_schedule_rate(&config, n), next = fwa_schedule_rate(&config, n + 1);
            if (n < 70)
                assert_true(next > now);
            else if (kind == FWA_SCHEDULE_COSINE || kind == FWA_SCHEDULE_LINEAR)
                assert_true(next < now);
            else
                assert_true(next <= now);
        }
    }
}

static void assert_near(double got, double expected) {
    if (!(fabs(got - expected) <= 1e-15)) fail_msg("got %.17g, expected %.17g", got, expected);
}

static void test_formulas(void **state) {
    (void)state;
    fwa_config config = make(FWA_SCHEDULE_COSINE, 1000, 200);
    assert_near(fwa_schedule_rate(&config, 50), 1e-3 * 50 / 200);
    assert_near(fwa_schedule_rate(&config, 600), (1e-3 + 5e-5) / 2);
    assert_near(fwa_schedule_rate(&config, 400), 5e-5 + 0.5 * (1e-3 - 5e-5) * (1 + sqrt(0.5)));
    config.schedule.kind = FWA_SCHEDULE_LINEAR;
    assert_near(fwa_schedule_rate(&config, 800), 1e-3 - 0.75 * (1e-3 - 5e-5));
}

static void test_wsd(void **state) {
    (void)state;
    const fwa_config config = make(FWA_SCHEDULE_WSD, 1000, 100);
    for (int64_t n = 100; n <= 800; n++) assert_true(fwa_schedule_rate(&config, n) == 1e-3);
    assert_true(fwa_schedule_rate(&config, 801) < 1e-3);
    assert_near(fwa_schedule_rate(&config, 900), (1e-3 + 5e-5) / 2);
    assert_near(fwa_schedule_rate(&config, 999), 5e-5 + (1e-3 - 5e-5) / 200);
}

// A decay longer than what the warm-up leaves, and one of no length.
static void test_wsd_extremes(void **state) {
    (void)state;
    fwa_config config = make(FWA_SCHEDULE_WSD, 100, 60);
    config.schedule.decay_fraction = 0.9;
    assert_true(fwa_schedule_rate(&config, 60) == 1e-3);
    assert_near(fwa_schedule_rate(&config, 80), (1e-3 + 5e-5) / 2);
    assert_true(fwa_schedule_rate(&config, 100) == 5e-5);
    config.schedule.decay_fraction = 0;
    assert_true(fwa_schedule_rate(&config, 99) == 1e-3);
    assert_true(fwa_schedule_rate(&config, 100) == 5e-5);
}

static void test_no_warmup(void **state) {
    (void)state;
    const fwa_config config = make(FWA_SCHEDULE_COSINE, 10, 0);
    assert_true(fwa_schedule_rate(&config, 1) == 1e-3);
    assert_true(fwa_schedule_rate(&config, 2) < 1e-3);
    assert_true(fwa_schedule_rate(&config, 10) == 5e-5);
}

static void test_warmup_only(void **state) {
    (void)state;
    for (int kind = FWA_SCHEDULE_COSINE; kind <= FWA_SCHEDULE_CONSTANT; kind++) {
        fwa_config config = make((fwa_schedule_kind)kind, 20, 20);
        assert_near(fwa_schedule_rate(&config, 19), 1e-3 * 19 / 20);
        assert_true(fwa_schedule_rate(&config, 20) == 1e-3);
        assert_true(fwa_schedule_rate(&config, 21) == 1e-3);
        config.train.steps = 10;
        assert_near(fwa_schedule_rate(&config, 10), 1e-3 / 2);
        config = make((fwa_schedule_kind)kind, 1, 0);
        assert_true(fwa_schedule_rate(&config, 1) == 1e-3);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_end_points),  cmocka_unit_test(test_monotone),     cmocka_unit_test(test_formulas),
        cmocka_unit_test(test_wsd),         cmocka_unit_test(test_wsd_extremes), cmocka_unit_test(test_no_warmup),
        cmocka_unit_test(test_warmup_only),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
