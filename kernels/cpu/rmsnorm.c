// RMSNorm over rows: y = x rstd w, rstd = 1/sqrt(mean x^2 + eps). x, y [R,D], w [D], rstd [R].
//   dx = rstd (dy w - x rstd^2 mean(dy w x)), dw = sum_r dy x rstd.
#include "kernels/cpu/arguments.h"
#include "kernels/cpu/column_sum.h"
#include "kernels/cpu/ops_cpu.h"

fwa_status FWA_T(fwa_rmsnorm_forward_cpu)(fwa_stream *stream, fwa_tensor y, fwa_tensor rstd, fwa_tensor x, fwa_tensor w,
                                          double eps) {
    (void)stream;
    FWA_EXPECT_DIMS(x, 2);
    int64_t R = x.shape[0], D = x.shape[1];
    FWA_EXPECT(x, FWA_REAL_DTYPE, 2, R, D);
    FWA_EXPECT(y, FWA_REAL_DTYPE, 2, R, D);
    FWA_EXPECT_DENSE(rstd, FWA_REAL_DTYPE, 1, R);
    FWA_EXPECT_DENSE(w, FWA_REAL_DTYPE, 1, D);
    const real *weight = w.data;
#pragma omp parallel for if (fwa_parallel(R * D))
    for (int64_t r = 0; r < R; r++) {
        const real *in = fwa_row(x, r);
        real *out = fwa_row(y, r);
        real sum = 0;
#pragma omp simd reduction(+ : sum)
        for (int64_t i = 0; i < D; i++) sum += in[i] * in[i];
        real scale = 1 / sqrt(sum / (real)D + (real)eps);
        fwa_row(rstd, r)[0] = scale;
#pragma omp simd
        for (int64_t i = 0; i < D; i++) out[i] = in[i] * scale * weight[i];
    }
    return FWA_OK;
}

static void backward_row(real *dx, const real *dy, const real *x, const real *w, real rstd, int64_t D,
                         bool accumulate) {
    real dot = 0;
#pragma omp simd reduction(+ : dot)
    for (int64_t i = 0; i < D; i++) dot += dy[i] * w[i] * x[i];
    real pull = dot * rstd * rstd / (real)D;
    if (!accumulate) {
#pragma omp simd
        for (int64_t i = 0; i < D; i++) dx[i] = rstd * (dy[i] * w[i] - x[i] * pull);
        return;
    }
#pragma omp simd
    for (int64_t i = 0; i < D; i++) dx[i] += rstd * (dy[i] * w[i] - x[i] * pull);
}

typedef struct weight_sum {
    fwa_tensor dy, x, rstd;
} weight_sum;

static void add_weight(const void *context, int64_t row, int64_t begin, int64_t count, real *restrict sum) {
    const weight_sum *s = context;
    const real *dy = fwa_row(s->dy, row) + begin, *x = fwa_row(s->x, row) + begin;
    real rstd = fwa_row(s->rstd, row)[0];
    for (int64_t i = 0; i < count; i++) sum[i] += dy[i] * x[i] * rstd;
}

fwa_status FWA_T(fwa_rmsnorm_backward_cpu)(fwa_stream *stream, fwa_tensor dx, fwa_tensor dw, fwa_tensor dy,
                                           fwa_tensor x, fwa_tensor w, fwa_tensor rstd, bool accumulate) {
    (void)stream;
    FWA_EXPECT_DIMS(x, 2);
    int64_t R = x.shape[0], D = x.shape[1];
    FWA_EXPECT(x, FWA_REAL_DTYPE, 2, R, D);
    FWA_EXPECT(dx, FWA_REAL_DTYPE, 2, R, D);
    FWA_EXPECT(dy, FWA_REAL_DTYPE, 2, R, D);
    FWA_EXPECT_DENSE(dw, FWA_REAL_DTYPE, 1, D);
    FWA_EXPECT_DENSE(w, FWA_REAL_DTYPE, 1, D);
    FWA_EXPECT_DENSE(rstd, FWA_REAL_DTYPE, 1, R);
    weight_sum sum = {dy, x, rstd};
#pragma omp parallel if (fwa_parallel(2 * R * D))
    {
        // The weight first: dx may be dy.
        fwa_column_sum(dw.data, R, D, add_weight, &sum);
#pragma omp barrier
#pragma omp for
        for (int64_t r = 0; r < R; r++)
            backward_row(fwa_row(dx, r), fwa_row(dy, r), fwa_row(x, r), w.data, fwa_row(rstd, r)[0], D, accumulate);
    }
    return FWA_OK;
}
