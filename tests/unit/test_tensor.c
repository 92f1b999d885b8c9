// Views: shapes, strides, reshaping, slicing, checking.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "core/tensor.h"

static float element(fwa_tensor t, const int64_t *index) {
    int64_t at = 0;
    for (int i = 0; i < t.ndim; i++) at += index[i] * t.stride[i];
    return ((const float *)t.data)[at];
}

// The elements of a view of up to four dimensions in logical order.
static int64_t elements(fwa_tensor t, float *out) {
    int64_t n = 0, size[FWA_MAX_DIMS] = {1, 1, 1, 1};
    for (int i = 0; i < t.ndim; i++) size[i] = t.shape[i];
    for (int64_t a = 0; a < size[0]; a++)
        for (int64_t b = 0; b < size[1]; b++)
            for (int64_t c = 0; c < size[2]; c++)
                for (int64_t d = 0; d < size[3]; d++) out[n++] = element(t, (const int64_t[]){a, b, c, d});
    return n;
}

static void assert_same_elements(fwa_tensor a, fwa_tensor b) {
    float x[512], y[512];
    assert_true(fwa_tensor_present(a) && fwa_tensor_present(b));
    assert_int_equal(fwa_tensor_count(a), fwa_tensor_count(b));
    int64_t n = elements(a, x);
    assert_int_equal(elements(b, y), n);
    assert_memory_equal(x, y, (size_t)n * sizeof *x);
    assert_int_equal(b.stride[b.ndim - 1], 1);
}

static void assert_absent(fwa_tensor t) {
    assert_null(t.data);
    assert_int_equal(t.ndim, 0);
}

static float data[512];

static int fill(void **state) {
    (void)state;
    for (int i = 0; i < 512; i++) data[i] = (float)i;
    return 0;
}

static void test_types(void **state) {
    (void)state;
    const size_t sizes[FWA_DTYPE_COUNT] = {8, 4, 2, 4, 8, 1};
    const char *const names[FWA_DTYPE_COUNT] = {"f64", "f32", "bf16", "i32", "i64", "u8"};
    for (int i = 0; i < FWA_DTYPE_COUNT; i++) {
        assert_int_equal(fwa_dtype_size((fwa_dtype)i), sizes[i]);
        assert_string_equal(fwa_dtype_name((fwa_dtype)i), names[i]);
    }
}

static void test_dense(void **state) {
    (void)state;
    fwa_tensor t = fwa_tensor_4d(data, FWA_F32, 2, 3, 4, 5);
    assert_int_equal(t.ndim, 4);
    assert_int_equal(t.stride[0], 60);
    assert_int_equal(t.stride[1], 20);
    assert_int_equal(t.stride[2], 5);
    assert_int_equal(t.stride[3], 1);
    assert_int_equal(fwa_tensor_count(t), 120);
    assert_int_equal(fwa_tensor_bytes(t), 480);
    assert_true(fwa_tensor_dense(t));
    assert_int_equal(fwa_tensor_bytes(fwa_tensor_3d(data, FWA_F64, 2, 3, 4)), 192);
    assert_int_equal(fwa_tensor_bytes(fwa_tensor_2d(data, FWA_BF16, 2, 3)), 12);
    assert_int_equal(fwa_tensor_bytes(fwa_tensor_1d(data, FWA_U8, 7)), 7);
    assert_false(fwa_tensor_present(fwa_tensor_absent()));
    assert_int_equal(fwa_tensor_count(fwa_tensor_absent()), 0);
    assert_int_equal(fwa_tensor_bytes(fwa_tensor_absent()), 0);
}

static void test_dense_ignores_strides_of_single_rows(void **state) {
    (void)state;
    fwa_tensor rows = fwa_tensor_2d(data, FWA_F32, 4, 10);
    assert_false(fwa_tensor_dense(fwa_tensor_slice(rows, 1, 2, 5)));
    assert_true(fwa_tensor_dense(fwa_tensor_slice(fwa_tensor_slice(rows, 1, 2, 5), 0, 1, 1)));
    assert_true(fwa_tensor_dense(fwa_tensor_slice(rows, 0, 1, 2)));
    assert_true(fwa_tensor_dense(fwa_tensor_slice(rows, 1, 2, 0)));
}

static void test_packed_projection(void **state) {
    (void)state;
    enum { B = 2, T = 3, H = 2, K = 4, P = 20, START = 5 };
    fwa_tensor packed = fwa_tensor_2d(data, FWA_F32, B * T, P);
    fwa_tensor q = fwa_tensor_slice(packed, 1, START, H * K); // [R, H*K], rows P apart
    fwa_tensor view = fwa_tensor_as_4d(q, B, T, H, K);
    assert_int_equal(view.stride[0], T * P);
    assert_int_equal(view.stride[1], P);
    assert_int_equal(view.stride[2], K);
    assert_int_equal(view.stride[3], 1);
    assert_ptr_equal(view.data, data + START);
    assert_same_elements(q, view);
    assert_same_elements(q, fwa_tensor_as_2d(view, B * T, H * K)); // and back
    assert_same_elements(q, fwa_tensor_as_3d(view, B, T, H * K));
    assert_same_elements(q, fwa_tensor_as_3d(q, B * T, H, K));
    fwa_tensor late = fwa_tensor_slice(view, 1, 1, 2); // times 1, 2 of each sequence
    assert_int_equal(element(late, (const int64_t[]){1, 0, 1, 2}), (float)((T + 1) * P + START + K + 2));
    assert_absent(fwa_tensor_as_2d(late, B * 2, H * K)); // sequences no longer follow each other
    assert_same_elements(late, fwa_tensor_as_3d(late, B, 2, H * K));
    assert_absent(fwa_tensor_as_2d(q, B * T / 2, 2 * H * K)); // rows have gaps
    assert_absent(fwa_tensor_as_2d(q, B * T, H * K + 1));
}

static void test_dense_reshapes(void **state) {
    (void)state;
    fwa_tensor t = fwa_tensor_2d(data, FWA_F32, 6, 10);
    assert_same_elements(t, fwa_tensor_as_2d(t, 4, 15));
    assert_same_elements(t, fwa_tensor_as_2d(t, 1, 60));
    assert_same_elements(t, fwa_tensor_as_4d(t, 3, 4, 1, 5));
    assert_same_elements(t, fwa_tensor_as_2d(t, 60, 1));
    assert_absent(fwa_tensor_as_2d(t, 7, 9));
    assert_absent(fwa_tensor_as_2d(t, 6, 5));
    assert_absent(fwa_tensor_as_2d(t, 6, 0));
    fwa_tensor one = fwa_tensor_as_4d(fwa_tensor_1d(data, FWA_F32, 1), 1, 1, 1, 1);
    assert_int_equal(element(one, (const int64_t[]){0, 0, 0, 0}), 0);
}

static void test_single_columns(void **state) {
    (void)state;
    fwa_tensor column = fwa_tensor_slice(fwa_tensor_2d(data, FWA_F32, 6, 10), 1, 3, 1); // [6,1], rows 10 apart
    fwa_tensor view = fwa_tensor_as_3d(column, 2, 3, 1);
    assert_same_elements(column, view);
    assert_int_equal(view.stride[1], 10);
    assert_absent(fwa_tensor_as_2d(column, 1, 6)); // its last dimension would be strided
}

static void test_empty_and_unbound(void **state) {
    (void)state;
    fwa_tensor empty = fwa_tensor_3d(data, FWA_F32, 2, 0, 8);
    assert_int_equal(fwa_tensor_count(empty), 0);
    fwa_tensor view = fwa_tensor_as_4d(empty, 2, 0, 2, 4);
    assert_true(fwa_tensor_present(view));
    assert_int_equal(view.shape[3], 4);
    fwa_tensor planned = fwa_tensor_2d(NULL, FWA_F32, 6, 8);
    view = fwa_tensor_as_3d(planned, 2, 3, 8);
    assert_null(view.data);
    assert_int_equal(view.ndim, 3);
    assert_null(fwa_tensor_slice(planned, 0, 3, 2).data);
}

static void test_text(void **state) {
    (void)state;
    char text[96];
    assert_string_equal(fwa_tensor_text(fwa_tensor_3d(data, FWA_F32, 2, 3, 4), text), "[2, 3, 4] f32");
    assert_string_equal(fwa_tensor_text(fwa_tensor_1d(data, FWA_BF16, 7), text), "[7] bf16");
    assert_string_equal(fwa_tensor_text(fwa_tensor_absent(), text), "absent");
    const int64_t huge = INT64_MAX;
    fwa_tensor t = {.data = data, .ndim = 4, .shape = {huge, huge, huge, huge}};
    assert_true(strlen(fwa_tensor_text(t, text)) < 96);
}

static void test_expect(void **state) {
    (void)state;
    fwa_tensor t = fwa_tensor_2d(data, FWA_F32, 2, 3);
    assert_int_equal(fwa_tensor_expect(t, "x", FWA_F32, 2, (int64_t)2, (int64_t)3), FWA_OK);
    assert_int_equal(fwa_tensor_expect(t, "x", FWA_F32, 2, (int64_t)2, (int64_t)4), FWA_ERROR);
    assert_string_equal(fwa_error_message(), "x: got [2, 3] f32, expected [2, 4] f32");
    assert_int_equal(fwa_tensor_expect(t, "x", FWA_F64, 2, (int64_t)2, (int64_t)3), FWA_ERROR);
    assert_int_equal(fwa_tensor_expect(t, "x", FWA_F32, 3, (int64_t)2, (int64_t)3, (int64_t)1), FWA_ERROR);
    assert_int_equal(fwa_tensor_expect(fwa_tensor_absent(), "x", FWA_F32, 1, (int64_t)2), FWA_ERROR);
    assert_string_equal(fwa_error_message(), "x: got absent, expected [2] f32");
    t.data = NULL;
    assert_int_equal(fwa_tensor_expect(t, "x", FWA_F32, 2, (int64_t)2, (int64_t)3), FWA_ERROR);
    assert_string_equal(fwa_error_message(), "x: got [2, 3] f32 without memory, expected [2, 3] f32");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_types),
        cmocka_unit_test(test_dense),
        cmocka_unit_test(test_dense_ignores_strides_of_single_rows),
        cmocka_unit_test(test_packed_projection),
        cmocka_unit_test(test_dense_reshapes),
        cmocka_unit_test(test_single_columns),
        cmocka_unit_test(test_empty_and_unbound),
        cmocka_unit_test(test_text),
        cmocka_unit_test(test_expect),
    };
    return cmocka_run_group_tests(tests, fill, NULL);
}
