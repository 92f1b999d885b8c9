// Gates from a projection: y = scale sigmoid(x + bias). x, dx [R,H] (rows strided; absent where nothing is projected),
// y, dy [R,H], bias, dbias [H].
#include "kernels/cpu/arguments.h"
#include "kernels/cpu/column_sum.h"
#include "kernels/cpu/ops_cpu.h"
#include "kernels/cpu/vexp.h"

fwa_status FWA_T(fwa_sigmoid_gate_forward_cpu)(fwa_stream *stream, fwa_tensor y, fwa_tensor x, fwa_tensor bias,
                                               double scale) {
    (void)stream;
    FWA_EXPECT_DIMS(y, 2);
    int64_t R = y.shape[0], H = y.shape[1];
    const bool projected = fwa_tensor_present(x);
    if (projected) FWA_EXPECT(x, FWA_REAL_DTYPE, 2, R, H);
    FWA_EXPECT(y, FWA_REAL_DTYPE, 2, R, H);
    FWA_EXPECT_DENSE(bias, FWA_REAL_DTYPE, 1, H);
    const real *shift = bias.data;
    real size = (real)scale;
#pragma omp parallel for if (fwa_parallel(4 * R * H))
    for (int64_t r = 0; r < R; r++) {
        const real *in = projected ? fwa_row(x, r) : NULL;
        real *out = fwa_row(y, r);
#pragma omp simd
        for (int64_t i = 0; i < H; i++) out[i] = size * fwa_sigmoid((in ? in[i] : 0) + shift[i]);
    }
    return FWA_OK;
}

typedef struct bias_sum {
    fwa_tensor dy, y;
    real scale;
} bias_sum;

// dy/dx = y (1 - y/scale)
static inline real slope(real y, real scale) {
    return y * (1 - y / scale);
}

static void add_bias(const void *context, int64_t row, int64_t begin, int64_t count, real *restrict sum) {
    const bias_sum *s = context;
    const real *dy = fwa_row(s->dy, row) + begin, *y = fwa_row(s->y, row) + begin;
    for (int64_t i = 0; i < count; i++) sum[i] += dy[i] * slope(y[i], s->scale);
}

fwa_status FWA_T(fwa_sigmoid_gate_backward_cpu)(fwa_stream *stream, fwa_tensor dx, fwa_tensor dbias, fwa_tensor dy,
                                                fwa_tensor y, double scale) {
    (void)stream;
    FWA_EXPECT_DIMS(y, 2);
    int64_t R = y.shape[0], H = y.shape[1];
    FWA_EXPECT(y, FWA_REAL_DTYPE, 2, R, H);
    FWA_EXPECT(dy, FWA_REAL_DTYPE, 2, R, H);
    const bool projected = fwa_tensor_present(dx);
    if (projected) FWA_EXPECT(dx, FWA_REAL_DTYPE, 2, R, H);
    FWA_EXPECT_DENSE(dbias, FWA_REAL_DTYPE, 1, H);
    bias_sum sum = {dy, y, (real)scale};
#pragma omp parallel if (fwa_parallel(2 * R * H))
    {
        fwa_column_sum(dbias.data, R, H, add_bias, &sum);
#pragma omp barrier
#pragma omp for
        for (int64_t r = 0; r < (projected ? R : 0); r++) {
            const real *d = fwa_row(dy, r), *value = fwa_row(y, r);
            real *out = fwa_row(dx, r);
#pragma omp simd
            for (int64_t i = 0; i < H; i++) out[i] = d[i] * slope(value[i], sum.scale);
        }
    }
    return FWA_OK;
}
