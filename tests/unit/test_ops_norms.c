// rmsnorm and head_norm_gate: naive forward, gradients by central differences, float against double, threads.
#include "ops_check.h"

#define EPS 0.1 // large, so that rows of one element have a gradient that differences can see

typedef struct rms {
    const precision *p;
    bool accumulate;
    fwa_tensor x, w, y, rstd, dy, dx, dw;
} rms;

static rms make_rms(const precision *p, int64_t R, int64_t D) {
    rms s = {.p = p,
             .x = check_new_strided(p->dtype, R, D, 0, 1, 2),
             .w = check_new(p->dtype, D, 0, 0, 0),
             .y = check_new_strided(p->dtype, R, D, 0, 0, 2),
             .rstd = check_new(p->dtype, R, 0, 0, 0),
             .dy = check_new_strided(p->dtype, R, D, 0, 3, 0),
             .dx = check_new_strided(p->dtype, R, D, 0, 1, 1),
             .dw = check_new(p->dtype, D, 0, 0, 0)};
    check_fill_normal(s.x, 1, 2);
    check_fill_uniform(s.w, 2, 0.5, 1.5);
    check_fill_normal(s.dy, 3, 1);
    check_fill_normal(s.dw, 4, 1);
    return s;
}

static double rms_value(void *context) {
    rms *s = context;
    check_ok(s->p->ops->rmsnorm_forward(NULL, s->y, s->rstd, s->x, s->w, EPS));
    return check_dot(s->y, s->dy);
}

static void run_rms(void *context) {
    rms *s = context;
    rms_value(s);
    check_fill_normal(s->dw, 4, 1);
    if (s->accumulate) check_fill_normal(s->dx, 5, 1);
    check_ok(s->p->ops->rmsnorm_backward(NULL, s->dx, s->dw, s->dy, s->x, s->w, s->rstd, s->accumulate));
}

static void rms_expected(const rms *s, fwa_tensor y, fwa_tensor rstd) {
    int64_t R = s->x.shape[0], D = s->x.shape[1];
    for (int64_t r = 0; r < R; r++) {
        double sum = 0;
        for (int64_t i = 0; i < D; i++) sum += pow(check_get(s->x, r * D + i), 2);
        double scale = 1 / sqrt(sum / (double)D + EPS);
        check_set(rstd, r, scale);
        for (int64_t i = 0; i < D; i++)
            check_set(y, r * D + i, check_get(s->x, r * D + i) * scale * check_get(s->w, i));
    }
}

static const int64_t rms_sizes[][2] = {{1, 1}, {2, 3}, {3, 65}, {63, 17}, {65, 64}, {300, 5}};

static void test_rmsnorm(void **state) {
    for_each_precision(p) {
        for (size_t i = 0; i < sizeof rms_sizes / sizeof rms_sizes[0]; i++) {
            rms s = make_rms(p, rms_sizes[i][0], rms_sizes[i][1]);
            fwa_tensor y = check_new(FWA_F64, s.x.shape[0], s.x.shape[1], 0, 0);
            fwa_tensor rstd = check_new(FWA_F64, s.x.shape[0], 0, 0, 0);
            rms_expected(&s, y, rstd);
            rms_value(&s);
            check_close(s.y, y, p->limit);
            check_close(s.rstd, rstd, p->limit);
            check_margins(s.y, 0, 2);
        }
        check_release(state);
    }
}

// numeric[i] + N(stream)[i]: what an accumulating gradient filled with that stream must become.
static void add_start(fwa_tensor numeric, uint64_t stream) {
    fwa_tensor start = check_new(FWA_F64, fwa_tensor_count(numeric), 0, 0, 0);
    check_fill_normal(start, stream, 1);
    for (int64_t i = 0; i < fwa_tensor_count(numeric); i++)
        check_set(numeric, i, check_get(numeric, i) + check_get(start, i));
}

static void test_rmsnorm_gradient(void **state) {
    for (size_t i = 0; i < sizeof rms_sizes / sizeof rms_sizes[0]; i++) {
        for (int accumulate = 0; accumulate < 2; accumulate++) {
            rms s = make_rms(precisions, rms_sizes[i][0], rms_sizes[i][1]);
            s.accumulate = accumulate;
            fwa_tensor dx = check_new(FWA_F64, s.x.shape[0], s.x.shape[1], 0, 0);
            fwa_tensor dw = check_new(FWA_F64, s.x.shape[1], 0, 0, 0);
            check_differentiate(rms_value, &s, s.x, dx);
            check_differentiate(rms_value, &s, s.w, dw);
            if (accumulate) add_start(dx, 5);
            add_start(dw, 4);
            run_rms(&s);
            check_close(s.dx, dx, GRADIENT_LIMIT);
            check_close(s.dw, dw, GRADIENT_LIMIT);
            check_margins(s.dx, 1, 1);
            check_release(state);
        }
    }
}

static void test_rmsnorm_precisions(void **state) {
    (void)state;
    rms s[2] = {make_rms(&precisions[0], 3400, 150), make_rms(&precisions[1], 3400, 150)};
    for (int i = 0; i < 2; i++) {
        check_threads(run_rms, &s[i], (fwa_tensor[]){s[i].y, s[i].rstd, s[i].dx, s[i].dw}, 4);
        s[i].accumulate = true;
        check_threads(run_rms, &s[i], (fwa_tensor[]){s[i].dx, s[i].dw}, 2);
    }
    check_close(s[1].y, s[0].y, 1e-6);
    check_close(s[1].dx, s[0].dx, 1e-6);
    check_close(s[1].dw, s[0].dw, 1e-6);
}

typedef struct head {
    const precision *p;
    fwa_tensor o, w, g, y, rstd, dy, d_o, dw, dg;
} head;

static head make_head(const precision *p, int64_t R, int64_t H, int64_t V, bool gated) {
    head s = {.p = p,
              .o = check_new(p->dtype, R, H, V, 0),
              .w = check_new(p->dtype, V, 0, 0, 0),
              .g = gated ? check_new_strided(p->dtype, R, H * V, 0, 2, 1) : fwa_tensor_absent(),
              .y = check_new(p->dtype, R, H * V, 0, 0),
              .rstd = check_new(p->dtype, R, H, 0, 0),
              .dy = check_new(p->dtype, R, H * V, 0, 0),
              .d_o = check_new(p->dtype, R, H, V, 0),
              .dw = check_new(p->dtype, V, 0, 0, 0),
              .dg = gated ? check_new_strided(p->dtype, R, H * V, 0, 1, 3) : fwa_tensor_absent()};
    check_fill_normal(s.o, 1, 1);
    check_fill_uniform(s.w, 2, 0.5, 1.5);
    if (gated) check_fill_normal(s.g, 3, 2);
    check_fill_normal(s.dy, 4, 1);
    return s;
}

static double head_value(void *context) {
    head *s = context;
    check_ok(s->p->ops->head_norm_gate_forward(NULL, s->y, s->rstd, s->o, s->w, s->g, EPS));
    return check_dot(s->y, s->dy);
}

static void run_head(void *context) {
    head *s = context;
    head_value(s);
    check_fill_normal(s->dw, 5, 1);
    check_ok(s->p->ops->head_norm_gate_backward(NULL, s->d_o, s->dw, s->dg, s->dy, s->o, s->rstd, s->w, s->g));
}

static void head_expected(const head *s, fwa_tensor y) {
    int64_t rows = s->o.shape[0] * s->o.shape[1], V = s->o.shape[2];
    for (int64_t r = 0; r < rows; r++) {
        double sum = 0;
        for (int64_t i = 0; i < V; i++) sum += pow(check_get(s->o, r * V + i), 2);
        for (int64_t i = 0; i < V; i++) {
            double gate = s->g.data ? naive_silu(check_get(s->g, r * V + i)) : 1;
            double n = check_get(s->o, r * V + i) / sqrt(sum / (double)V + EPS);
            check_set(y, r * V + i, n * check_get(s->w, i) * gate);
        }
    }
}

static const int64_t head_sizes[][3] = {{1, 1, 1}, {2, 1, 7}, {3, 2, 33}, {63, 3, 5}, {65, 1, 16}};

static void test_head_norm_gate(void **state) {
    for_each_precision(p) {
        for (size_t i = 0; i < 2 * sizeof head_sizes / sizeof head_sizes[0]; i++) {
            const int64_t *n = head_sizes[i / 2];
            head s = make_head(p, n[0], n[1], n[2], i % 2);
            fwa_tensor y = check_new(FWA_F64, n[0], n[1] * n[2], 0, 0);
            head_expected(&s, y);
            head_value(&s);
            check_close(s.y, y, p->limit);
        }
        check_release(state);
    }
}

static void test_head_norm_gate_gradient(void **state) {
    for (size_t i = 0; i < 2 * sizeof head_sizes / sizeof head_sizes[0]; i++) {
        const int64_t *n = head_sizes[i / 2];
        head s = make_head(precisions, n[0], n[1], n[2], i % 2);
        fwa_tensor d_o = check_new(FWA_F64, n[0], n[1], n[2], 0), dw = check_new(FWA_F64, n[2], 0, 0, 0);
        fwa_tensor dg = check_new(FWA_F64, n[0], n[1] * n[2], 0, 0);
        check_differentiate(head_value, &s, s.o, d_o);
        check_differentiate(head_value, &s, s.w, dw);
        add_start(dw, 5);
        if (s.g.data) check_differentiate(head_value, &s, s.g, dg);
        run_head(&s);
        check_close(s.d_o, d_o, GRADIENT_LIMIT);
        check_close(s.dw, dw, GRADIENT_LIMIT);
        if (s.g.data) {
            check_close(s.dg, dg, GRADIENT_LIMIT);
            check_margins(s.dg, 1, 3);
        }
        check_release(state);
    }
}

static void test_head_norm_gate_precisions(void **state) {
    (void)state;
    head s[2] = {make_head(&precisions[0], 900, 3, 50, true), make_head(&precisions[1], 900, 3, 50, true)};
    for (int i = 0; i < 2; i++)
        check_threads(run_head, &s[i], (fwa_tensor[]){s[i].y, s[i].rstd, s[i].d_o, s[i].dw, s[i].dg}, 5);
    check_close(s[1].y, s[0].y, 1e-6);
    check_close(s[1].d_o, s[0].d_o, 1e-6);
    check_close(s[1].dw, s[0].dw, 1e-6);
    check_close(s[1].dg, s[0].dg, 1e-6);
}

static void test_wrong_arguments(void **state) {
    (void)state;
    rms s = make_rms(precisions, 4, 6);
    check_status(s.p->ops->rmsnorm_forward(NULL, s.y, s.rstd, s.x, s.rstd, EPS), FWA_ERROR);
    check_status(ops_f32.rmsnorm_forward(NULL, s.y, s.rstd, s.x, s.w, EPS), FWA_ERROR);
    head h = make_head(precisions, 4, 2, 3, true);
    fwa_tensor absent = fwa_tensor_absent();
    check_status(h.p->ops->head_norm_gate_backward(NULL, h.d_o, h.dw, absent, h.dy, h.o, h.rstd, h.w, h.g), FWA_ERROR);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_rmsnorm, check_release),
        cmocka_unit_test_teardown(test_rmsnorm_gradient, check_release),
        cmocka_unit_test_teardown(test_rmsnorm_precisions, check_release),
        cmocka_unit_test_teardown(test_head_norm_gate, check_release),
        cmocka_unit_test_teardown(test_head_norm_gate_gradient, check_release),
        cmocka_unit_test_teardown(test_head_norm_gate_precisions, check_release),
        cmocka_unit_test_teardown(test_wrong_arguments, check_release),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
