// cast, add, square_accumulate, and the vector exponential that several operators share.
#include "ops_check.h"

#define FWA_REAL_BITS 32
#include "kernels/cpu/vexp.h"

// Largest error of fwa_exp_float in units of the last place, every 1009th float; exact where exp leaves the floats'
// range.
static void test_exp(void **state) {
    (void)state;
    double worst = 0;
    for (uint32_t bits = 0; bits < 0xFFFFF000u; bits += 1009) {
        float x;
        memcpy(&x, &bits, sizeof x);
        double got = (double)fwa_exp_float(x), exact = exp((double)x);
        float rounded = (float)exact;
        if (isnan(x)) {
            assert_true(isnan(got));
        } else if (rounded == 0 || isinf(rounded)) {
            assert_true(got == (double)rounded);
        } else {
            float below = nextafterf(rounded, 0);
            worst = fmax(worst, fabs(got - exact) / (double)(rounded - below));
        }
    }
    assert_true(worst <= 2);
    assert_true(worst > 0.5); // it is not the library's own
    assert_true(fwa_exp_float(0) == 1);
    assert_true(fwa_sigmoid(-200) == 0 && fwa_sigmoid(200) == 1);
}

// bf16 bits of a double by search: the nearer neighbour, ties to the even one.
static uint16_t naive_bf16(double value) {
    fwa_tensor t = fwa_tensor_1d((uint16_t[1]){0}, FWA_BF16, 1);
    uint16_t *bits = t.data;
    float f = (float)value;
    uint32_t word;
    memcpy(&word, &f, sizeof word);
    uint16_t best = 0;
    double least = INFINITY;
    for (int step = -1; step <= 1; step++) {
        *bits = (uint16_t)((int)(word >> 16) + step);
        double difference = fabs(check_get(t, 0) - value);
        if (difference < least || (difference == least && *bits % 2 == 0)) {
            least = difference;
            best = *bits;
        }
    }
    return best;
}

static void test_cast_bf16(void **state) {
    (void)state;
    double values[] = {0, 1, -1.5, 3.14159, 1e-30, -7e20, 1.00390625, 1.01171875, 1.00390625 + 1e-12, 257, 259};
    int64_t n = sizeof values / sizeof values[0];
    fwa_tensor x = check_new(FWA_F64, n, 0, 0, 0), y = check_new(FWA_BF16, n, 0, 0, 0),
               f = check_new(FWA_F32, n, 0, 0, 0);
    for (int64_t i = 0; i < n; i++) check_set(x, i, values[i]);
    for_each_precision(p) {
        check_ok(p->ops->cast(NULL, y, x));
        for (int64_t i = 0; i < n; i++) assert_int_equal(((uint16_t *)y.data)[i], naive_bf16(values[i]));
        check_ok(p->ops->cast(NULL, f, y));
        for (int64_t i = 0; i < n; i++) assert_true(check_get(f, i) == check_get(y, i));
        check_ok(p->ops->cast(NULL, y, f));
        for (int64_t i = 0; i < n; i++) assert_true(check_get(f, i) == check_get(y, i));
        check_set(x, 0, (double)NAN);
        check_set(x, 1, (double)INFINITY);
        check_ok(p->ops->cast(NULL, y, x));
        assert_true(isnan(check_get(y, 0)) && isinf(check_get(y, 1)));
        check_set(x, 0, values[0]);
        check_set(x, 1, values[1]);
    }
}

typedef struct pair {
    const precision *p;
    fwa_tensor x, y, sum;
    fwa_tensor square; // one element: the accumulated sum
} pair;

static void run_pair(void *context) {
    pair *s = context;
    fwa_step_state step = {.grad_square = 0.25};
    check_ok(s->p->ops->cast(NULL, s->y, s->x));
    check_fill_uniform(s->sum, 8, -1, 1);
    check_ok(s->p->ops->add(NULL, s->sum, s->x));
    check_ok(s->p->ops->square_accumulate(NULL, &step, s->x));
    check_set(s->square, 0, step.grad_square);
}

static void test_whole_tensors(void **state) {
    static const int64_t counts[] = {1, 2, 63, 4096, 4097, 600000, 1100000};
    for_each_precision(p) {
        for (size_t k = 0; k < sizeof counts / sizeof counts[0]; k++) {
            int64_t n = counts[k];
            fwa_dtype other = p->dtype == FWA_F64 ? FWA_F32 : FWA_F64;
            pair s = {p, check_new(p->dtype, n, 0, 0, 0), check_new(other, n, 0, 0, 0), check_new(p->dtype, n, 0, 0, 0),
                      check_new(FWA_F64, 1, 0, 0, 0)};
            check_fill_uniform(s.x, 1, -2, 2);
            check_threads(run_pair, &s, (fwa_tensor[]){s.y, s.sum, s.square}, 3);
            fwa_tensor start = check_new(p->dtype, n, 0, 0, 0);
            check_fill_uniform(start, 8, -1, 1);
            double square = 0.25;
            for (int64_t i = 0; i < n; i++) {
                double x = check_get(s.x, i);
                square += x * x;
                assert_true(check_get(s.y, i) == x);
                assert_true(fabs(check_get(s.sum, i) - (check_get(start, i) + x)) < 1e-6);
            }
            assert_true(fabs(check_get(s.square, 0) - square) < 1e-12 * square);
            check_release(state);
        }
    }
}

static void test_square_overflow(void **state) {
    (void)state;
    fwa_tensor x = check_new(FWA_F32, 3, 0, 0, 0);
    check_fill_value(x, 1e30);
    fwa_step_state step = {0};
    check_ok(ops_f32.square_accumulate(NULL, &step, x));
    assert_true(fabs(step.grad_square / 3e60 - 1) < 1e-6);
    check_set(x, 1, (double)NAN);
    check_ok(ops_f32.square_accumulate(NULL, &step, x));
    assert_true(isnan(step.grad_square));
}

static void test_wrong_arguments(void **state) {
    (void)state;
    fwa_tensor x = check_new(FWA_F32, 6, 0, 0, 0), y = check_new(FWA_F64, 6, 0, 0, 0);
    fwa_tensor gaps = check_new_strided(FWA_F32, 2, 3, 0, 0, 1), ints = check_new(FWA_I32, 6, 0, 0, 0);
    fwa_step_state step = {0};
    check_status(ops_f32.add(NULL, x, y), FWA_ERROR);
    check_status(ops_f32.add(NULL, x, fwa_tensor_slice(x, 0, 0, 5)), FWA_ERROR);
    check_status(ops_f32.cast(NULL, y, gaps), FWA_ERROR);
    check_status(ops_f32.cast(NULL, y, ints), FWA_UNSUPPORTED);
    check_status(ops_f32.square_accumulate(NULL, &step, y), FWA_ERROR);
    check_status(ops_f32.square_accumulate(NULL, &step, gaps), FWA_ERROR);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exp),
        cmocka_unit_test_teardown(test_cast_bf16, check_release),
        cmocka_unit_test_teardown(test_whole_tensors, check_release),
        cmocka_unit_test_teardown(test_square_overflow, check_release),
        cmocka_unit_test_teardown(test_wrong_arguments, check_release),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
