// gemm and the embedding operators against naive loops.
#include "ops_check.h"

typedef struct product {
    int64_t M, N, K;
    bool ta, tb;
    int c; // 0: absent, 1: another tensor, 2: d itself
    double alpha, beta;
} product;

static void check_product(const precision *p, product s) {
    fwa_tensor a = check_new_strided(p->dtype, s.ta ? s.K : s.M, s.ta ? s.M : s.K, 0, 2, 3);
    fwa_tensor b = check_new_strided(p->dtype, s.tb ? s.N : s.K, s.tb ? s.K : s.N, 0, 0, 5);
    fwa_tensor d = check_new_strided(p->dtype, s.M, s.N, 0, 1, 2);
    fwa_tensor c = check_new_strided(p->dtype, s.M, s.N, 0, 4, 0);
    fwa_tensor expected = check_new(FWA_F64, s.M, s.N, 0, 0);
    check_fill_normal(a, 1, 1);
    check_fill_normal(b, 2, 1);
    check_fill_normal(c, 3, 1);
    if (s.c != 1 && s.beta != 0) check_fill_normal(d, 3, 1); // otherwise d stays NaN
    for (int64_t m = 0; m < s.M; m++) {
        for (int64_t n = 0; n < s.N; n++) {
            double sum = 0;
            for (int64_t k = 0; k < s.K; k++)
                sum += check_get(a, s.ta ? k * s.M + m : m * s.K + k) * check_get(b, s.tb ? n * s.K + k : k * s.N + n);
            double old = s.beta != 0 ? check_get(c, m * s.N + n) : 0;
            check_set(expected, m * s.N + n, s.alpha * sum + s.beta * old);
        }
    }
    fwa_tensor third = s.c == 0 ? fwa_tensor_absent() : s.c == 1 ? c : d;
    check_ok(p->ops->gemm(NULL, d, a, s.ta, b, s.tb, third, s.alpha, s.beta));
    check_close(d, expected, p->limit);
    check_margins(d, 1, 2);
}

static void test_gemm(void **state) {
    static const int64_t sizes[][3] = {{1, 1, 1}, {1, 5, 3}, {3, 1, 7}, {63, 65, 2}, {65, 33, 63}, {130, 70, 129}};
    for_each_precision(p) {
        for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
            for (int transposed = 0; transposed < 4; transposed++)
                for (int c = 0; c < 3; c++)
                    check_product(p, (product){sizes[i][0], sizes[i][1], sizes[i][2], transposed & 1, transposed & 2, c,
                                               0.75, c ? -1.5 : 0});
        check_product(p, (product){5, 4, 3, false, false, 0, 1, 1});
        check_release(state);
    }
}

static void test_gemm_empty(void **state) {
    (void)state;
    for_each_precision(p) {
        double none[4];
        fwa_tensor d = check_new(p->dtype, 2, 3, 0, 0), expected = check_new(p->dtype, 2, 3, 0, 0);
        fwa_tensor a = fwa_tensor_2d(none, p->dtype, 2, 0), b = fwa_tensor_2d(none, p->dtype, 0, 3);
        fwa_tensor absent = fwa_tensor_absent();
        check_fill_value(expected, 0);
        check_ok(p->ops->gemm(NULL, d, a, false, b, false, absent, 1, 0));
        check_close(d, expected, 0);
        check_fill_value(d, 2);
        check_fill_value(expected, 3);
        check_ok(p->ops->gemm(NULL, d, a, false, b, false, absent, 1, 1.5));
        check_close(d, expected, 0);
        fwa_tensor row = check_new(p->dtype, 1, 3, 0, 0);
        fwa_tensor no_rows = fwa_tensor_2d(none, p->dtype, 0, 1), no_d = fwa_tensor_2d(none, p->dtype, 0, 3);
        check_ok(p->ops->gemm(NULL, no_d, no_rows, false, row, false, absent, 1, 0));
        check_status(p->ops->gemm(NULL, d, a, false, expected, false, absent, 1, 0), FWA_ERROR);
        check_status(p->ops->gemm(NULL, d, absent, false, b, false, absent, 1, 0), FWA_ERROR);
    }
}

static void test_embedding(void **state) {
    static const int64_t sizes[][3] = {{1, 1, 1}, {2, 3, 5}, {63, 7, 33}, {65, 2, 64}}; // R, N, D
    for_each_precision(p) {
        for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
            int64_t R = sizes[i][0], N = sizes[i][1], D = sizes[i][2];
            fwa_tensor tokens = check_new(FWA_I32, R, 0, 0, 0);
            fwa_tensor w = check_new_strided(p->dtype, N, D, 0, 0, 3), dw = check_new_strided(p->dtype, N, D, 0, 1, 1);
            fwa_tensor y = check_new_strided(p->dtype, R, D, 0, 2, 0), dy = check_new_strided(p->dtype, R, D, 0, 0, 1);
            fwa_tensor expected = check_new(p->dtype, R, D, 0, 0), dw_expected = check_new(FWA_F64, N, D, 0, 0);
            check_fill_below(tokens, 1, (uint64_t)N);
            check_fill_normal(w, 2, 1);
            check_fill_normal(dy, 3, 1);
            check_fill_normal(dw, 4, 1);
            check_copy(dw_expected, dw);
            for (int64_t r = 0; r < R; r++) {
                for (int64_t k = 0; k < D; k++) {
                    int64_t at = (int64_t)check_get(tokens, r) * D + k;
                    check_set(expected, r * D + k, check_get(w, at));
                    check_set(dw_expected, at, check_get(dw_expected, at) + check_get(dy, r * D + k));
                }
            }
            check_ok(p->ops->embedding_forward(NULL, y, w, tokens));
            assert_int_equal(check_differences(y, expected), 0);
            check_ok(p->ops->embedding_backward(NULL, dw, dy, tokens));
            check_close(dw, dw_expected, p->limit);
            check_margins(dw, 1, 1);
            check_set(tokens, R - 1, (double)N);
            check_status(p->ops->embedding_forward(NULL, y, w, tokens), FWA_ERROR);
            check_set(tokens, R - 1, -1);
            check_status(p->ops->embedding_backward(NULL, dw, dy, tokens), FWA_ERROR);
        }
        check_release(state);
    }
}

typedef struct table {
    const precision *p;
    fwa_tensor w, dw, y, dy, tokens;
} table;

static void run_embedding(void *context) {
    table *t = context;
    check_fill_normal(t->dw, 9, 1);
    check_ok(t->p->ops->embedding_forward(NULL, t->y, t->w, t->tokens));
    check_ok(t->p->ops->embedding_backward(NULL, t->dw, t->dy, t->tokens));
}

static void test_embedding_threads(void **state) {
    (void)state;
    for_each_precision(p) {
        table t = {p,
                   check_new(p->dtype, 11, 200, 0, 0),
                   check_new(p->dtype, 11, 200, 0, 0),
                   check_new(p->dtype, 2600, 200, 0, 0),
                   check_new(p->dtype, 2600, 200, 0, 0),
                   check_new(FWA_I32, 2600, 0, 0, 0)};
        check_fill_normal(t.w, 1, 1);
        check_fill_normal(t.dy, 2, 1);
        check_fill_below(t.tokens, 3, 11);
        check_threads(run_embedding, &t, (fwa_tensor[]){t.y, t.dw}, 2);
    }
}

static void test_document_starts(void **state) {
    (void)state;
    for_each_precision(p) {
        static const int32_t ids[] = {9, 8, 10, 9, 0, 9};
        fwa_tensor tokens = check_new(FWA_I32, 6, 0, 0, 0), starts = check_new(FWA_U8, 6, 0, 0, 0);
        memcpy(tokens.data, ids, sizeof ids);
        check_ok(p->ops->document_starts(NULL, starts, tokens, 9));
        for (int i = 0; i < 6; i++) assert_int_equal(((const uint8_t *)starts.data)[i], ids[i] == 9);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_gemm, check_release),
        cmocka_unit_test_teardown(test_gemm_empty, check_release),
        cmocka_unit_test_teardown(test_embedding, check_release),
        cmocka_unit_test_teardown(test_embedding_threads, check_release),
        cmocka_unit_test_teardown(test_document_starts, check_release),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
