// FLOPs of the mixing cores against a count pair by pair, of the paper's models, and the table of device peaks.
#include "tests/check.h"

#include "train/flops.h"

// Multiply-adds of one sequence of T tokens in chunks of C (T a multiple of C), counted pair by pair.
static double counted(const fwa_flops_mixer *m) {
    const bool attention = m->core == FWA_CORE_ATTENTION;
    const bool solves = m->core == FWA_CORE_DELTA || m->core == FWA_CORE_WINDOW;
    double flops = 0;
    for (int64_t t = 0; t < m->T; t++) {
        const int64_t first = attention ? 0 : t / m->C * m->C;
        for (int64_t s = first; s <= t; s++) {
            flops += 2.0 * (double)(m->Hq * m->K + m->H * m->V);
            if (solves && s < t) flops += 2.0 * (double)(m->H * (m->K + m->V));
            if (m->core == FWA_CORE_WINDOW) flops += 2.0 * (double)((m->B - 1) * m->H * m->V);
        }
        if (!attention) flops += (solves ? 6.0 : 4.0) * (double)(m->H * m->K * m->V);
    }
    return flops / (double)m->T;
}

static void test_cores(void **state) {
    (void)state;
    for (int core = 0; core < FWA_CORE_COUNT; core++) {
        const fwa_flops_mixer grouped = {(fwa_core)core, 96, 1, 6, 16, 24, 32, 4};
        const fwa_flops_mixer plain = {(fwa_core)core, 64, 3, 3, 8, 8, 64, 1};
        const double got[2] = {fwa_flops_mixer_forward(&grouped), fwa_flops_mixer_forward(&plain)};
        const double expected[2] = {counted(&grouped), counted(&plain)};
        for (int n = 0; n < 2; n++) {
            if (!(fabs(got[n] / expected[n] - 1) < 1e-12)) {
                fail_msg("core %d, case %d: got %.17g, expected %.17g", core, n, got[n], expected[n]);
            }
        }
    }
}

static void test_short_sequence(void **state) {
    (void)state;
    const fwa_flops_mixer cut = {FWA_CORE_DELTA, 16, 2, 2, 8, 8, 64, 1},
                          whole = {FWA_CORE_DELTA, 16, 2, 2, 8, 8, 16, 1};
    assert_true(fwa_flops_mixer_forward(&cut) == fwa_flops_mixer_forward(&whole));
}

// The 123,587,328-parameter Transformer: 50304 x 768 of them in the tied embedding.
static void test_model(void **state) {
    (void)state;
    const fwa_flops_mixer attention = {FWA_CORE_ATTENTION, 1024, 6, 6, 128, 128, 64, 1};
    const fwa_flops_model model = {123587328 - 50304 * 768, 768, 50304, 12 * fwa_flops_mixer_forward(&attention)};
    const double expected = 6.0 * 123587328 + 3.0 * 12 * 1025 * 6 * 256;
    assert_true(fwa_flops_token(&model) == expected);
    assert_true(fabs(fwa_flops_mfu(expected, 1.51e6, 989e12, 4) - expected * 1.51e6 / 4 / 989e12) < 1e-12);
    assert_true(isnan(fwa_flops_mfu(expected, 1.51e6, NAN, 4)));
}

static void test_peaks(void **state) {
    (void)state;
    assert_true(fwa_flops_device_peak("NVIDIA H200") == 989e12);
    assert_true(fwa_flops_device_peak("NVIDIA H200 NVL") == 835e12);
    assert_true(fwa_flops_device_peak("NVIDIA H100 80GB HBM3") == 989e12);
    assert_true(fwa_flops_device_peak("NVIDIA H100 PCIe") == 756e12);
    assert_true(fwa_flops_device_peak("NVIDIA A100-SXM4-80GB") == 312e12);
    assert_true(fwa_flops_device_peak("NVIDIA A10") == 125e12);
    assert_true(fwa_flops_device_peak("nvidia l40s") == 362e12);
    assert_true(isnan(fwa_flops_device_peak("NVIDIA A1000")));
    assert_true(isnan(fwa_flops_device_peak("NVIDIA H200 MIG 1g.18gb")));
    assert_true(isnan(fwa_flops_device_peak("Tesla V100")));
    assert_true(isnan(fwa_flops_device_peak("cpu")));
    assert_true(isnan(fwa_flops_device_peak("")));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cores),
        cmocka_unit_test(test_short_sequence),
        cmocka_unit_test(test_model),
        cmocka_unit_test(test_peaks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
