// Matrix products on CUDA against the CPU in f64: transposes, strides, result types, accumulation, repeats.
#include "core/shape.h"
#include "tests/gpu/device_ops.h"

#define AT(i) arg[i].at[side]

typedef struct product {
    int64_t M, N, k;
    bool ta, tb, other; // other: c is a tensor of its own
    double alpha, beta;
} product;

static void run_product(const fwa_backend *on, argument *arg, int side, void *context) {
    const product *p = context;
    check_ok(on->ops->gemm(on->stream, AT(0), AT(1), p->ta, AT(2), p->tb, AT(3), p->alpha, p->beta));
}

// d in activations, then in fp32.
static void check_product(product p, int layout) {
    char title[160];
    if (!is_tried(fwa_max(p.M, p.k) * fwa_max(p.N, p.k), layout)) return;
    snprintf(title, sizeof title, "M %d N %d k %d ta %d tb %d other %d alpha %g beta %g layout %d", (int)p.M, (int)p.N,
             (int)p.k, p.ta, p.tb, p.other, p.alpha, p.beta, layout);
    for (int i = 0; i < 2; i++) {
        const kind out = i ? MST : ACT;
        argument d = p.beta != 0 && !p.other ? sum_of(out, p.M, p.N, 0, 0, 1e-5, i ? 1e-5 : 0.005)
                                             : output_of(out, p.M, p.N, 0, 0, 1e-5, i ? 1e-5 : 0.005);
        argument arg[] = {
            in_rows(d, layout),
            in_rows(input_of(ACT, p.ta ? p.k : p.M, p.ta ? p.M : p.k, 0, 0, -1, 1), layout),
            in_rows(input_of(ACT, p.tb ? p.N : p.k, p.tb ? p.k : p.N, 0, 0, -1, 1), layout),
            p.other ? in_rows(input_of(out, p.M, p.N, 0, 0, -1, 1), layout) : nothing(),
        };
        CHECK_OP(title, arg, run_product, &p);
    }
}

static void shapes_agree_with_the_truth(void **state) {
    (void)state;
    const int64_t sizes[][3] = {{1, 1, 1},       {1, 768, 64},   {7, 5, 3},     {64, 33, 17},
                                {128, 256, 100}, {100, 1, 1000}, {257, 129, 65}};
    for (int i = 0; i < 7; i++) {
        for (int t = 0; t < 4; t++) {
            for (int l = 0; l < LAYOUTS; l++)
                if (device_test_size() != TEST_SMALLEST || i % 4 == t)
                    check_product((product){sizes[i][0], sizes[i][1], sizes[i][2], t & 1, t & 2, false, 1, 0}, l);
        }
    }
}

static void sums_agree_with_the_truth(void **state) {
    (void)state;
    for (int l = 0; l < LAYOUTS; l++) {
        check_product((product){65, 96, 40, false, true, false, 1, 1}, l);
        check_product((product){65, 96, 40, true, false, false, -0.5, 0.25}, l);
        check_product((product){65, 96, 40, false, true, true, 2, 1}, l);
        check_product((product){65, 96, 40, false, false, true, 1, 0}, l);
    }
}

// The products of a model: projections, the MLP, logits of some rows, and weight gradients with long sums over rows.
static void model_sizes_agree_with_the_truth(void **state) {
    (void)state;
    check_product((product){4096, 3072, 768, false, true, false, 1, 0}, ALIGNED_ROWS);
    check_product((product){4096, 768, 2048, false, true, true, 1, 1}, ALIGNED_ROWS);
    check_product((product){4096, 768, 4096, false, false, false, 1, 0}, ALIGNED_ROWS);
    check_product((product){3072, 768, 4096, true, false, false, 1, 1}, ALIGNED_ROWS);
    check_product((product){256, 50304, 128, false, true, false, 1.3, 0}, ALIGNED_ROWS);
    check_product((product){50304, 128, 256, true, false, false, 1.3, 1}, ALIGNED_ROWS);
    check_product((product){64, 96, 128, false, true, false, 1, 0}, ALIGNED_ROWS);
    check_product((product){512, 768, 768, false, true, false, 1, 0}, ALIGNED_ROWS);
    check_product((product){768, 256, 4096, true, false, false, 1, 1}, ALIGNED_ROWS);
    check_product((product){512, 768, 768, false, false, true, 1, 1}, ALIGNED_ROWS);
}

// fp32 operands with bits that a shortened product would drop: the error is that of fp32 sums.
static void f32_is_not_shortened(void **state) {
    (void)state;
    product p = {256, 256, 256, false, true, false, 1, 0};
    argument arg[] = {
        output_of(ACT, p.M, p.N, 0, 0, 1e-6, 0),
        input_of(ACT, p.M, p.k, 0, 0, 0.5, 1),
        input_of(ACT, p.N, p.k, 0, 0, 0.5, 1),
        nothing(),
    };
    if (device_takes(p.M * p.N)) check_on(device[0], "f32", arg, 4, run_product, &p);
}

// The choice made at the first call does not disturb what is accumulated to, and later calls use it.
static void accumulation_goes_on(void **state) {
    (void)state;
    fwa_backend *on = device[1];
    argument arg[] = {sum_of(MST, 96, 64, 0, 0, 0, 0), input_of(ACT, 320, 96, 0, 0, -1, 1),
                      input_of(ACT, 320, 64, 0, 0, -1, 1)};
    for (int i = 0; i < 3; i++) argument_make(&arg[i], on, (uint64_t)i);
    for (int i = 0; i < 3; i++) {
        check_ok(on->ops->gemm(on->stream, arg[0].at[DEVICE], arg[1].at[DEVICE], true, arg[2].at[DEVICE], false,
                               fwa_tensor_absent(), 1, 1));
        check_ok(truth->ops->gemm(truth->stream, arg[0].at[TRUTH], arg[1].at[TRUTH], true, arg[2].at[TRUTH], false,
                                  fwa_tensor_absent(), 1, 1));
        check_close(device_read(on, arg[0].at[DEVICE]), arg[0].at[TRUTH], 1e-5);
    }
    for (int i = 0; i < 3; i++) device_release(on, arg[i].at[DEVICE], 0);
    check_release(NULL);
}

static void wrong_arguments_are_refused_by_name(void **state) {
    (void)state;
    fwa_backend *on = device[1];
    argument arg[] = {output_of(ACT, 8, 8, 0, 0, 0, 0), input_of(ACT, 8, 8, 0, 0, -1, 1),
                      input_of(ACT, 8, 4, 0, 0, -1, 1)};
    for (int i = 0; i < 3; i++) argument_make(&arg[i], on, (uint64_t)i);
    fwa_tensor d = arg[0].at[DEVICE], a = arg[1].at[DEVICE], b = arg[2].at[DEVICE], none = fwa_tensor_absent();
    check_status(on->ops->gemm(on->stream, d, a, false, b, false, none, 1, 0), FWA_ERROR);
    assert_non_null(strstr(fwa_error_message(), "b: got"));
    check_status(on->ops->gemm(on->stream, none, a, false, a, false, none, 1, 0), FWA_ERROR);
    assert_non_null(strstr(fwa_error_message(), "d: got"));
    check_status(on->ops->gemm(on->stream, d, a, false, a, false, b, 1, 1), FWA_ERROR);
    assert_non_null(strstr(fwa_error_message(), "c: got"));
    for (int i = 0; i < 3; i++) device_release(on, arg[i].at[DEVICE], 0);
    check_release(NULL);
}

int main(void) {
    devices_open();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shapes_agree_with_the_truth),
        cmocka_unit_test(sums_agree_with_the_truth),
        cmocka_unit_test(model_sizes_agree_with_the_truth),
        cmocka_unit_test(f32_is_not_shortened),
        cmocka_unit_test(accumulation_goes_on),
        cmocka_unit_test(wrong_arguments_are_refused_by_name),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    devices_close();
    return failed;
}
