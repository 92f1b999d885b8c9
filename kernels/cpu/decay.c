// Log decays, one a head: constants of the head (decay_fill), or from a projection (decay_gate),
//   delta = softplus(x + dt_bias), log_decay = -e^{A_log} delta.
// x, dx [R,H] (rows strided), delta, log_decay, ddelta, dlog_decay [R,H], A_log, dt_bias [H].
//   dx = (ddelta - e^{A_log} dlog_decay) sigmoid(x + dt_bias), ddt_bias = sum_r dx, dA_log = sum_r dlog_decay
//   log_decay,
// where sigmoid(x + dt_bias) = 1 - e^{-delta}: the backward pass needs delta alone.
#include "kernels/cpu/arguments.h"
#include "kernels/cpu/column_sum.h"
#include "kernels/cpu/ops_cpu.h"
#include "kernels/cpu/vexp.h"

#define WORK 20 // of an element with a logarithm or two exponentials

fwa_status FWA_T(fwa_decay_fill_cpu)(fwa_stream *stream, fwa_tensor log_decay, fwa_decay decay, double factor) {
    (void)stream;
    FWA_EXPECT_DIMS(log_decay, 2);
    int64_t R = log_decay.shape[0], H = log_decay.shape[1];
    FWA_EXPECT(log_decay, FWA_REAL_DTYPE, 2, R, H);
#pragma omp parallel if (fwa_parallel(R * H))
    for (int64_t h = 0; h < H; h++) {
        double value =
            decay == FWA_DECAY_RETNET ? log1p(-exp2(-5.0 - (double)h)) : -factor * 8.0 * (double)h / (double)H;
#pragma omp for nowait
        for (int64_t r = 0; r < R; r++) fwa_row(log_decay, r)[h] = (real)value;
    }
    return FWA_OK;
}

static inline real softplus(real x) {
    return (x > 0 ? x : 0) + log1p(fwa_exp(x > 0 ? -x : x));
}

fwa_status FWA_T(fwa_decay_gate_forward_cpu)(fwa_stream *stream, fwa_tensor log_decay, fwa_tensor delta, fwa_tensor x,
                                             fwa_tensor A_log, fwa_tensor dt_bias) {
    (void)stream;
    FWA_EXPECT_DIMS(x, 2);
    int64_t R = x.shape[0], H = x.shape[1];
    FWA_EXPECT(x, FWA_REAL_DTYPE, 2, R, H);
    FWA_EXPECT(log_decay, FWA_REAL_DTYPE, 2, R, H);
    FWA_EXPECT(delta, FWA_REAL_DTYPE, 2, R, H);
    FWA_EXPECT_DENSE(A_log, FWA_REAL_DTYPE, 1, H);
    FWA_EXPECT_DENSE(dt_bias, FWA_REAL_DTYPE, 1, H);
    const real *rate = A_log.data, *bias = dt_bias.data;
#pragma omp parallel for if (fwa_parallel(WORK * R * H))
    for (int64_t r = 0; r < R; r++) {
        const real *in = fwa_row(x, r);
        real *step = fwa_row(delta, r), *out = fwa_row(log_decay, r);
        for (int64_t h = 0; h < H; h++) {
            step[h] = softplus(in[h] + bias[h]);
            out[h] = -fwa_exp(rate[h]) * step[h];
        }
    }
    return FWA_OK;
}

typedef struct gate_sum {
    fwa_tensor dx, dlog_decay, delta;
    const real *A_log;
} gate_sum;

static void add_bias(const void *context, int64_t row, int64_t begin, int64_t count, real *restrict sum) {
    const gate_sum *s = context;
    const real *dx = fwa_row(s->dx, row) + begin;
    for (int64_t i = 0; i < count; i++) sum[i] += dx[i];
}

static void add_rate(const void *context, int64_t row, int64_t begin, int64_t count, real *restrict sum) {
    const gate_sum *s = context;
    const real *d = fwa_row(s->dlog_decay, row) + begin, *delta = fwa_row(s->delta, row) + begin;
    for (int64_t i = 0; i < count; i++) sum[i] -= d[i] * delta[i] * fwa_exp(s->A_log[begin + i]);
}

fwa_status FWA_T(fwa_decay_gate_backward_cpu)(fwa_stream *stream, fwa_tensor dx, fwa_tensor dA_log, fwa_tensor ddt_bias,
                                              fwa_tensor dlog_decay, fwa_tensor ddelta, fwa_tensor delta,
                                              fwa_tensor A_log) {
    (void)stream;
    FWA_EXPECT_DIMS(delta, 2);
    int64_t R = delta.shape[0], H = delta.shape[1];
    FWA_EXPECT(delta, FWA_REAL_DTYPE, 2, R, H);
    FWA_EXPECT(dlog_decay, FWA_REAL_DTYPE, 2, R, H);
    FWA_EXPECT(dx, FWA_REAL_DTYPE, 2, R, H);
    FWA_EXPECT_DENSE(A_log, FWA_REAL_DTYPE, 1, H);
    FWA_EXPECT_DENSE(dA_log, FWA_REAL_DTYPE, 1, H);
    FWA_EXPECT_DENSE(ddt_bias, FWA_REAL_DTYPE, 1, H);
    bool more = fwa_tensor_present(ddelta);
    if (more) FWA_EXPECT(ddelta, FWA_REAL_DTYPE, 2, R, H);
    const gate_sum sum = {dx, dlog_decay, delta, A_log.data};
#pragma omp parallel if (fwa_parallel(WORK * R * H))
    {
#pragma omp for
        for (int64_t r = 0; r < R; r++) {
            const real *d = fwa_row(dlog_decay, r), *step = fwa_row(delta, r);
            real *out = fwa_row(dx, r);
            for (int64_t h = 0; h < H; h++)
                out[h] = ((more ? fwa_row(ddelta, r)[h] : 0) - fwa_exp(sum.A_log[h]) * d[h]) * -expm1(-step[h]);
        }
        fwa_column_sum(ddt_bias.data, R, H, add_bias, &sum);
        fwa_column_sum(dA_log.data, R, H, add_rate, &sum);
    }
    return FWA_OK;
}
