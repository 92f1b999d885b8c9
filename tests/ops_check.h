// What the operator tests share: the CPU operator tables of both precisions, and running under 1 and 2 threads.
#ifndef FWA_TESTS_OPS_CHECK_H
#define FWA_TESTS_OPS_CHECK_H

#include <omp.h>

#include "check.h"
#include "kernels/cpu/ops_cpu.h"

#define FWA_OP(backends, name, parameters, arguments) .name = fwa_##name##_cpu_f32,
static const fwa_ops ops_f32 = {
#include "kernels/ops.def"
};
#undef FWA_OP
#define FWA_OP(backends, name, parameters, arguments) .name = fwa_##name##_cpu_f64,
static const fwa_ops ops_f64 = {
#include "kernels/ops.def"
};
#undef FWA_OP

// A precision under test: its table, its type, and the error allowed against a naive reference in double: some tens of
// roundings, for sums in another order.
typedef struct precision {
    const fwa_ops *ops;
    fwa_dtype dtype;
    double limit;
} precision;

static const precision precisions[] = {{&ops_f64, FWA_F64, 1e-13}, {&ops_f32, FWA_F32, 3e-6}};

// An analytic gradient against central differences: their h^2 is 1e-10, their cancellation about 1e-16 / 1e-5.
#define GRADIENT_LIMIT 1e-8

#define for_each_precision(p) for (const precision *p = precisions; p < precisions + 2; p++)

static inline double naive_sigmoid(double x) {
    return 1 / (1 + exp(-x));
}
static inline double naive_silu(double x) {
    return x * naive_sigmoid(x);
}

// Runs `body(context)` with 1 and with 2 threads, and fails unless `output` holds the same bits after both. `body` must
// set its accumulating outputs itself.
static inline void check_threads(void (*body)(void *context), void *context, const fwa_tensor *outputs, int count) {
    int threads = omp_get_max_threads();
    fwa_tensor once[8];
    omp_set_num_threads(1);
    body(context);
    for (int i = 0; i < count; i++) {
        once[i] = fwa_tensor_nd(NULL, outputs[i].dtype, outputs[i].ndim, outputs[i].shape);
        once[i].data = check_alloc(fwa_tensor_bytes(once[i]));
        check_copy(once[i], outputs[i]);
    }
    omp_set_num_threads(2);
    body(context);
    omp_set_num_threads(threads);
    for (int i = 0; i < count; i++) assert_int_equal(check_differences(outputs[i], once[i]), 0);
}

#endif
