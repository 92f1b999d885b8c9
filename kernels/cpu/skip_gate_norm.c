// A skip around the memory, a gate, and a norm over all heads together: y = n w, n = u rstd, u = s silu(g),
// s = o + skip x, rstd = 1/sqrt(mean_{H,V} u^2 + eps).
// o, x, d_o, dx [R,H,V], skip, dskip [H], w, dw [H*V], g, dg [R,H*V] (rows strided; absent: u = s), rstd [R], y, dy
// [R,H*V].
//   du = rstd (dy w - n mean(dy w n)), dw = sum_r dy n, ds = du silu(g), dg = du s silu'(g);
//   d_o = ds, dx = skip ds, dskip = sum_{r,V} ds x.
#include "kernels/cpu/arguments.h"
#include "kernels/cpu/column_sum.h"
#include "kernels/cpu/ops_cpu.h"
#include "kernels/cpu/vexp.h"

typedef struct shape {
    int64_t R, H, V, D; // D = H V
} shape;

static fwa_status check_arguments(fwa_tensor o, fwa_tensor x, fwa_tensor skip, fwa_tensor w, fwa_tensor g,
                                  fwa_tensor rstd, fwa_tensor y, shape *s) {
    FWA_EXPECT_DIMS(o, 3);
    *s = (shape){o.shape[0], o.shape[1], o.shape[2], o.shape[1] * o.shape[2]};
    FWA_EXPECT_DENSE(o, FWA_REAL_DTYPE, 3, s->R, s->H, s->V);
    FWA_EXPECT_DENSE(x, FWA_REAL_DTYPE, 3, s->R, s->H, s->V);
    FWA_EXPECT_DENSE(skip, FWA_REAL_DTYPE, 1, s->H);
    FWA_EXPECT_DENSE(w, FWA_REAL_DTYPE, 1, s->D);
    FWA_EXPECT_DENSE(rstd, FWA_REAL_DTYPE, 1, s->R);
    FWA_EXPECT(y, FWA_REAL_DTYPE, 2, s->R, s->D);
    if (fwa_tensor_present(g)) FWA_EXPECT(g, FWA_REAL_DTYPE, 2, s->R, s->D);
    return FWA_OK;
}

// u of one row; g NULL: no gate.
static void gated_row(real *u, const real *o, const real *x, const real *skip, const real *g, const shape *s) {
    for (int64_t h = 0; h < s->H; h++)
#pragma omp simd
        for (int64_t i = h * s->V; i < (h + 1) * s->V; i++) u[i] = o[i] + skip[h] * x[i];
    if (!g) return;
#pragma omp simd
    for (int64_t i = 0; i < s->D; i++) u[i] *= g[i] * fwa_sigmoid(g[i]);
}

static const real *gate_row(fwa_tensor g, int64_t r) {
    return fwa_tensor_present(g) ? fwa_row(g, r) : NULL;
}

fwa_status FWA_T(fwa_skip_gate_norm_forward_cpu)(fwa_stream *stream, fwa_tensor y, fwa_tensor rstd, fwa_tensor o,
                                                 fwa_tensor x, fwa_tensor skip, fwa_tensor w, fwa_tensor g,
                                                 double eps) {
    (void)stream;
    shape s;
    FWA_TRY(check_arguments(o, x, skip, w, g, rstd, y, &s));
    const real *weight = w.data;
#pragma omp parallel for if (fwa_parallel(6 * s.R * s.D))
    for (int64_t r = 0; r < s.R; r++) {
        real *out = fwa_row(y, r), sum = 0;
        gated_row(out, fwa_row(o, r), fwa_row(x, r), skip.data, gate_row(g, r), &s);
#pragma omp simd reduction(+ : sum)
        for (int64_t i = 0; i < s.D; i++) sum += out[i] * out[i];
        real scale = 1 / sqrt(sum / (real)s.D + (real)eps);
        ((real *)rstd.data)[r] = scale;
#pragma omp simd
        for (int64_t i = 0; i < s.D; i++) out[i] *= scale * weight[i];
    }
    return FWA_OK;
}

typedef struct sums {
    fwa_tensor dy, n, ds, x;
    int64_t V;
} sums;

static void add_weight(const void *context, int64_t row, int64_t begin, int64_t count, real *restrict sum) {
    const sums *s = context;
    const real *dy = fwa_row(s->dy, row) + begin, *n = fwa_row(s->n, row) + begin;
    for (int64_t i = 0; i < count; i++) sum[i] += dy[i] * n[i];
}

static void add_skip(const void *context, int64_t row, int64_t begin, int64_t count, real *restrict sum) {
    const sums *s = context;
    for (int64_t h = 0; h < count; h++) {
        const real *ds = fwa_row(s->ds, row) + (begin + h) * s->V, *x = fwa_row(s->x, row) + (begin + h) * s->V;
        real dot = 0;
#pragma omp simd reduction(+ : dot)
        for (int64_t i = 0; i < s->V; i++) dot += ds[i] * x[i];
        sum[h] += dot;
    }
}

// n -> du in place, for one row.
static void norm_backward(real *n, const real *dy, const real *w, real rstd, int64_t D) {
    real pull = 0;
#pragma omp simd reduction(+ : pull)
    for (int64_t i = 0; i < D; i++) pull += dy[i] * w[i] * n[i];
    pull /= (real)D;
#pragma omp simd
    for (int64_t i = 0; i < D; i++) n[i] = rstd * (dy[i] * w[i] - n[i] * pull);
}

// du -> ds in place, and dg, for one row. `ds` comes back as dx too, times skip.
static void gate_backward(real *ds, real *dx, real *dg, const real *o, const real *x, const real *skip, const real *g,
                          const shape *s) {
    for (int64_t h = 0; h < s->H; h++) {
        const int64_t begin = h * s->V, end = begin + s->V;
        if (g)
#pragma omp simd
            for (int64_t i = begin; i < end; i++) {
                real gate = g[i], sigmoid = fwa_sigmoid(gate), du = ds[i];
                dg[i] = du * (o[i] + skip[h] * x[i]) * fwa_silu_slope(gate, sigmoid);
                ds[i] = du * (gate * sigmoid);
            }
#pragma omp simd
        for (int64_t i = begin; i < end; i++) dx[i] = skip[h] * ds[i];
    }
}

// Two passes over the rows; between them d_o holds n, from which dw is summed.
fwa_status FWA_T(fwa_skip_gate_norm_backward_cpu)(fwa_stream *stream, fwa_tensor d_o, fwa_tensor dx, fwa_tensor dskip,
                                                  fwa_tensor dw, fwa_tensor dg, fwa_tensor dy, fwa_tensor o,
                                                  fwa_tensor x, fwa_tensor skip, fwa_tensor rstd, fwa_tensor w,
                                                  fwa_tensor g) {
    (void)stream;
    shape s;
    FWA_TRY(check_arguments(o, x, skip, w, g, rstd, dy, &s));
    FWA_EXPECT_DENSE(d_o, FWA_REAL_DTYPE, 3, s.R, s.H, s.V);
    FWA_EXPECT_DENSE(dx, FWA_REAL_DTYPE, 3, s.R, s.H, s.V);
    FWA_EXPECT_DENSE(dskip, FWA_REAL_DTYPE, 1, s.H);
    FWA_EXPECT_DENSE(dw, FWA_REAL_DTYPE, 1, s.D);
    bool gated = fwa_tensor_present(g);
    if (gated) FWA_EXPECT(dg, FWA_REAL_DTYPE, 2, s.R, s.D);
    const real *scale = rstd.data;
    const sums sum = {dy, d_o, d_o, x, s.V};
#pragma omp parallel if (fwa_parallel(12 * s.R * s.D))
    {
#pragma omp for
        for (int64_t r = 0; r < s.R; r++) {
            real *n = fwa_row(d_o, r);
            gated_row(n, fwa_row(o, r), fwa_row(x, r), skip.data, gate_row(g, r), &s);
#pragma omp simd
            for (int64_t i = 0; i < s.D; i++) n[i] *= scale[r];
        }
        fwa_column_sum(dw.data, s.R, s.D, add_weight, &sum);
#pragma omp barrier
#pragma omp for
        for (int64_t r = 0; r < s.R; r++) {
            norm_backward(fwa_row(d_o, r), fwa_row(dy, r), w.data, scale[r], s.D);
            gate_backward(fwa_row(d_o, r), fwa_row(dx, r), gated ? fwa_row(dg, r) : NULL, fwa_row(o, r), fwa_row(x, r),
                          skip.data, gate_row(g, r), &s);
        }
        fwa_column_sum(dskip.data, s.R, s.H, add_skip, &sum);
    }
    return FWA_OK;
}
