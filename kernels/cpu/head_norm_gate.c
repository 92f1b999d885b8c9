// Norm over each head, times a gate: y = n w silu(g), n = o rstd, rstd = 1/sqrt(mean_V o^2 + eps).
// o, d_o [R,H,V], w, dw [V] shared by the heads, g, dg [R,H*V] (rows strided; absent: no gate), rstd [R,H], y, dy
// [R,H*V].
//   dg = dy n w silu'(g), a = dy silu(g), dw = sum_{r,h} a n, d_o = rstd (a w - n mean_V(a w n)).
#include <string.h>

#include "kernels/cpu/arguments.h"
#include "kernels/cpu/column_sum.h"
#include "kernels/cpu/ops_cpu.h"
#include "kernels/cpu/vexp.h"

typedef struct shape {
    int64_t R, H, V;
} shape;

static fwa_status check_arguments(fwa_tensor o, fwa_tensor w, fwa_tensor g, fwa_tensor rstd, fwa_tensor y, shape *s) {
    FWA_EXPECT_DIMS(o, 3);
    *s = (shape){o.shape[0], o.shape[1], o.shape[2]};
    FWA_EXPECT_DENSE(o, FWA_REAL_DTYPE, 3, s->R, s->H, s->V);
    FWA_EXPECT_DENSE(w, FWA_REAL_DTYPE, 1, s->V);
    FWA_EXPECT_DENSE(rstd, FWA_REAL_DTYPE, 2, s->R, s->H);
    FWA_EXPECT(y, FWA_REAL_DTYPE, 2, s->R, s->H * s->V);
    if (fwa_tensor_present(g)) FWA_EXPECT(g, FWA_REAL_DTYPE, 2, s->R, s->H * s->V);
    return FWA_OK;
}

fwa_status FWA_T(fwa_head_norm_gate_forward_cpu)(fwa_stream *stream, fwa_tensor y, fwa_tensor rstd, fwa_tensor o,
                                                 fwa_tensor w, fwa_tensor g, double eps) {
    (void)stream;
    shape s;
    FWA_TRY(check_arguments(o, w, g, rstd, y, &s));
    int64_t V = s.V;
    const real *weight = w.data;
#pragma omp parallel for if (fwa_parallel(4 * s.R * s.H * V))
    for (int64_t row = 0; row < s.R * s.H; row++) {
        int64_t r = row / s.H, h = row % s.H;
        const real *in = (const real *)o.data + row * V;
        real *out = fwa_row(y, r) + h * V;
        real sum = 0;
#pragma omp simd reduction(+ : sum)
        for (int64_t i = 0; i < V; i++) sum += in[i] * in[i];
        real scale = 1 / sqrt(sum / (real)V + (real)eps);
        ((real *)rstd.data)[row] = scale;
        if (fwa_tensor_present(g)) {
            const real *gate = fwa_row(g, r) + h * V;
#pragma omp simd
            for (int64_t i = 0; i < V; i++) out[i] = in[i] * scale * weight[i] * (gate[i] * fwa_sigmoid(gate[i]));
        } else {
#pragma omp simd
            for (int64_t i = 0; i < V; i++) out[i] = in[i] * scale * weight[i];
        }
    }
    return FWA_OK;
}

// a = dy silu(g) into `a`, and dg.
static void gate_backward(real *a, real *dg, const real *dy, const real *o, real rstd, const real *w, const real *g,
                          int64_t V) {
#pragma omp simd
    for (int64_t i = 0; i < V; i++) {
        real gate = g[i], sigmoid = fwa_sigmoid(gate), d = dy[i];
        a[i] = d * (gate * sigmoid);
        dg[i] = d * (o[i] * rstd * w[i]) * fwa_silu_slope(gate, sigmoid);
    }
}

// d_o from a, in place.
static void norm_backward(real *a, const real *o, real rstd, const real *w, int64_t V) {
    real dot = 0;
#pragma omp simd reduction(+ : dot)
    for (int64_t i = 0; i < V; i++) dot += a[i] * w[i] * o[i];
    real pull = dot * rstd * rstd / (real)V;
#pragma omp simd
    for (int64_t i = 0; i < V; i++) a[i] = rstd * (a[i] * w[i] - o[i] * pull);
}

typedef struct weight_sum {
    const real *a, *o, *rstd;
    int64_t V;
} weight_sum;

static void add_weight(const void *context, int64_t row, int64_t begin, int64_t count, real *restrict sum) {
    const weight_sum *s = context;
    const real *a = s->a + row * s->V + begin, *o = s->o + row * s->V + begin;
    for (int64_t i = 0; i < count; i++) sum[i] += a[i] * o[i] * s->rstd[row];
}

// Three passes; d_o holds a between them, so that the exponentials are computed once.
fwa_status FWA_T(fwa_head_norm_gate_backward_cpu)(fwa_stream *stream, fwa_tensor d_o, fwa_tensor dw, fwa_tensor dg,
                                                  fwa_tensor dy, fwa_tensor o, fwa_tensor rstd, fwa_tensor w,
                                                  fwa_tensor g) {
    (void)stream;
    shape s;
    FWA_TRY(check_arguments(o, w, g, rstd, dy, &s));
    int64_t V = s.V, rows = s.R * s.H;
    FWA_EXPECT_DENSE(d_o, FWA_REAL_DTYPE, 3, s.R, s.H, V);
    FWA_EXPECT_DENSE(dw, FWA_REAL_DTYPE, 1, V);
    bool gated = fwa_tensor_present(g);
    if (gated) FWA_EXPECT(dg, FWA_REAL_DTYPE, 2, s.R, s.H * V);
    real *a = d_o.data;
    const real *in = o.data, *scale = rstd.data;
    weight_sum sum = {a, in, scale, V};
#pragma omp parallel if (fwa_parallel(6 * rows * V))
    {
#pragma omp for
        for (int64_t row = 0; row < rows; row++) {
            int64_t r = row / s.H, at = row % s.H * V;
            const real *d = fwa_row(dy, r) + at;
            if (gated)
                gate_backward(a + row * V, fwa_row(dg, r) + at, d, in + row * V, scale[row], w.data, fwa_row(g, r) + at,
                              V);
            else
                memcpy(a + row * V, d, (size_t)V * sizeof(real));
        }
        fwa_column_sum(dw.data, rows, V, add_weight, &sum);
#pragma omp barrier
#pragma omp for
        for (int64_t row = 0; row < rows; row++) norm_backward(a + row * V, in + row * V, scale[row], w.data, V);
    }
    return FWA_OK;
}
