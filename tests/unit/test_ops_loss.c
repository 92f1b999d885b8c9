// cross_entropy and loss_accumulate.
#include "ops_check.h"

typedef struct entropy {
    const precision *p;
    int64_t vocab;
    fwa_tensor original, logits, targets, loss, prediction, weights;
    bool gradient;
} entropy;

static entropy make_entropy(const precision *p, int64_t R, int64_t N, int64_t vocab, double size) {
    entropy s = {.p = p,
                 .vocab = vocab,
                 .original = check_new(p->dtype, R, N, 0, 0),
                 .logits = check_new_strided(p->dtype, R, N, 0, 0, 3),
                 .targets = check_new(FWA_I32, R, 0, 0, 0),
                 .loss = check_new(p->dtype, R, 0, 0, 0),
                 .prediction = check_new(FWA_I32, R, 0, 0, 0),
                 .weights = check_new(p->dtype, R, 0, 0, 0)};
    check_fill_normal(s.original, 1, size);
    check_fill_below(s.targets, 2, (uint64_t)vocab);
    check_fill_value(s.weights, 1);
    for (int64_t r = 1; r < R; r += 3) check_set(s.targets, r, -1 - (double)r);
    for (int64_t r = 0; r < R; r++)
        for (int64_t i = vocab; i < N; i++) check_set(s.original, r * N + i, 1000); // must not count
    return s;
}

static void run_entropy(void *context) {
    entropy *s = context;
    check_copy(s->logits, s->original);
    check_ok(s->p->ops->cross_entropy(NULL, s->loss, s->prediction, s->logits, s->targets, s->vocab, s->gradient));
}

static double entropy_value(void *context) {
    entropy *s = context;
    run_entropy(s);
    return check_dot(s->loss, s->weights);
}

static double naive_loss(const entropy *s, int64_t r, fwa_tensor gradient) {
    int64_t N = s->original.shape[1], target = (int64_t)check_get(s->targets, r);
    double largest = -INFINITY, sum = 0;
    for (int64_t i = 0; i < s->vocab; i++) largest = fmax(largest, check_get(s->original, r * N + i));
    for (int64_t i = 0; i < s->vocab; i++) sum += exp(check_get(s->original, r * N + i) - largest);
    for (int64_t i = 0; i < N; i++) {
        double share = i < s->vocab ? exp(check_get(s->original, r * N + i) - largest) / sum : 0;
        check_set(gradient, r * N + i, target < 0 ? 0 : share - (i == target));
    }
    return target < 0 ? 0 : log(sum) + largest - check_get(s->original, r * N + target);
}

static const int64_t sizes[][3] = {{1, 1, 1}, {2, 3, 2}, {3, 65, 65}, {63, 33, 17}, {65, 280, 277}, {3, 50304, 50257}};

static void check_entropy(const precision *p, int64_t R, int64_t N, int64_t vocab, double size) {
    entropy s = make_entropy(p, R, N, vocab, size);
    fwa_tensor loss = check_new(FWA_F64, R, 0, 0, 0), gradient = check_new(FWA_F64, R, N, 0, 0);
    for (int64_t r = 0; r < R; r++) check_set(loss, r, naive_loss(&s, r, gradient));
    for (int with = 0; with < 2; with++) {
        check_fill_value(s.prediction, -7);
        s.gradient = with;
        run_entropy(&s);
        check_close(s.loss, loss, p->limit / 3);
        check_close(s.logits, with ? gradient : s.original, p->limit);
        check_margins(s.logits, 0, 3);
        for (int64_t r = 0; r < R; r++) {
            int64_t best = 0;
            for (int64_t i = 1; i < vocab; i++)
                if (check_get(s.original, r * N + i) > check_get(s.original, r * N + best)) best = i;
            assert_int_equal((int64_t)check_get(s.prediction, r), best);
        }
    }
    s.prediction = fwa_tensor_absent();
    run_entropy(&s);
    check_close(s.logits, gradient, p->limit);
}

static void test_cross_entropy(void **state) {
    for_each_precision(p) {
        for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
            check_entropy(p, sizes[i][0], sizes[i][1], sizes[i][2], 1);
            check_entropy(p, sizes[i][0], sizes[i][1], sizes[i][2], 60);
            check_release(state);
        }
    }
}

// Many equal terms that no float holds exactly: roundings of one long sum all go the same way. Errors in f32: 5e-8,
// without vectors 3.1e-7; of one sum 2e-6 and 3.1e-5. In f64: 3e-16; of one sum 5.8e-14.
static void test_cross_entropy_of_many(void **state) {
    (void)state;
    enum { VOCAB = 50257 };
    for_each_precision(p) {
        entropy s = make_entropy(p, 1, VOCAB, VOCAB, 1);
        check_fill_value(s.original, -log(3));
        check_set(s.original, 7, 0);
        run_entropy(&s);
        const double logit = check_get(s.original, 0), target = check_get(s.original, (int64_t)check_get(s.targets, 0));
        const double expected = log(1 + (VOCAB - 1) * exp(logit)) - target;
        const double error = fabs(check_get(s.loss, 0) - expected) / expected;
        if (!(error <= p->limit / 3)) fail_msg("error %.3g, limit %.3g", error, p->limit / 3);
    }
}

static void test_cross_entropy_gradient(void **state) {
    for (size_t i = 0; i < 4; i++) {
        entropy s = make_entropy(precisions, sizes[i][0], sizes[i][1], sizes[i][2], 2);
        fwa_tensor gradient = check_new(FWA_F64, sizes[i][0], sizes[i][1], 0, 0);
        check_differentiate(entropy_value, &s, s.original, gradient);
        s.gradient = true;
        run_entropy(&s);
        check_close(s.logits, gradient, GRADIENT_LIMIT);
        check_release(state);
    }
}

// Equal largest logits: the first wins. What is not finite reaches the loss, and rows without target do not.
static void test_cross_entropy_edges(void **state) {
    (void)state;
    for_each_precision(p) {
        entropy s = make_entropy(p, 3, 9, 9, 1);
        s.gradient = true;
        check_fill_value(s.original, 2);
        run_entropy(&s);
        assert_int_equal((int)check_get(s.prediction, 0), 0);
        assert_float_equal(check_get(s.loss, 0), log(9), 1e-6);
        check_set(s.original, 3, (double)NAN);
        check_fill_value(fwa_tensor_slice(s.original, 0, 1, 1), (double)NAN);
        check_set(s.original, 2 * 9 + 4, (double)INFINITY);
        run_entropy(&s);
        assert_true(isnan(check_get(s.loss, 0)));
        assert_true(check_get(s.loss, 1) == 0);
        assert_false(isfinite(check_get(s.loss, 2)));
        for (int64_t i = 0; i < 9; i++) assert_true(check_get(s.logits, 9 + i) == 0);
        for (int64_t r = 0; r < 3; r++) {
            assert_true(check_get(s.prediction, r) >= 0);
            assert_true(check_get(s.prediction, r) < 9);
        }
        check_set(s.targets, 0, 9);
        check_status(p->ops->cross_entropy(NULL, s.loss, s.prediction, s.logits, s.targets, 9, true), FWA_ERROR);
        check_status(p->ops->cross_entropy(NULL, s.loss, s.prediction, s.logits, s.targets, 10, true), FWA_ERROR);
    }
}

static void test_cross_entropy_threads(void **state) {
    (void)state;
    for_each_precision(p) {
        entropy s = make_entropy(p, 65, 2000, 1999, 3);
        s.gradient = true;
        check_threads(run_entropy, &s, (fwa_tensor[]){s.logits, s.loss, s.prediction}, 3);
    }
}

static void test_loss_accumulate(void **state) {
    (void)state;
    for_each_precision(p) {
        fwa_tensor loss = check_new(p->dtype, 65, 0, 0, 0), targets = check_new(FWA_I32, 65, 0, 0, 0);
        check_fill_uniform(loss, 1, 0, 10);
        check_fill_below(targets, 2, 3);
        double sum = 5, valid = 7;
        for (int64_t r = 0; r < 65; r++) {
            check_set(targets, r, check_get(targets, r) - 1);
            sum += check_get(loss, r);
            valid += check_get(targets, r) >= 0;
        }
        fwa_step_state step = {.loss_sum = 5, .valid = 7};
        check_ok(p->ops->loss_accumulate(NULL, &step, loss, targets));
        assert_true(fabs(step.loss_sum - sum) < 1e-12 * sum);
        assert_true(step.valid == valid);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_cross_entropy, check_release),
        cmocka_unit_test_teardown(test_cross_entropy_of_many, check_release),
        cmocka_unit_test_teardown(test_cross_entropy_gradient, check_release),
        cmocka_unit_test_teardown(test_cross_entropy_edges, check_release),
        cmocka_unit_test_teardown(test_cross_entropy_threads, check_release),
        cmocka_unit_test_teardown(test_loss_accumulate, check_release),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
