// SwiGLU: y[R,F] = silu(a) b with x[R,2F] = (a, b); da = dy b silu'(a), db = dy silu(a).
#include "kernels/cpu/arguments.h"
#include "kernels/cpu/ops_cpu.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/vexp.h"

fwa_status FWA_T(fwa_swiglu_forward_cpu)(fwa_stream *stream, fwa_tensor y, fwa_tensor x) {
    (void)stream;
    FWA_EXPECT_DIMS(y, 2);
    int64_t R = y.shape[0], F = y.shape[1];
    FWA_EXPECT(y, FWA_REAL_DTYPE, 2, R, F);
    FWA_EXPECT(x, FWA_REAL_DTYPE, 2, R, 2 * F);
#pragma omp parallel for if (fwa_parallel(4 * R * F))
    for (int64_t r = 0; r < R; r++) {
        const real *a = fwa_row(x, r), *b = a + F;
        real *out = fwa_row(y, r);
#pragma omp simd
        for (int64_t i = 0; i < F; i++) out[i] = a[i] * fwa_sigmoid(a[i]) * b[i];
    }
    return FWA_OK;
}

fwa_status FWA_T(fwa_swiglu_backward_cpu)(fwa_stream *stream, fwa_tensor dx, fwa_tensor dy, fwa_tensor x) {
    (void)stream;
    FWA_EXPECT_DIMS(dy, 2);
    int64_t R = dy.shape[0], F = dy.shape[1];
    FWA_EXPECT(dy, FWA_REAL_DTYPE, 2, R, F);
    FWA_EXPECT(x, FWA_REAL_DTYPE, 2, R, 2 * F);
    FWA_EXPECT(dx, FWA_REAL_DTYPE, 2, R, 2 * F);
#pragma omp parallel for if (fwa_parallel(5 * R * F))
    for (int64_t r = 0; r < R; r++) {
        const real *a = fwa_row(x, r), *b = a + F, *d = fwa_row(dy, r);
        real *da = fwa_row(dx, r), *db = da + F;
#pragma omp simd
        for (int64_t i = 0; i < F; i++) {
            real gate = a[i], s = fwa_sigmoid(gate), up = b[i];
            da[i] = d[i] * up * fwa_silu_slope(gate, s);
            db[i] = d[i] * gate * s;
        }
    }
    return FWA_OK;
}
