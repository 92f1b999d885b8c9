// RMSNorm on CUDA, f32 and bf16, against the CPU in f64 on the same (rounded) inputs.
#include "tests/gpu/device_check.h"

// Where x, y, dy and dx stand: dense; rows that stay aligned to 16 bytes; rows and base that do not.
typedef enum layout { DENSE, ALIGNED_ROWS, ODD_ROWS, LAYOUTS } layout;

static const int64_t gap[LAYOUTS] = {0, 16, 3}, offset[LAYOUTS] = {0, 8, 1};

typedef struct shape {
    int64_t R, D;
} shape;

// Inputs and truth on the host (f64), and the same on the device.
typedef struct problem {
    fwa_backend *cuda;
    fwa_tensor x, w, dy, dx, dw, y, rstd; // dx, dw hold what is accumulated to, then the truth
    fwa_tensor dev_x, dev_w, dev_dy, dev_dx, dev_dw, dev_y, dev_rstd;
    int64_t offset;
    bool accumulate;
    double eps;
} problem;

static fwa_backend *truth, *device[2];

static fwa_tensor matrix(shape s, layout l) {
    fwa_tensor t = check_new(FWA_F64, s.R, s.D + gap[l], 0, 0);
    return fwa_tensor_slice(t, 1, 0, s.D);
}

static problem make_problem(fwa_backend *cuda, shape s, layout l, bool accumulate) {
    problem p = {.cuda = cuda, .offset = offset[l], .accumulate = accumulate};
    // With D = 1, dx = rstd dy w eps/(x^2 + eps): a small eps would leave only the difference of two equal numbers.
    p.eps = s.D == 1 ? 0.1 : 1e-5;
    p.x = matrix(s, l), p.dy = matrix(s, l), p.dx = matrix(s, l), p.y = matrix(s, l);
    p.w = check_new(FWA_F64, s.D, 0, 0, 0), p.dw = check_new(FWA_F64, s.D, 0, 0, 0);
    p.rstd = check_new(FWA_F64, s.R, 0, 0, 0);
    check_fill_normal(p.x, 1, 1.5), check_fill_normal(p.dy, 2, 0.7);
    check_fill_normal(p.dx, 3, 1.0), check_fill_normal(p.dw, 4, 1.0);
    check_fill_uniform(p.w, 5, 0.5, 1.5);
    p.dev_x = device_from(cuda, p.x, cuda->compute, p.offset);
    p.dev_dy = device_from(cuda, p.dy, cuda->compute, p.offset);
    p.dev_w = device_from(cuda, p.w, FWA_F32, 0);
    p.dev_dw = device_from(cuda, p.dw, FWA_F32, 0);
    p.dev_dx = accumulate ? device_from(cuda, p.dx, cuda->compute, p.offset)
                          : device_poisoned(cuda, p.dx, cuda->compute, p.offset);
    p.dev_y = device_poisoned(cuda, p.y, cuda->compute, p.offset);
    p.dev_rstd = device_poisoned(cuda, p.rstd, FWA_F32, 0);
    return p;
}

static void free_problem(problem *p) {
    device_release(p->cuda, p->dev_x, p->offset), device_release(p->cuda, p->dev_dy, p->offset);
    device_release(p->cuda, p->dev_dx, p->offset), device_release(p->cuda, p->dev_y, p->offset);
    device_release(p->cuda, p->dev_w, 0), device_release(p->cuda, p->dev_dw, 0);
    device_release(p->cuda, p->dev_rstd, 0);
    check_release(NULL);
}

static void run_device(problem *p, fwa_stream *stream) {
    check_ok(p->cuda->ops->rmsnorm_forward(stream, p->dev_y, p->dev_rstd, p->dev_x, p->dev_w, p->eps));
    check_ok(p->cuda->ops->rmsnorm_backward(stream, p->dev_dx, p->dev_dw, p->dev_dy, p->dev_x, p->dev_w, p->dev_rstd,
                                            p->accumulate));
    check_ok(p->cuda->stream_synchronize(p->cuda, stream));
}

static void run_truth(problem *p) {
    check_ok(truth->ops->rmsnorm_forward(truth->stream, p->y, p->rstd, p->x, p->w, p->eps));
    check_ok(truth->ops->rmsnorm_backward(truth->stream, p->dx, p->dw, p->dy, p->x, p->w, p->rstd, p->accumulate));
}

// Statistics and dw are fp32 in both precisions; y and dx are rounded to the activation type.
static void compare(problem *p) {
    const bool bf16 = p->cuda->compute == FWA_BF16;
    check_close(device_read(p->cuda, p->dev_y), p->y, bf16 ? 0.005 : 1e-5);
    check_close(device_read(p->cuda, p->dev_rstd), p->rstd, 2e-6);
    check_close(device_read(p->cuda, p->dev_dx), p->dx, bf16 ? 0.008 : 1e-5);
    check_close(device_read(p->cuda, p->dev_dw), p->dw, 1e-5);
}

static void check_on(fwa_backend *cuda, shape s, layout l, bool accumulate) {
    print_message("%s R %d D %d layout %d accumulate %d\n", fwa_dtype_name(cuda->compute), (int)s.R, (int)s.D, (int)l,
                  accumulate);
    problem p = make_problem(cuda, s, l, accumulate);
    run_device(&p, p.cuda->stream);
    run_truth(&p);
    compare(&p);
    free_problem(&p);
}

static void check_case(shape s, layout l, bool accumulate) {
    if (!device_takes(s.R * s.D)) return;
    check_on(device[0], s, l, accumulate);
    check_on(device[1], s, l, accumulate);
}

static void shapes_agree_with_the_truth(void **state) {
    (void)state;
    const int64_t rows[] = {1, 3, 1000}, columns[] = {1, 7, 64, 100, 768, 1000, 1001};
    for (int r = 0; r < 3; r++) {
        for (int d = 0; d < 7; d++) check_case((shape){rows[r], columns[d]}, DENSE, (r + d) % 2);
    }
    check_case((shape){33, 768}, DENSE, true);
    check_case((shape){4096, 768}, DENSE, true);
}

// Rows in registers: teams of 1, 2 and 4 warps with 1 to 4 packs a thread, several rows a team, and the widest.
static void teams_agree_with_the_truth(void **state) {
    (void)state;
    const int64_t columns[] = {256, 512, 640, 1024, 1536, 2048, 3072, 4096};
    for (int d = 0; d < 8; d++) check_case((shape){columns[d] < 2048 ? 2500 : 700, columns[d]}, DENSE, d % 2);
}

// Beyond the sums that a block keeps in shared memory, with and without packs.
static void wide_rows_agree_with_the_truth(void **state) {
    (void)state;
    check_case((shape){5, 8192}, DENSE, false);
    check_case((shape){5, 8200}, DENSE, false);
    check_case((shape){5, 8201}, DENSE, true);
}

// The workspace holds 8 rows of sums only: one block has two rows.
static void few_partial_sums_agree_with_the_truth(void **state) {
    (void)state;
    if (device_test_size() != TEST_SMALLEST) check_on(device[1], (shape){9, 1000000}, DENSE, false);
}

// More rows than blocks: every block sums several.
static void many_rows_agree_with_the_truth(void **state) {
    (void)state;
    check_case((shape){20000, 64}, DENSE, false);
}

static void strided_rows_agree_with_the_truth(void **state) {
    (void)state;
    for (int accumulate = 0; accumulate < 2; accumulate++) {
        check_case((shape){33, 768}, ALIGNED_ROWS, accumulate);
        check_case((shape){33, 768}, ODD_ROWS, accumulate);
    }
}

// A sequence of zeros has rstd = eps^-1/2 and no NaN.
static void rows_of_zeros_stay_finite(void **state) {
    (void)state;
    for (int i = 0; i < 2; i++) {
        problem p = make_problem(device[i], (shape){4, 64}, DENSE, false);
        check_ok(p.cuda->fill(p.cuda, p.cuda->stream, p.dev_x.data, 0, fwa_tensor_bytes(p.dev_x)));
        check_fill_value(p.x, 0.0);
        run_device(&p, p.cuda->stream);
        run_truth(&p);
        compare(&p);
        free_problem(&p);
    }
}

// The same problem again, and on another stream with its own workspace: the same bits.
static void repeats_give_the_same_bits(void **state) {
    (void)state;
    const int64_t rows = device_takes(3000 * 768) ? 3000 : 40;
    for (int i = 0; i < 2; i++) {
        fwa_backend *cuda = device[i];
        fwa_stream *other;
        check_ok(cuda->stream_create(cuda, &other));
        problem runs[3];
        fwa_tensor first[4], now[4];
        for (int n = 0; n < 3; n++) {
            runs[n] = make_problem(cuda, (shape){rows, 768}, DENSE, false);
            check_ok(cuda->stream_synchronize(cuda, cuda->stream)); // the other stream does not wait for it
            run_device(&runs[n], n == 2 ? other : cuda->stream);
            now[0] = device_read(cuda, runs[n].dev_y), now[1] = device_read(cuda, runs[n].dev_rstd);
            now[2] = device_read(cuda, runs[n].dev_dx), now[3] = device_read(cuda, runs[n].dev_dw);
            if (n == 0) memcpy(first, now, sizeof first);
            for (int j = 0; j < 4; j++) assert_int_equal(check_differences(now[j], first[j]), 0);
        }
        cuda->stream_destroy(cuda, other);
        for (int n = 0; n < 3; n++) free_problem(&runs[n]);
    }
}

static void wrong_arguments_are_refused_by_name(void **state) {
    (void)state;
    problem p = make_problem(device[1], (shape){3, 64}, DENSE, false);
    const fwa_ops *ops = p.cuda->ops;
    fwa_tensor narrow = fwa_tensor_slice(p.dev_y, 1, 0, 63);
    check_status(ops->rmsnorm_forward(p.cuda->stream, narrow, p.dev_rstd, p.dev_x, p.dev_w, p.eps), FWA_ERROR);
    assert_non_null(strstr(fwa_error_message(), "y: got"));
    fwa_tensor wrong = p.dev_rstd;
    wrong.dtype = FWA_BF16;
    check_status(ops->rmsnorm_forward(p.cuda->stream, p.dev_y, wrong, p.dev_x, p.dev_w, p.eps), FWA_ERROR);
    assert_non_null(strstr(fwa_error_message(), "rstd: got"));
    check_status(ops->rmsnorm_backward(p.cuda->stream, p.dev_dx, fwa_tensor_absent(), p.dev_dy, p.dev_x, p.dev_w,
                                       p.dev_rstd, false),
                 FWA_ERROR);
    assert_non_null(strstr(fwa_error_message(), "dw: got"));
    free_problem(&p);
}

int main(void) {
    device[0] = device_open(FWA_F32);
    device[1] = device_open(FWA_BF16);
    truth = device_truth();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shapes_agree_with_the_truth),         cmocka_unit_test(teams_agree_with_the_truth),
        cmocka_unit_test(wide_rows_agree_with_the_truth),      cmocka_unit_test(few_partial_sums_agree_with_the_truth),
        cmocka_unit_test(many_rows_agree_with_the_truth),      cmocka_unit_test(strided_rows_agree_with_the_truth),
        cmocka_unit_test(rows_of_zeros_stay_finite),           cmocka_unit_test(repeats_give_the_same_bits),
        cmocka_unit_test(wrong_arguments_are_refused_by_name),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    truth->destroy(truth);
    device[0]->destroy(device[0]);
    device[1]->destroy(device[1]);
    return failed;
}
