// decay_fill, decay_gate, value_scale, skip_gate_norm: naive forward, gradients by central differences, float against
// double, threads.
#include "ops_check.h"

#define EPS 0.1 // large, so that rows of one element have a gradient that differences can see

// numeric[i] + start: what an accumulating gradient that starts there must become.
static void add_start(fwa_tensor numeric, double start) {
    for (int64_t i = 0; i < fwa_tensor_count(numeric); i++) check_set(numeric, i, check_get(numeric, i) + start);
}

static void test_constant_decays(void **state) {
    for_each_precision(p) {
        for (int64_t H = 1; H <= 40; H += 13) {
            fwa_tensor y = check_new_strided(p->dtype, 5, H, 0, 1, 2);
            fwa_tensor retnet = check_new(FWA_F64, 5, H, 0, 0), lightning = check_new(FWA_F64, 5, H, 0, 0);
            for (int64_t i = 0; i < 5 * H; i++) {
                double h = (double)(i % H);
                check_set(retnet, i, log1p(-pow(2, -5 - h)));
                check_set(lightning, i, -(8 * h / (double)H) * 0.75);
            }
            check_ok(p->ops->decay_fill(NULL, y, FWA_DECAY_RETNET, 0.75));
            check_close(y, retnet, p->limit);
            check_ok(p->ops->decay_fill(NULL, y, FWA_DECAY_LIGHTNING, 0.75));
            check_close(y, lightning, p->limit);
            check_margins(y, 1, 2);
        }
        check_release(state);
    }
}

typedef struct gate {
    const precision *p;
    bool more; // a gradient reaches delta on another way
    fwa_tensor x, A_log, dt_bias, log_decay, delta, dlog_decay, ddelta, dx, dA_log, ddt_bias;
} gate;

static gate make_gate(const precision *p, int64_t R, int64_t H, bool more) {
    gate s = {.p = p,
              .more = more,
              .x = check_new_strided(p->dtype, R, H, 0, 3, 1),
              .A_log = check_new(p->dtype, H, 0, 0, 0),
              .dt_bias = check_new(p->dtype, H, 0, 0, 0),
              .log_decay = check_new(p->dtype, R, H, 0, 0),
              .delta = check_new(p->dtype, R, H, 0, 0),
              .dlog_decay = check_new(p->dtype, R, H, 0, 0),
              .ddelta = check_new(p->dtype, R, H, 0, 0),
              .dx = check_new_strided(p->dtype, R, H, 0, 2, 1),
              .dA_log = check_new(p->dtype, H, 0, 0, 0),
              .ddt_bias = check_new(p->dtype, H, 0, 0, 0)};
    check_fill_normal(s.x, 1, 2);
    check_fill_uniform(s.A_log, 2, 0, 2.7);
    check_fill_uniform(s.dt_bias, 3, -7, 1);
    check_fill_normal(s.dlog_decay, 4, 1);
    check_fill_normal(s.ddelta, 5, 1);
    return s;
}

static double gate_value(void *context) {
    gate *s = context;
    check_ok(s->p->ops->decay_gate_forward(NULL, s->log_decay, s->delta, s->x, s->A_log, s->dt_bias));
    return check_dot(s->log_decay, s->dlog_decay) + (s->more ? check_dot(s->delta, s->ddelta) : 0);
}

static void run_gate(void *context) {
    gate *s = context;
    gate_value(s);
    check_fill_value(s->dA_log, 0.5);
    check_fill_value(s->ddt_bias, 0.25);
    check_ok(s->p->ops->decay_gate_backward(NULL, s->dx, s->dA_log, s->ddt_bias, s->dlog_decay,
                                            s->more ? s->ddelta : fwa_tensor_absent(), s->delta, s->A_log));
}

static const int64_t gate_sizes[][2] = {{1, 1}, {2, 3}, {3, 17}, {63, 1}, {65, 4}, {260, 2}};

static void test_decay_gate(void **state) {
    for_each_precision(p) {
        for (size_t i = 0; i < 2 * sizeof gate_sizes / sizeof gate_sizes[0]; i++) {
            int64_t R = gate_sizes[i / 2][0], H = gate_sizes[i / 2][1];
            gate s = make_gate(p, R, H, i % 2);
            fwa_tensor delta = check_new(FWA_F64, R, H, 0, 0), log_decay = check_new(FWA_F64, R, H, 0, 0);
            for (int64_t k = 0; k < R * H; k++) {
                check_set(delta, k, log1p(exp(check_get(s.x, k) + check_get(s.dt_bias, k % H))));
                check_set(log_decay, k, -exp(check_get(s.A_log, k % H)) * check_get(delta, k));
            }
            gate_value(&s);
            check_close(s.delta, delta, p->limit);
            check_close(s.log_decay, log_decay, p->limit);
            if (p->dtype != FWA_F64) continue;
            fwa_tensor dx = check_new(FWA_F64, R, H, 0, 0), dA_log = check_new(FWA_F64, H, 0, 0, 0);
            fwa_tensor ddt_bias = check_new(FWA_F64, H, 0, 0, 0);
            check_differentiate(gate_value, &s, s.x, dx);
            check_differentiate(gate_value, &s, s.A_log, dA_log);
            check_differentiate(gate_value, &s, s.dt_bias, ddt_bias);
            add_start(dA_log, 0.5);
            add_start(ddt_bias, 0.25);
            run_gate(&s);
            check_close(s.dx, dx, GRADIENT_LIMIT);
            check_close(s.dA_log, dA_log, GRADIENT_LIMIT);
            check_close(s.ddt_bias, ddt_bias, GRADIENT_LIMIT);
            check_margins(s.dx, 2, 1);
        }
        check_release(state);
    }
}

// Far from 0 softplus is x or e^x, and everything stays finite.
static void test_decay_gate_extremes(void **state) {
    for_each_precision(p) {
        gate s = make_gate(p, 1, 4, true);
        const double x[] = {-80, -30, 40, 1000}, delta[] = {exp(-80), exp(-30), 40, 1000}, slope[] = {0, 0, 1, 1};
        check_fill_value(s.dt_bias, 0);
        check_fill_value(s.A_log, 0);
        check_fill_value(s.dlog_decay, 0);
        check_fill_value(s.ddelta, 1);
        for (int i = 0; i < 4; i++) check_set(s.x, i, x[i]);
        run_gate(&s);
        for (int i = 0; i < 4; i++) {
            assert_true(fabs(check_get(s.delta, i) / delta[i] - 1) < p->limit);
            assert_true(fabs(check_get(s.dx, i) - slope[i]) < 1e-12);
        }
        check_release(state);
    }
}

static void test_decay_gate_precisions(void **state) {
    (void)state;
    gate s[2] = {make_gate(&precisions[0], 6000, 50, true), make_gate(&precisions[1], 6000, 50, true)};
    for (int i = 0; i < 2; i++)
        check_threads(run_gate, &s[i], (fwa_tensor[]){s[i].log_decay, s[i].delta, s[i].dx, s[i].dA_log, s[i].ddt_bias},
                      5);
    check_close(s[1].log_decay, s[0].log_decay, 1e-6);
    check_close(s[1].dx, s[0].dx, 2e-6);
    check_close(s[1].dA_log, s[0].dA_log, 2e-6);
    check_close(s[1].ddt_bias, s[0].ddt_bias, 2e-6);
}

typedef struct scaling {
    const precision *p;
    fwa_tensor v, x, scale, dv, dx, dscale;
} scaling;

static scaling make_scaling(const precision *p, int64_t R, int64_t H, int64_t V) {
    scaling s = {.p = p,
                 .v = check_new(p->dtype, R, H, V, 0),
                 .x = check_new(p->dtype, R, H, V, 0),
                 .scale = check_new(p->dtype, R, H, 0, 0),
                 .dv = check_new(p->dtype, R, H, V, 0),
                 .dx = check_new(p->dtype, R, H, V, 0),
                 .dscale = check_new(p->dtype, R, H, 0, 0)};
    check_fill_normal(s.x, 1, 1);
    check_fill_normal(s.scale, 2, 1);
    check_fill_normal(s.dv, 3, 1);
    return s;
}

static double scaling_value(void *context) {
    scaling *s = context;
    check_ok(s->p->ops->value_scale_forward(NULL, s->v, s->x, s->scale));
    return check_dot(s->v, s->dv);
}

static void run_scaling(void *context) {
    scaling *s = context;
    scaling_value(s);
    check_fill_value(s->dx, 0.5);
    check_ok(s->p->ops->value_scale_backward(NULL, s->dx, s->dscale, s->dv, s->x, s->scale));
}

static const int64_t value_sizes[][3] = {{1, 1, 1}, {2, 3, 5}, {5, 2, 33}, {65, 1, 4}};

static void test_value_scale(void **state) {
    for_each_precision(p) {
        for (size_t i = 0; i < sizeof value_sizes / sizeof value_sizes[0]; i++) {
            int64_t R = value_sizes[i][0], H = value_sizes[i][1], V = value_sizes[i][2];
            scaling s = make_scaling(p, R, H, V);
            fwa_tensor v = check_new(FWA_F64, R, H, V, 0), dx = check_new(FWA_F64, R, H, V, 0);
            fwa_tensor dscale = check_new(FWA_F64, R, H, 0, 0);
            for (int64_t k = 0; k < R * H * V; k++) check_set(v, k, check_get(s.x, k) * check_get(s.scale, k / V));
            run_scaling(&s);
            check_close(s.v, v, p->limit);
            if (p->dtype != FWA_F64) continue;
            check_differentiate(scaling_value, &s, s.x, dx);
            check_differentiate(scaling_value, &s, s.scale, dscale);
            add_start(dx, 0.5);
            check_close(s.dx, dx, GRADIENT_LIMIT);
            check_close(s.dscale, dscale, GRADIENT_LIMIT);
        }
        check_release(state);
    }
}

static void test_value_scale_precisions(void **state) {
    (void)state;
    scaling s[2] = {make_scaling(&precisions[0], 900, 6, 65), make_scaling(&precisions[1], 900, 6, 65)};
    for (int i = 0; i < 2; i++) check_threads(run_scaling, &s[i], (fwa_tensor[]){s[i].v, s[i].dx, s[i].dscale}, 3);
    check_close(s[1].v, s[0].v, 1e-6);
    check_close(s[1].dx, s[0].dx, 1e-6);
    check_close(s[1].dscale, s[0].dscale, 2e-6);
}

typedef struct skipping {
    const precision *p;
    fwa_tensor y, rstd, o, x, skip, w, g, dy, d_o, dx, dskip, dw, dg;
} skipping;

static skipping make_skipping(const precision *p, int64_t R, int64_t H, int64_t V, bool gated) {
    skipping s = {.p = p,
                  .y = check_new_strided(p->dtype, R, H * V, 0, 0, 2),
                  .rstd = check_new(p->dtype, R, 0, 0, 0),
                  .o = check_new(p->dtype, R, H, V, 0),
                  .x = check_new(p->dtype, R, H, V, 0),
                  .skip = check_new(p->dtype, H, 0, 0, 0),
                  .w = check_new(p->dtype, H * V, 0, 0, 0),
                  .dy = check_new_strided(p->dtype, R, H * V, 0, 1, 0),
                  .d_o = check_new(p->dtype, R, H, V, 0),
                  .dx = check_new(p->dtype, R, H, V, 0),
                  .dskip = check_new(p->dtype, H, 0, 0, 0),
                  .dw = check_new(p->dtype, H * V, 0, 0, 0)};
    if (gated) {
        s.g = check_new_strided(p->dtype, R, H * V, 0, 2, 3);
        s.dg = check_new_strided(p->dtype, R, H * V, 0, 1, 2);
        check_fill_normal(s.g, 6, 2);
    }
    check_fill_normal(s.o, 1, 1);
    check_fill_normal(s.x, 2, 1);
    check_fill_normal(s.skip, 3, 1);
    check_fill_uniform(s.w, 4, 0.5, 1.5);
    check_fill_normal(s.dy, 5, 1);
    return s;
}

static double skipping_value(void *context) {
    skipping *s = context;
    check_ok(s->p->ops->skip_gate_norm_forward(NULL, s->y, s->rstd, s->o, s->x, s->skip, s->w, s->g, EPS));
    return check_dot(s->y, s->dy);
}

static void run_skipping(void *context) {
    skipping *s = context;
    skipping_value(s);
    check_fill_value(s->dskip, 0.5);
    check_fill_value(s->dw, 0.25);
    check_ok(s->p->ops->skip_gate_norm_backward(NULL, s->d_o, s->dx, s->dskip, s->dw, s->dg, s->dy, s->o, s->x, s->skip,
                                                s->rstd, s->w, s->g));
}

static void skipping_expected(const skipping *s, fwa_tensor y, fwa_tensor rstd) {
    int64_t R = s->o.shape[0], V = s->o.shape[2], D = s->o.shape[1] * V;
    for (int64_t r = 0; r < R; r++) {
        double sum = 0;
        for (int64_t i = r * D; i < (r + 1) * D; i++) {
            double u = check_get(s->o, i) + check_get(s->skip, i % D / V) * check_get(s->x, i);
            if (fwa_tensor_present(s->g)) u *= naive_silu(check_get(s->g, i));
            check_set(y, i, u);
            sum += u * u;
        }
        check_set(rstd, r, 1 / sqrt(sum / (double)D + EPS));
        for (int64_t i = r * D; i < (r + 1) * D; i++)
            check_set(y, i, check_get(y, i) * check_get(rstd, r) * check_get(s->w, i % D));
    }
}

static void check_skipping_gradients(skipping *s) {
    const int64_t *n = s->o.shape;
    fwa_tensor d_o = check_new(FWA_F64, n[0], n[1], n[2], 0), dx = check_new(FWA_F64, n[0], n[1], n[2], 0);
    fwa_tensor dskip = check_new(FWA_F64, n[1], 0, 0, 0), dw = check_new(FWA_F64, n[1] * n[2], 0, 0, 0);
    check_differentiate(skipping_value, s, s->o, d_o);
    check_differentiate(skipping_value, s, s->x, dx);
    check_differentiate(skipping_value, s, s->skip, dskip);
    check_differentiate(skipping_value, s, s->w, dw);
    add_start(dskip, 0.5);
    add_start(dw, 0.25);
    run_skipping(s);
    check_close(s->d_o, d_o, GRADIENT_LIMIT);
    check_close(s->dx, dx, GRADIENT_LIMIT);
    check_close(s->dskip, dskip, GRADIENT_LIMIT);
    check_close(s->dw, dw, GRADIENT_LIMIT);
    if (!fwa_tensor_present(s->g)) return;
    fwa_tensor dg = check_new(FWA_F64, n[0], n[1] * n[2], 0, 0);
    check_differentiate(skipping_value, s, s->g, dg);
    check_close(s->dg, dg, GRADIENT_LIMIT);
    check_margins(s->dg, 1, 2);
}

static void test_skip_gate_norm(void **state) {
    for_each_precision(p) {
        for (size_t i = 0; i < 2 * sizeof value_sizes / sizeof value_sizes[0]; i++) {
            const int64_t *n = value_sizes[i / 2];
            skipping s = make_skipping(p, n[0], n[1], n[2], i % 2);
            fwa_tensor y = check_new(FWA_F64, n[0], n[1] * n[2], 0, 0), rstd = check_new(FWA_F64, n[0], 0, 0, 0);
            skipping_expected(&s, y, rstd);
            skipping_value(&s);
            check_close(s.y, y, p->limit);
            check_close(s.rstd, rstd, p->limit);
            check_margins(s.y, 0, 2);
            if (p->dtype == FWA_F64) check_skipping_gradients(&s);
        }
        check_release(state);
    }
}

static void test_skip_gate_norm_precisions(void **state) {
    (void)state;
    skipping s[2] = {make_skipping(&precisions[0], 500, 20, 17, true),
                     make_skipping(&precisions[1], 500, 20, 17, true)};
    for (int i = 0; i < 2; i++)
        check_threads(run_skipping, &s[i],
                      (fwa_tensor[]){s[i].y, s[i].rstd, s[i].d_o, s[i].dx, s[i].dskip, s[i].dw, s[i].dg}, 7);
    check_close(s[1].y, s[0].y, 1e-6);
    check_close(s[1].d_o, s[0].d_o, 2e-6);
    check_close(s[1].dx, s[0].dx, 2e-6);
    check_close(s[1].dg, s[0].dg, 2e-6);
    check_close(s[1].dskip, s[0].dskip, 2e-6);
    check_close(s[1].dw, s[0].dw, 2e-6);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_constant_decays, check_release),
        cmocka_unit_test_teardown(test_decay_gate, check_release),
        cmocka_unit_test_teardown(test_decay_gate_extremes, check_release),
        cmocka_unit_test_teardown(test_decay_gate_precisions, check_release),
        cmocka_unit_test_teardown(test_value_scale, check_release),
        cmocka_unit_test_teardown(test_value_scale_precisions, check_release),
        cmocka_unit_test_teardown(test_skip_gate_norm, check_release),
        cmocka_unit_test_teardown(test_skip_gate_norm_precisions, check_release),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
