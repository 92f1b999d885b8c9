// Values times one number a head: v = scale x. v, x, dv, dx [R,H,V], scale, dscale [R,H].
//   dx += scale dv, dscale = sum_V dv x.
#include "kernels/cpu/arguments.h"
#include "kernels/cpu/ops_cpu.h"
#include "kernels/cpu/parallel.h"

typedef struct shape {
    int64_t R, H, V;
} shape;

static fwa_status check_arguments(fwa_tensor v, fwa_tensor x, fwa_tensor scale, shape *s) {
    FWA_EXPECT_DIMS(x, 3);
    *s = (shape){x.shape[0], x.shape[1], x.shape[2]};
    FWA_EXPECT_DENSE(x, FWA_REAL_DTYPE, 3, s->R, s->H, s->V);
    FWA_EXPECT_DENSE(v, FWA_REAL_DTYPE, 3, s->R, s->H, s->V);
    FWA_EXPECT_DENSE(scale, FWA_REAL_DTYPE, 2, s->R, s->H);
    return FWA_OK;
}

fwa_status FWA_T(fwa_value_scale_forward_cpu)(fwa_stream *stream, fwa_tensor v, fwa_tensor x, fwa_tensor scale) {
    (void)stream;
    shape s;
    FWA_TRY(check_arguments(v, x, scale, &s));
#pragma omp parallel for if (fwa_parallel(s.R * s.H * s.V))
    for (int64_t row = 0; row < s.R * s.H; row++) {
        const real *in = (const real *)x.data + row * s.V;
        real *out = (real *)v.data + row * s.V, factor = ((const real *)scale.data)[row];
#pragma omp simd
        for (int64_t i = 0; i < s.V; i++) out[i] = factor * in[i];
    }
    return FWA_OK;
}

fwa_status FWA_T(fwa_value_scale_backward_cpu)(fwa_stream *stream, fwa_tensor dx, fwa_tensor dscale, fwa_tensor dv,
                                               fwa_tensor x, fwa_tensor scale) {
    (void)stream;
    shape s;
    FWA_TRY(check_arguments(dv, x, scale, &s));
    FWA_EXPECT_DENSE(dx, FWA_REAL_DTYPE, 3, s.R, s.H, s.V);
    FWA_EXPECT_DENSE(dscale, FWA_REAL_DTYPE, 2, s.R, s.H);
#pragma omp parallel for if (fwa_parallel(2 * s.R * s.H * s.V))
    for (int64_t row = 0; row < s.R * s.H; row++) {
        const real *in = (const real *)x.data + row * s.V, *d = (const real *)dv.data + row * s.V;
        real *out = (real *)dx.data + row * s.V, factor = ((const real *)scale.data)[row], sum = 0;
#pragma omp simd reduction(+ : sum)
        for (int64_t i = 0; i < s.V; i++) {
            out[i] += factor * d[i];
            sum += d[i] * in[i];
        }
        ((real *)dscale.data)[row] = sum;
    }
    return FWA_OK;
}
