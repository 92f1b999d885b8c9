// Projection to feature: convolution with halo and resets, SiLU, norms, feature maps; naive forward, gradients by
// central differences, float against double, threads.
#include "ops_check.h"

typedef struct feature {
    const precision *p;
    fwa_feature_options options;
    int64_t B, T, H, K;
    fwa_tensor x, w, halo, reset, y, rstd, dy, dx, dw, dhalo;
} feature;

static feature make_feature(const precision *p, const int64_t n[4], fwa_feature_options options, bool halo,
                            bool reset) {
    int64_t B = n[0], T = n[1], H = n[2], K = n[3], W = options.width;
    fwa_dtype type = p->dtype;
    fwa_tensor absent = fwa_tensor_absent();
    bool normed = options.norm != FWA_NORM_NONE, with_halo = halo && W > 1;
    feature s = {.p = p,
                 .options = options,
                 .B = B,
                 .T = T,
                 .H = H,
                 .K = K,
                 .x = check_new_strided(type, B, T, H * K, 2, 1),
                 .w = W ? check_new(type, H * K, W, 0, 0) : absent,
                 .halo = with_halo ? check_new(type, B, W - 1, H * K, 0) : absent,
                 .reset = reset ? check_new(FWA_U8, B, T, 0, 0) : absent,
                 .y = check_new(type, B, T, H, K),
                 .rstd = normed ? check_new(type, B, T, H, 0) : absent,
                 .dy = check_new(type, B, T, H, K),
                 .dx = check_new_strided(type, B, T, H * K, 1, 3),
                 .dw = W ? check_new(type, H * K, W, 0, 0) : absent,
                 .dhalo = with_halo ? check_new(type, B, W - 1, H * K, 0) : absent};
    check_fill_normal(s.x, 1, 1);
    if (W) check_fill_normal(s.w, 2, 1);
    if (with_halo) check_fill_normal(s.halo, 3, 1);
    if (reset) check_fill_below(s.reset, 4, 3);
    for (int64_t i = 0; reset && i < B * T; i++) check_set(s.reset, i, check_get(s.reset, i) == 1);
    check_fill_normal(s.dy, 5, 1);
    return s;
}

static double feature_value(void *context) {
    feature *s = context;
    check_ok(s->p->ops->features_forward(NULL, s->y, s->rstd, s->x, s->w, s->halo, s->reset, &s->options));
    return check_dot(s->y, s->dy);
}

static void run_feature(void *context) {
    feature *s = context;
    feature_value(s);
    if (s->options.width) check_fill_normal(s->dw, 6, 1);
    check_ok(s->p->ops->features_backward(NULL, s->dx, s->dw, s->dhalo, s->dy, s->rstd, s->x, s->w, s->halo, s->reset,
                                          &s->options));
}

// Convolution of channel c at step t of sequence b, by the definition: a tap is seen if no reset lies after it.
static double naive_conv(const feature *s, int64_t b, int64_t t, int64_t c) {
    int64_t W = s->options.width, P = s->H * s->K;
    if (W == 0) return check_get(s->x, (b * s->T + t) * P + c);
    double sum = 0;
    for (int64_t back = 0; back < W; back++) {
        int64_t from = t - back;
        bool seen = true;
        for (int64_t r = from + 1; r <= t; r++)
            if (r >= 0 && s->reset.data && check_get(s->reset, b * s->T + r) != 0) seen = false;
        double input = 0;
        if (from >= 0)
            input = check_get(s->x, (b * s->T + from) * P + c);
        else if (s->halo.data)
            input = check_get(s->halo, (b * (W - 1) + W - 1 + from) * P + c);
        if (seen) sum += check_get(s->w, c * W + W - 1 - back) * input;
    }
    return sum;
}

static double naive_phi(fwa_phi phi, double n) {
    if (phi == FWA_PHI_ELU1) return n > 0 ? n + 1 : exp(n);
    if (phi == FWA_PHI_RELU) return n > 0 ? n : 0;
    return phi == FWA_PHI_SILU ? naive_silu(n) : n;
}

static void feature_expected(const feature *s, fwa_tensor y) {
    const fwa_feature_options *o = &s->options;
    for (int64_t row = 0; row < s->B * s->T * s->H; row++) {
        int64_t b = row / (s->T * s->H), t = row / s->H % s->T, h = row % s->H;
        double sum = 0;
        for (int64_t k = 0; k < s->K; k++) {
            double u = naive_conv(s, b, t, h * s->K + k);
            if (o->silu) u = naive_silu(u);
            check_set(y, row * s->K + k, u);
            sum += u * u;
        }
        double scale = 1;
        if (o->norm == FWA_NORM_RMS) scale = 1 / sqrt(sum / (double)s->K + o->eps);
        if (o->norm == FWA_NORM_L2) scale = 1 / sqrt(sum + 1e-12);
        for (int64_t k = 0; k < s->K; k++)
            check_set(y, row * s->K + k, naive_phi(o->phi, check_get(y, row * s->K + k) * scale));
    }
}

// Central differences of every input; at relu's corner they would be meaningless, so it is tested where none is near.
static void check_gradients(feature *s) {
    int64_t W = s->options.width, P = s->H * s->K;
    fwa_tensor dx = check_new(FWA_F64, s->B, s->T, P, 0);
    check_differentiate(feature_value, s, s->x, dx);
    fwa_tensor dw = fwa_tensor_absent(), dhalo = fwa_tensor_absent();
    if (W) {
        dw = check_new(FWA_F64, P, W, 0, 0);
        check_differentiate(feature_value, s, s->w, dw);
    }
    if (s->halo.data) {
        dhalo = check_new(FWA_F64, s->B, W - 1, P, 0);
        check_differentiate(feature_value, s, s->halo, dhalo);
    }
    run_feature(s);
    check_close(s->dx, dx, GRADIENT_LIMIT);
    check_margins(s->dx, 1, 3);
    if (W) {
        fwa_tensor start = check_new(FWA_F64, P, W, 0, 0);
        check_fill_normal(start, 6, 1);
        for (int64_t i = 0; i < P * W; i++) check_set(dw, i, check_get(dw, i) + check_get(start, i));
        check_close(s->dw, dw, GRADIENT_LIMIT);
    }
    if (s->halo.data) check_close(s->dhalo, dhalo, GRADIENT_LIMIT);
}

static const int64_t shapes[][4] = {{1, 1, 1, 2}, {2, 2, 1, 5}, {1, 3, 2, 3}, {2, 7, 2, 3}, {1, 65, 1, 4}};

#define EPS 0.1

static void check_case(const precision *p, const int64_t n[4], fwa_feature_options options, bool halo, bool reset) {
    feature s = make_feature(p, n, options, halo, reset);
    fwa_tensor y = check_new(FWA_F64, s.B, s.T, s.H, s.K);
    feature_expected(&s, y);
    feature_value(&s);
    // 0 in exact arithmetic, as after relu, has no relative error.
    check_close(s.y, y, p->limit);
    if (p->dtype == FWA_F64) check_gradients(&s);
}

// Every width, halo and reset with the plain options.
static void test_convolution(void **state) {
    static const int64_t widths[] = {0, 1, 2, 3, 4, 5};
    for_each_precision(p) {
        for (size_t n = 0; n < sizeof shapes / sizeof shapes[0]; n++) {
            for (size_t w = 0; w < sizeof widths / sizeof widths[0]; w++) {
                for (int given = 0; given < 4; given++) {
                    fwa_feature_options options = {widths[w], false, FWA_NORM_NONE, FWA_PHI_IDENTITY, EPS};
                    check_case(p, shapes[n], options, given & 1, given & 2);
                    check_release(state);
                }
            }
        }
    }
}

// Every combination of SiLU, norm and map, with and without convolution.
static void test_activations(void **state) {
    for_each_precision(p) {
        for (int i = 0; i < 48; i++) {
            fwa_feature_options options = {i & 1 ? 4 : 0, i & 2, (fwa_norm)(i / 4 % 3), (fwa_phi)(i / 12), EPS};
            check_case(p, shapes[3], options, true, true);
            check_release(state);
        }
    }
}

// A head of zeros: the norm's eps keeps the output 0 and the gradient finite.
static void test_zero_head(void **state) {
    (void)state;
    for_each_precision(p) {
        for (int norm = 0; norm < 3; norm++) {
            fwa_feature_options options = {4, true, (fwa_norm)norm, FWA_PHI_IDENTITY, 1e-5};
            feature s = make_feature(p, shapes[3], options, false, false);
            check_fill_value(s.x, 0);
            run_feature(&s);
            fwa_tensor zero = check_new(p->dtype, s.B, s.T, s.H, s.K);
            check_fill_value(zero, 0);
            check_close(s.y, zero, 0);
            for (int64_t i = 0; i < fwa_tensor_count(s.dx); i++) assert_true(isfinite(check_get(s.dx, i)));
        }
    }
}

// Steps [from, from + T) of `whole` as a sequence of its own; after the first step, with the halo.
static feature make_piece(const feature *whole, int64_t from, int64_t T) {
    int64_t P = whole->H * whole->K;
    feature s = make_feature(whole->p, (int64_t[]){1, T, whole->H, whole->K}, whole->options, from > 0, true);
    for (int64_t i = 0; s.halo.data && i < 3 * P; i++)
        check_set(s.halo, i, from * P - 3 * P + i < 0 ? 0 : check_get(whole->x, from * P - 3 * P + i));
    check_copy(s.x, fwa_tensor_slice(whole->x, 1, from, T));
    check_copy(s.dy, fwa_tensor_slice(whole->dy, 1, from, T));
    check_copy(s.reset, fwa_tensor_slice(whole->reset, 1, from, T));
    run_feature(&s);
    return s;
}

// A sequence in two pieces, the second with the halo, equals the whole bit by bit; dx of the first needs dhalo added.
static void test_pieces(void **state) {
    for_each_precision(p) {
        fwa_feature_options options = {4, true, FWA_NORM_RMS, FWA_PHI_IDENTITY, 1e-5};
        for (int64_t cut = 1; cut < 9; cut++) {
            feature whole = make_feature(p, (int64_t[]){1, 9, 2, 5}, options, false, true);
            check_fill_value(whole.reset, 0);
            check_set(whole.reset, 5, cut >= 6); // a reset inside the halo is the caller's: rows before it must be 0
            run_feature(&whole);
            feature first = make_piece(&whole, 0, cut);
            for (int64_t c = 0; c < 10 && cut >= 6; c++)
                for (int64_t t = 0; t < 5; t++) check_set(whole.x, t * 10 + c, 0);
            feature second = make_piece(&whole, cut, 9 - cut);
            assert_int_equal(check_differences(fwa_tensor_slice(whole.y, 1, 0, cut), first.y), 0);
            assert_int_equal(check_differences(fwa_tensor_slice(whole.y, 1, cut, 9 - cut), second.y), 0);
            for (int64_t h = 0; h < 3; h++) {
                int64_t t = cut - 3 + h;
                bool same_document = t >= (cut >= 6 ? 5 : 0);
                for (int64_t c = 0; c < 10 && same_document; c++)
                    check_set(first.dx, t * 10 + c,
                              check_get(first.dx, t * 10 + c) + check_get(second.dhalo, h * 10 + c));
            }
            check_close(first.dx, fwa_tensor_slice(whole.dx, 1, 0, cut), p->limit);
            check_close(second.dx, fwa_tensor_slice(whole.dx, 1, cut, 9 - cut), p->limit);
            check_release(state);
        }
    }
}

static void test_precisions(void **state) {
    for (int i = 0; i < 2; i++) {
        fwa_feature_options options = {4, true, i ? FWA_NORM_L2 : FWA_NORM_RMS, FWA_PHI_IDENTITY, 1e-5};
        int64_t n[4] = {2, 333, 3, 101};
        feature s[2] = {make_feature(&precisions[0], n, options, true, true),
                        make_feature(&precisions[1], n, options, true, true)};
        for (int k = 0; k < 2; k++)
            check_threads(run_feature, &s[k], (fwa_tensor[]){s[k].y, s[k].rstd, s[k].dx, s[k].dw, s[k].dhalo}, 5);
        check_close(s[1].y, s[0].y, 1e-6);
        check_close(s[1].rstd, s[0].rstd, 1e-6);
        check_close(s[1].dx, s[0].dx, 2e-6);
        check_close(s[1].dw, s[0].dw, 2e-6);
        check_close(s[1].dhalo, s[0].dhalo, 2e-6);
        check_release(state);
    }
}

static void test_wrong_arguments(void **state) {
    (void)state;
    fwa_feature_options options = {4, true, FWA_NORM_RMS, FWA_PHI_IDENTITY, 1e-5};
    feature s = make_feature(precisions, shapes[3], options, true, true);
    fwa_tensor absent = fwa_tensor_absent(), halo = fwa_tensor_slice(s.halo, 1, 0, 2);
    const fwa_ops *ops = s.p->ops;
    check_status(ops->features_forward(NULL, s.y, absent, s.x, s.w, absent, absent, &options), FWA_ERROR);
    check_status(ops->features_forward(NULL, s.y, s.rstd, s.x, absent, absent, absent, &options), FWA_ERROR);
    check_status(ops->features_forward(NULL, s.y, s.rstd, s.x, s.w, halo, absent, &options), FWA_ERROR);
    options.width = 17;
    check_status(ops->features_forward(NULL, s.y, s.rstd, s.x, s.w, absent, absent, &options), FWA_UNSUPPORTED);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_convolution, check_release),
        cmocka_unit_test_teardown(test_activations, check_release),
        cmocka_unit_test_teardown(test_zero_head, check_release),
        cmocka_unit_test_teardown(test_pieces, check_release),
        cmocka_unit_test_teardown(test_precisions, check_release),
        cmocka_unit_test_teardown(test_wrong_arguments, check_release),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
