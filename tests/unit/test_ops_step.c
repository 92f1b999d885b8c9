// step_finish (loss, clipping, guard) and adamw.
#include "ops_check.h"

static fwa_step_state finish(const precision *p, fwa_step_state state, double loss, double norm, double valid,
                             fwa_step_options options) {
    state.loss_sum = loss * valid;
    state.valid = valid;
    state.grad_square = norm * norm * valid * valid;
    check_ok(p->ops->step_finish(NULL, &state, &options));
    return state;
}

static bool near(double a, double b) {
    return fabs(a - b) <= 1e-12 * fabs(b);
}

static void test_clip(void **state) {
    (void)state;
    for_each_precision(p) {
        fwa_step_options options = {.clip = 1, .spike_factor = 10, .guard_window = 100};
        fwa_step_state s = finish(p, (fwa_step_state){0}, 3.5, 0.5, 1000, options);
        assert_true(near(s.loss, 3.5) && near(s.grad_norm, 0.5) && near(s.grad_scale, 1e-3));
        assert_true(!s.skip && s.accepted == 1 && near(s.norm_mean, 0.5));
        s = finish(p, s, 3.5, 4, 1000, options);
        assert_true(near(s.grad_scale, 0.25e-3) && s.accepted == 2 && near(s.norm_mean, 2.25));
        options.clip = 0;
        s = finish(p, s, 3.5, 4, 1000, options);
        assert_true(near(s.grad_scale, 1e-3));
        s = finish(p, s, 3.5, 0, 1000, options);
        assert_true(!s.skip && near(s.grad_scale, 1e-3));
    }
}

// The mean is that of all accepted steps up to the window, then moves by 1/window.
static void test_norm_mean(void **state) {
    (void)state;
    for_each_precision(p) {
        fwa_step_options options = {.clip = 1, .spike_factor = 10, .guard_window = 4};
        fwa_step_state s = {0};
        double mean = 0, norms[] = {1, 2, 3, 6, 4, 5};
        for (int i = 0; i < 6; i++) {
            s = finish(p, s, 2, norms[i], 10, options);
            mean += (norms[i] - mean) / (i < 4 ? i + 1 : 4);
            assert_true(near(s.norm_mean, mean) && s.accepted == i + 1);
        }
    }
}

static void check_skipped(const precision *p, fwa_step_state before, double loss, double norm, double valid,
                          fwa_step_options options) {
    fwa_step_state s = finish(p, before, loss, norm, valid, options);
    assert_int_equal(s.skip, 1);
    assert_int_equal(s.accepted, before.accepted);
    assert_int_equal(s.skipped, before.skipped + 1);
    assert_int_equal(s.skipped_in_a_row, before.skipped_in_a_row + 1);
    assert_true(s.norm_mean == before.norm_mean);
    assert_true(s.grad_scale == 0);
    s = finish(p, s, 2, 1, 10, options);
    assert_true(!s.skip && s.skipped_in_a_row == 0 && s.skipped == before.skipped + 1);
}

static void test_guard(void **state) {
    (void)state;
    for_each_precision(p) {
        fwa_step_options options = {.clip = 1, .spike_factor = 10, .guard_window = 3};
        fwa_step_state s = {0};
        s = finish(p, s, 2, 1, 10, options);
        s = finish(p, s, 2, 1, 10, options);
        for (int ready = 0; ready < 2; ready++) {
            check_skipped(p, s, (double)NAN, 1, 10, options);
            check_skipped(p, s, (double)INFINITY, 1, 10, options);
            check_skipped(p, s, 2, (double)NAN, 10, options);
            check_skipped(p, s, 2, (double)INFINITY, 10, options);
            check_skipped(p, s, 2, 1, 0, options);
            check_skipped(p, s, 2, 1, (double)NAN, options);
            if (ready) check_skipped(p, s, 2, 10.01, 10, options);
            fwa_step_state mild = finish(p, s, 2, ready ? 9.99 : 1000, 10, options);
            assert_false(mild.skip);
            fwa_step_options off = options;
            off.spike_factor = 0;
            assert_false(finish(p, s, 2, 1e6, 10, off).skip);
            check_skipped(p, s, 2, (double)NAN, 10, off);
            s = finish(p, s, 2, 1, 10, options);
        }
        s.norm_mean = (double)NAN; // must not switch the guard off
        assert_true(finish(p, s, 2, 1, 10, options).skip);
    }
}

typedef struct update {
    const precision *p;
    fwa_tensor master, copy, grad, m, v;
    fwa_adamw_options options;
    fwa_step_state state;
} update;

static update make_update(const precision *p, int64_t n) {
    update u = {.p = p,
                .master = check_new(p->dtype, n, 0, 0, 0),
                .copy = check_new(p->dtype, n, 0, 0, 0),
                .grad = check_new(p->dtype, n, 0, 0, 0),
                .m = check_new(p->dtype, n, 0, 0, 0),
                .v = check_new(p->dtype, n, 0, 0, 0),
                .options = {.lr_scale = 1.5, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .decay = 0.1},
                .state = {.lr = 1e-2, .grad_scale = 0.125, .accepted = 3}};
    check_fill_normal(u.grad, 2, 5);
    return u;
}

static void run_update(void *context) {
    update *u = context;
    check_fill_normal(u->master, 1, 1);
    check_fill_normal(u->m, 3, 0.3);
    check_fill_uniform(u->v, 4, 0, 0.2);
    check_ok(u->p->ops->adamw(NULL, u->master, u->copy, u->grad, u->m, u->v, &u->options, &u->state));
}

static void test_adamw(void **state) {
    static const int64_t counts[] = {1, 2, 3, 63, 65, 130000};
    for_each_precision(p) {
        for (size_t k = 0; k < sizeof counts / sizeof counts[0]; k++) {
            int64_t n = counts[k];
            update u = make_update(p, n);
            fwa_tensor weight = check_new(FWA_F64, n, 0, 0, 0), m = check_new(FWA_F64, n, 0, 0, 0);
            fwa_tensor v = check_new(FWA_F64, n, 0, 0, 0);
            check_fill_normal(weight, 1, 1);
            check_fill_normal(m, 3, 0.3);
            check_fill_uniform(v, 4, 0, 0.2);
            for (int64_t i = 0; i < n; i++) {
                double g = check_get(u.grad, i) * 0.125, w = check_get(weight, i);
                check_set(m, i, 0.9 * check_get(m, i) + 0.1 * g);
                check_set(v, i, 0.95 * check_get(v, i) + 0.05 * g * g);
                double mean = check_get(m, i) / (1 - 0.9 * 0.9 * 0.9), square = check_get(v, i) / (1 - pow(0.95, 3));
                check_set(weight, i, w - 1e-2 * 1.5 * (mean / (sqrt(square) + 1e-8) + 0.1 * w));
            }
            check_threads(run_update, &u, (fwa_tensor[]){u.master, u.copy, u.m, u.v}, 4);
            check_close(u.master, weight, p->limit);
            check_close(u.m, m, p->limit);
            check_close(u.v, v, p->limit);
            assert_int_equal(check_differences(u.copy, u.master), 0);
            check_release(state);
        }
    }
}

// A skipped step changes nothing, whatever the gradient holds; the copy may be absent.
static void test_adamw_skip(void **state) {
    (void)state;
    for_each_precision(p) {
        update u = make_update(p, 65);
        fwa_tensor weight = check_new(p->dtype, 65, 0, 0, 0), m = check_new(p->dtype, 65, 0, 0, 0);
        check_fill_normal(weight, 1, 1);
        check_fill_normal(m, 3, 0.3);
        fwa_tensor copy = u.copy;
        u.copy = fwa_tensor_absent();
        run_update(&u);
        assert_true(check_differences(u.master, weight) > 0);
        u.copy = copy;
        u.state.skip = 1;
        check_poison(u.grad);
        check_fill_value(copy, 7);
        run_update(&u);
        assert_int_equal(check_differences(u.master, weight), 0);
        assert_int_equal(check_differences(u.m, m), 0);
        for (int64_t i = 0; i < 65; i++) assert_true(check_get(copy, i) == 7);
        fwa_tensor shorter = fwa_tensor_slice(u.m, 0, 0, 64);
        check_status(p->ops->adamw(NULL, u.master, copy, u.grad, shorter, u.v, &u.options, &u.state), FWA_ERROR);
    }
}

// A list of tensors, some larger than a piece, gets the bits that its tensors get one by one.
static void test_adamw_parts(void **state) {
    static const int64_t counts[] = {5, FWA_ADAMW_PIECE, 1, FWA_ADAMW_PIECE + 1, 130};
    enum { COUNT = sizeof counts / sizeof counts[0] };
    for_each_precision(p) {
        update one[COUNT], all[COUNT];
        fwa_adamw_part parts[COUNT];
        int64_t elements = 0;
        for (int i = 0; i < COUNT; i++) {
            one[i] = make_update(p, counts[i]);
            one[i].options.lr_scale = 1 + i;
            one[i].options.decay = i % 2 ? 0.1 : 0;
            if (i == 2) one[i].copy = one[i].master;
            run_update(&one[i]);
            update u = all[i] = make_update(p, counts[i]);
            if (i == 2) all[i].copy = u.copy = u.master;
            check_fill_normal(u.master, 1, 1);
            check_fill_normal(u.m, 3, 0.3);
            check_fill_uniform(u.v, 4, 0, 0.2);
            check_ok(fwa_adamw_part_make(&parts[i], i > 0 ? &parts[i - 1] : NULL, p->dtype, u.master, u.copy, u.grad,
                                         u.m, u.v));
            parts[i].lr_scale = 1 + i;
            parts[i].decay = i % 2;
            elements += counts[i];
        }
        assert_int_equal(parts[4].first, 1 + 1 + 1 + 2);
        fwa_adamw_options options = one[0].options;
        options.lr_scale = 1, options.decay = 0.1;
        const fwa_tensor table = fwa_tensor_1d(parts, FWA_U8, sizeof parts);
        check_ok(p->ops->adamw_parts(NULL, table, elements, &options, &one[0].state));
        for (int i = 0; i < COUNT; i++) {
            assert_int_equal(check_differences(all[i].master, one[i].master), 0);
            assert_int_equal(check_differences(all[i].copy, one[i].copy), 0);
            assert_int_equal(check_differences(all[i].m, one[i].m), 0);
            assert_int_equal(check_differences(all[i].v, one[i].v), 0);
        }
        fwa_step_state skip = one[0].state;
        skip.skip = 1;
        check_ok(p->ops->adamw_parts(NULL, table, elements, &options, &skip));
        assert_int_equal(check_differences(all[0].master, one[0].master), 0);
        check_release(state);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_clip, check_release),
        cmocka_unit_test_teardown(test_norm_mean, check_release),
        cmocka_unit_test_teardown(test_guard, check_release),
        cmocka_unit_test_teardown(test_adamw, check_release),
        cmocka_unit_test_teardown(test_adamw_skip, check_release),
        cmocka_unit_test_teardown(test_adamw_parts, check_release),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
