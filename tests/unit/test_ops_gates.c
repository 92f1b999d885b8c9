// sigmoid_gate, swiglu, rotary: naive forward, gradients by central differences, float against double, threads.
#include "ops_check.h"

typedef struct gate {
    const precision *p;
    fwa_tensor x, bias, y, dy, dx, dbias;
} gate;

#define SCALE 1.7

static gate make_gate(const precision *p, int64_t R, int64_t H) {
    gate s = {p,
              check_new_strided(p->dtype, R, H, 0, 3, 1),
              check_new(p->dtype, H, 0, 0, 0),
              check_new(p->dtype, R, H, 0, 0),
              check_new(p->dtype, R, H, 0, 0),
              check_new_strided(p->dtype, R, H, 0, 2, 1),
              check_new(p->dtype, H, 0, 0, 0)};
    check_fill_normal(s.x, 1, 2);
    check_fill_normal(s.bias, 2, 1);
    check_fill_normal(s.dy, 3, 1);
    return s;
}

static double gate_value(void *context) {
    gate *s = context;
    check_ok(s->p->ops->sigmoid_gate_forward(NULL, s->y, s->x, s->bias, SCALE));
    return check_dot(s->y, s->dy);
}

static void run_gate(void *context) {
    gate *s = context;
    gate_value(s);
    check_fill_value(s->dbias, 0.5);
    check_ok(s->p->ops->sigmoid_gate_backward(NULL, s->dx, s->dbias, s->dy, s->y, SCALE));
}

static const int64_t sizes[][2] = {{1, 1}, {2, 3}, {3, 17}, {63, 1}, {65, 4}, {260, 2}};

static void test_sigmoid_gate(void **state) {
    for_each_precision(p) {
        for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
            int64_t R = sizes[i][0], H = sizes[i][1];
            gate s = make_gate(p, R, H);
            fwa_tensor expected = check_new(FWA_F64, R, H, 0, 0);
            for (int64_t k = 0; k < R * H; k++)
                check_set(expected, k, SCALE * naive_sigmoid(check_get(s.x, k) + check_get(s.bias, k % H)));
            gate_value(&s);
            check_close(s.y, expected, p->limit);
            if (p->dtype != FWA_F64) continue;
            fwa_tensor dx = check_new(FWA_F64, R, H, 0, 0), dbias = check_new(FWA_F64, H, 0, 0, 0);
            check_differentiate(gate_value, &s, s.x, dx);
            check_differentiate(gate_value, &s, s.bias, dbias);
            for (int64_t k = 0; k < H; k++) check_set(dbias, k, check_get(dbias, k) + 0.5);
            run_gate(&s);
            check_close(s.dx, dx, GRADIENT_LIMIT);
            check_close(s.dbias, dbias, GRADIENT_LIMIT);
            check_margins(s.dx, 2, 1);
        }
        check_release(state);
    }
}

static void test_sigmoid_gate_precisions(void **state) {
    (void)state;
    gate s[2] = {make_gate(&precisions[0], 6000, 50), make_gate(&precisions[1], 6000, 50)};
    for (int i = 0; i < 2; i++) check_threads(run_gate, &s[i], (fwa_tensor[]){s[i].y, s[i].dx, s[i].dbias}, 3);
    check_close(s[1].y, s[0].y, 1e-6);
    check_close(s[1].dx, s[0].dx, 2e-6);
    check_close(s[1].dbias, s[0].dbias, 2e-6);
}

typedef struct glu {
    const precision *p;
    fwa_tensor x, y, dy, dx;
} glu;

static glu make_glu(const precision *p, int64_t R, int64_t F) {
    glu s = {p, check_new_strided(p->dtype, R, 2 * F, 0, 0, 2), check_new(p->dtype, R, F, 0, 0),
             check_new(p->dtype, R, F, 0, 0), check_new_strided(p->dtype, R, 2 * F, 0, 1, 0)};
    check_fill_normal(s.x, 1, 2);
    check_fill_normal(s.dy, 2, 1);
    return s;
}

static double glu_value(void *context) {
    glu *s = context;
    check_ok(s->p->ops->swiglu_forward(NULL, s->y, s->x));
    return check_dot(s->y, s->dy);
}

static void run_glu(void *context) {
    glu *s = context;
    glu_value(s);
    check_ok(s->p->ops->swiglu_backward(NULL, s->dx, s->dy, s->x));
}

static void test_swiglu(void **state) {
    for_each_precision(p) {
        for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
            int64_t R = sizes[i][0], F = sizes[i][1];
            glu s = make_glu(p, R, F);
            fwa_tensor expected = check_new(FWA_F64, R, F, 0, 0), dx = check_new(FWA_F64, R, 2 * F, 0, 0);
            for (int64_t r = 0; r < R; r++)
                for (int64_t k = 0; k < F; k++)
                    check_set(expected, r * F + k,
                              naive_silu(check_get(s.x, 2 * r * F + k)) * check_get(s.x, (2 * r + 1) * F + k));
            glu_value(&s);
            check_close(s.y, expected, p->limit);
            if (p->dtype != FWA_F64) continue;
            check_differentiate(glu_value, &s, s.x, dx);
            run_glu(&s);
            check_close(s.dx, dx, GRADIENT_LIMIT);
            check_margins(s.dx, 1, 0);
        }
        check_release(state);
    }
}

static void test_swiglu_precisions(void **state) {
    (void)state;
    glu s[2] = {make_glu(&precisions[0], 800, 171), make_glu(&precisions[1], 800, 171)};
    for (int i = 0; i < 2; i++) check_threads(run_glu, &s[i], (fwa_tensor[]){s[i].y, s[i].dx}, 2);
    check_close(s[1].y, s[0].y, 1e-6);
    check_close(s[1].dx, s[0].dx, 1e-6);
}

typedef struct rotation {
    const precision *p;
    fwa_tensor y, x;
    int64_t position;
    bool inverse;
} rotation;

static void run_rotary(void *context) {
    rotation *s = context;
    check_ok(s->p->ops->rotary(NULL, s->y, s->x, s->position, 10000, s->inverse));
}

static void rotary_expected(const rotation *s, fwa_tensor y) {
    int64_t T = s->x.shape[1], H = s->x.shape[2], K = s->x.shape[3];
    for (int64_t i = 0; i < fwa_tensor_count(y); i++) {
        int64_t k = i % K, pair = k % (K / 2), t = i / (K * H) % T, start = i - k;
        double angle = (double)(s->position + t) * pow(10000, -2.0 * (double)pair / (double)K);
        double a = check_get(s->x, start + pair), b = check_get(s->x, start + pair + K / 2);
        double sine = s->inverse ? -sin(angle) : sin(angle);
        check_set(y, i, k < K / 2 ? a * cos(angle) - b * sine : a * sine + b * cos(angle));
    }
}

static void test_rotary(void **state) {
    static const int64_t shapes[][4] = {{1, 1, 1, 2},    {2, 3, 1, 6},   {3, 65, 2, 10},
                                        {1, 130, 3, 64}, {1, 2, 1, 300}, {1, 5000, 1, 4}};
    for_each_precision(p) {
        for (size_t i = 0; i < 4 * sizeof shapes / sizeof shapes[0]; i++) {
            const int64_t *n = shapes[i / 4];
            // x and y are heads inside a wider projection.
            fwa_tensor wide = check_new_strided(p->dtype, n[0] * n[1], n[2] * n[3], 0, 2, 3);
            fwa_tensor x = fwa_tensor_as_4d(wide, n[0], n[1], n[2], n[3]);
            rotation s = {p, check_new(p->dtype, n[0], n[1], n[2], n[3]), x, i & 1 ? 5000 : 0, i & 2};
            fwa_tensor expected = check_new(FWA_F64, n[0], n[1], n[2], n[3]);
            check_fill_normal(x, 1, 1);
            rotary_expected(&s, expected);
            run_rotary(&s);
            check_close(s.y, expected, p->limit);
            s.y = x;
            run_rotary(&s);
            check_close(s.y, expected, p->limit);
            check_margins(wide, 2, 3);
            // The other direction gives the input back: it is the transpose.
            s.inverse = !s.inverse;
            run_rotary(&s);
            check_fill_normal(expected, 1, 1);
            check_close(s.y, expected, p->limit);
        }
        fwa_tensor odd = check_new(p->dtype, 1, 1, 1, 3);
        check_status(p->ops->rotary(NULL, odd, odd, 0, 10000, false), FWA_ERROR);
        check_release(state);
    }
}

static void test_rotary_threads(void **state) {
    (void)state;
    for_each_precision(p) {
        rotation s = {p, check_new(p->dtype, 2, 1000, 3, 90), check_new(p->dtype, 2, 1000, 3, 90), 7, false};
        check_fill_normal(s.x, 1, 1);
        check_threads(run_rotary, &s, &s.y, 1);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_sigmoid_gate, check_release),
        cmocka_unit_test_teardown(test_sigmoid_gate_precisions, check_release),
        cmocka_unit_test_teardown(test_swiglu, check_release),
        cmocka_unit_test_teardown(test_swiglu_precisions, check_release),
        cmocka_unit_test_teardown(test_rotary, check_release),
        cmocka_unit_test_teardown(test_rotary_threads, check_release),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
