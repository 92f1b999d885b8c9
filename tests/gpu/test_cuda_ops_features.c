// Convolution, SiLU, head norm and feature map on CUDA, forward and backward, against the CPU in f64.
#include "tests/gpu/device_ops.h"

#define AT(i) arg[i].at[side]

typedef struct shape {
    int64_t B, T, H, K, W;
} shape;

static void run_features(const fwa_backend *on, argument *arg, int side, void *context) {
    const fwa_feature_options *options = context;
    check_ok(on->ops->features_forward(on->stream, AT(0), AT(1), AT(2), AT(3), AT(4), AT(5), options));
    check_ok(
        on->ops->features_backward(on->stream, AT(6), AT(7), AT(8), AT(9), AT(1), AT(2), AT(3), AT(4), AT(5), options));
}

// halo and reset: with a halo before the sequences, with document starts.
static void check_features(shape s, int layout, fwa_feature_options options, bool halo, bool reset) {
    const int64_t P = s.H * s.K;
    if (!is_tried(s.B * s.T * P, layout)) return;
    const bool before = halo && s.W > 1;
    char title[160];
    snprintf(title, sizeof title, "features B %d T %d H %d K %d W %d layout %d norm %d phi %d silu %d halo %d reset %d",
             (int)s.B, (int)s.T, (int)s.H, (int)s.K, (int)s.W, layout, options.norm, options.phi, options.silu, halo,
             reset);
    argument arg[] = {
        moved(output_of(ACT, s.B, s.T, s.H, s.K, 1e-5, 0.005), layout),
        options.norm == FWA_NORM_NONE ? nothing() : output_of(MST, s.B, s.T, s.H, 0, 1e-5, 1e-4),
        in_rows(input_of(ACT, s.B, s.T, P, 0, -2, 2), layout),
        s.W > 0 ? input_of(MST, P, s.W, 0, 0, -1, 1) : nothing(),
        before ? in_rows(input_of(ACT, s.B, s.W - 1, P, 0, -2, 2), layout) : nothing(),
        reset ? input_of(BYTES, s.B, s.T, 0, 0, 0, 1.4) : nothing(),
        in_rows(output_of(ACT, s.B, s.T, P, 0, 1e-5, 0.008), layout),
        s.W > 0 ? sum_of(MST, P, s.W, 0, 0, 1e-5, 1e-4) : nothing(),
        before ? in_rows(output_of(ACT, s.B, s.W - 1, P, 0, 1e-5, 0.008), layout) : nothing(),
        moved(input_of(ACT, s.B, s.T, s.H, s.K, -1, 1), layout),
    };
    options.width = s.W;
    CHECK_OP(title, arg, run_features, &options);
}

static void shapes_agree_with_the_truth(void **state) {
    (void)state;
    const shape shapes[] = {
        {1, 1, 1, 2, 4},     {2, 2, 3, 7, 4},    {1, 31, 2, 64, 4},    {2, 33, 2, 128, 4},
        {1, 100, 6, 128, 4}, {2, 65, 3, 96, 3},  {1, 63, 2, 20, 2},    {2, 40, 2, 128, 1},
        {2, 40, 2, 128, 0},  {1, 37, 2, 130, 4}, {1, 20, 1, 600, 4},   {1, 50, 2, 64, 9},
        {1, 3, 2, 24, 16},   {3, 300, 2, 64, 4}, {4, 1024, 6, 128, 4}, {4, 1024, 12, 64, 4},
    };
    const fwa_feature_options options = {.silu = true, .norm = FWA_NORM_RMS, .phi = FWA_PHI_IDENTITY, .eps = 1e-5};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        for (int l = 0; l < LAYOUTS; l++) check_features(shapes[i], l, options, l != DENSE, l == ODD_ROWS || i % 2);
    }
}

static void every_norm_and_map_agrees_with_the_truth(void **state) {
    (void)state;
    const fwa_norm norms[] = {FWA_NORM_RMS, FWA_NORM_L2, FWA_NORM_NONE};
    const fwa_phi maps[] = {FWA_PHI_IDENTITY, FWA_PHI_ELU1, FWA_PHI_RELU, FWA_PHI_SILU};
    for (int i = 0; i < 24; i++) {
        const fwa_feature_options options = {
            .silu = i >= 12, .norm = norms[i % 3], .phi = maps[i / 3 % 4], .eps = 1e-5};
        check_features((shape){2, 45, 2, 64, 4}, i % LAYOUTS, options, false, false);
        check_features((shape){2, 45, 2, 35, 4}, i % LAYOUTS, options, true, true);
        check_features((shape){1, 45, 1, 200, 0}, i % LAYOUTS, options, false, false);
    }
}

// Nothing but a copy, and only a norm: of dense and of strided rows.
static void plain_features_agree_with_the_truth(void **state) {
    (void)state;
    for (int l = 0; l < LAYOUTS; l++) {
        const fwa_feature_options copy = {.norm = FWA_NORM_NONE}, norm = {.norm = FWA_NORM_RMS, .eps = 1e-5};
        check_features((shape){3, 45, 2, 64, 0}, l, copy, false, false);
        check_features((shape){2, 5, 3, 7, 0}, l, copy, false, false);
        check_features((shape){3, 45, 2, 64, 0}, l, norm, false, false);
    }
}

// More runs than a launch has groups for: every group sums several.
static void many_runs_agree_with_the_truth(void **state) {
    (void)state;
    const fwa_feature_options options = {.silu = true, .norm = FWA_NORM_L2, .phi = FWA_PHI_IDENTITY};
    check_features((shape){2300, 7, 1, 128, 4}, ALIGNED_ROWS, options, false, false);
    check_features((shape){5, 77, 1, 32, 4}, ALIGNED_ROWS, options, true, false); // runs of two sequences in a warp
}

int main(void) {
    devices_open();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shapes_agree_with_the_truth),
        cmocka_unit_test(every_norm_and_map_agrees_with_the_truth),
        cmocka_unit_test(plain_features_agree_with_the_truth),
        cmocka_unit_test(many_runs_agree_with_the_truth),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    devices_close();
    return failed;
}
