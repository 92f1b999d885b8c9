// From a projection to the features of a mixing rule: y = phi(norm(silu(conv(x)))), the norm over each head (ops.h).
//
// Forward and backward first put the convolution u into the output (y, dx) and work there in place, so no scratch
// memory is needed. Backward, with s = silu(u), n = s rstd, e = dy phi'(n):
//   ds = rstd (e - n c), c = mean(e n) for rms, sum(e n) for l2, 0 without norm;  du = ds silu'(u);  then conv.c.
#include <string.h>

#include "kernels/cpu/arguments.h"
#include "kernels/cpu/conv.h"
#include "kernels/cpu/ops_cpu.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/vexp.h"

#define ROWS   64 // steps that one thread takes at a time
#define EPS_L2 1e-12

static inline real phi_value(fwa_phi phi, real n) {
    switch (phi) {
    case FWA_PHI_ELU1:
        return n > 0 ? n + 1 : fwa_exp(n);
    case FWA_PHI_RELU:
        return n > 0 ? n : 0;
    case FWA_PHI_SILU:
        return n * fwa_sigmoid(n);
    default:
        return n;
    }
}

static inline real phi_slope(fwa_phi phi, real n) {
    switch (phi) {
    case FWA_PHI_ELU1:
        return n > 0 ? 1 : fwa_exp(n);
    case FWA_PHI_RELU:
        return n > 0 ? 1 : 0;
    case FWA_PHI_SILU:
        return fwa_silu_slope(n, fwa_sigmoid(n));
    default:
        return 1;
    }
}

static inline void map_row(real *y, int64_t n, fwa_phi phi) {
#pragma omp simd
    for (int64_t i = 0; i < n; i++) y[i] = phi_value(phi, y[i]);
}

// phi in place, one loop for each map.
static void apply_phi(real *y, int64_t n, fwa_phi phi) {
    switch (phi) {
    case FWA_PHI_ELU1:
        map_row(y, n, FWA_PHI_ELU1);
        break;
    case FWA_PHI_RELU:
        map_row(y, n, FWA_PHI_RELU);
        break;
    case FWA_PHI_SILU:
        map_row(y, n, FWA_PHI_SILU);
        break;
    default:
        break;
    }
}

// Norm of one head in place; returns rstd.
static real normalize(real *y, int64_t K, const fwa_feature_options *options) {
    real sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < K; i++) sum += y[i] * y[i];
    bool rms = options->norm == FWA_NORM_RMS;
    real scale = 1 / sqrt(rms ? sum / (real)K + (real)options->eps : sum + (real)EPS_L2);
#pragma omp simd
    for (int64_t i = 0; i < K; i++) y[i] *= scale;
    return scale;
}

// u -> y for the H heads of one step.
static void forward_step(real *y, real *rstd, int64_t H, int64_t K, const fwa_feature_options *options) {
    if (options->silu) apply_phi(y, H * K, FWA_PHI_SILU);
    if (options->norm != FWA_NORM_NONE)
        for (int64_t h = 0; h < H; h++) rstd[h] = normalize(y + h * K, K, options);
    apply_phi(y, H * K, options->phi);
}

// u -> du for one head. Inlined once for each silu and phi.
static inline void backward_head(real *u, const real *dy, real rstd, int64_t K, fwa_norm norm, bool silu, fwa_phi phi) {
    real pull = 0;
    if (norm != FWA_NORM_NONE) {
#pragma omp simd reduction(+ : pull)
        for (int64_t i = 0; i < K; i++) {
            real n = (silu ? u[i] * fwa_sigmoid(u[i]) : u[i]) * rstd;
            pull += dy[i] * phi_slope(phi, n) * n;
        }
        if (norm == FWA_NORM_RMS) pull /= (real)K;
    }
#pragma omp simd
    for (int64_t i = 0; i < K; i++) {
        real sigmoid = silu ? fwa_sigmoid(u[i]) : 1;
        real n = u[i] * sigmoid * rstd;
        real ds = rstd * (dy[i] * phi_slope(phi, n) - n * pull);
        u[i] = silu ? ds * fwa_silu_slope(u[i], sigmoid) : ds;
    }
}

static inline void backward_phi(real *u, const real *dy, real rstd, int64_t K, fwa_norm norm, bool silu, fwa_phi phi) {
    switch (phi) {
    case FWA_PHI_ELU1:
        backward_head(u, dy, rstd, K, norm, silu, FWA_PHI_ELU1);
        break;
    case FWA_PHI_RELU:
        backward_head(u, dy, rstd, K, norm, silu, FWA_PHI_RELU);
        break;
    case FWA_PHI_SILU:
        backward_head(u, dy, rstd, K, norm, silu, FWA_PHI_SILU);
        break;
    default:
        backward_head(u, dy, rstd, K, norm, silu, FWA_PHI_IDENTITY);
        break;
    }
}

// u -> du for the H heads of one step.
static void backward_step(real *u, const real *dy, const real *rstd, int64_t H, int64_t K,
                          const fwa_feature_options *options) {
    for (int64_t h = 0; h < H; h++) {
        real scale = options->norm == FWA_NORM_NONE ? 1 : rstd[h];
        if (options->silu)
            backward_phi(u + h * K, dy + h * K, scale, K, options->norm, true, options->phi);
        else
            backward_phi(u + h * K, dy + h * K, scale, K, options->norm, false, options->phi);
    }
}

// u of steps [begin, end) of sequence b into `out`.
static void pre_activation(const fwa_conv *conv, int64_t b, int64_t begin, int64_t end, fwa_tensor out) {
    if (conv->W > 0) {
        FWA_T(fwa_conv_forward)(conv, b, begin, end, out);
        return;
    }
    for (int64_t t = begin; t < end; t++)
        memcpy(fwa_row_at(out, b, t), fwa_row_at(conv->x, b, t), (size_t)conv->P * sizeof(real));
}

static fwa_status check_halo(fwa_tensor halo, const fwa_conv *conv) {
    if (!fwa_tensor_present(halo)) return FWA_OK;
    return fwa_tensor_expect(halo, "halo", FWA_REAL_DTYPE, 3, conv->B, fwa_max(conv->W - 1, 0), conv->P);
}

static fwa_status check_arguments(fwa_tensor y, fwa_tensor rstd, fwa_tensor x, fwa_tensor w, fwa_tensor halo,
                                  fwa_tensor reset, const fwa_feature_options *options, fwa_conv *conv) {
    FWA_EXPECT_DIMS(y, 4);
    int64_t B = y.shape[0], T = y.shape[1], H = y.shape[2], K = y.shape[3], W = options->width;
    *conv = (fwa_conv){.B = B, .T = T, .P = H * K, .W = W, .x = x, .w = w, .halo = halo, .reset = reset};
    FWA_CHECK(W >= 0 && W <= FWA_CONV_WIDTH_MAX, FWA_UNSUPPORTED, "width: got %lld, expected 0 to %d", (long long)W,
              FWA_CONV_WIDTH_MAX);
    FWA_EXPECT_DENSE(y, FWA_REAL_DTYPE, 4, B, T, H, K);
    FWA_EXPECT(x, FWA_REAL_DTYPE, 3, B, T, H * K);
    if (options->norm != FWA_NORM_NONE) FWA_EXPECT_DENSE(rstd, FWA_REAL_DTYPE, 3, B, T, H);
    if (W > 0) FWA_EXPECT_DENSE(w, FWA_REAL_DTYPE, 2, H * K, W);
    FWA_TRY(check_halo(halo, conv));
    if (fwa_tensor_present(reset)) FWA_EXPECT_DENSE(reset, FWA_U8, 2, B, T);
    return FWA_OK;
}

fwa_status FWA_T(fwa_features_forward_cpu)(fwa_stream *stream, fwa_tensor y, fwa_tensor rstd, fwa_tensor x,
                                           fwa_tensor w, fwa_tensor halo, fwa_tensor reset,
                                           const fwa_feature_options *options) {
    (void)stream;
    fwa_conv conv;
    FWA_TRY(check_arguments(y, rstd, x, w, halo, reset, options, &conv));
    int64_t H = y.shape[2], K = y.shape[3], T = conv.T, blocks = fwa_ceil_div(T, ROWS);
    real *scales = rstd.data;
#pragma omp parallel for if (fwa_parallel(6 * conv.B * T * conv.P))
    for (int64_t block = 0; block < conv.B * blocks; block++) {
        int64_t b = block / blocks, begin = block % blocks * ROWS, end = fwa_min(T, begin + ROWS);
        pre_activation(&conv, b, begin, end, y);
        for (int64_t t = begin; t < end; t++)
            forward_step(fwa_row_at(y, b, t), scales ? scales + (b * T + t) * H : NULL, H, K, options);
    }
    return FWA_OK;
}

fwa_status FWA_T(fwa_features_backward_cpu)(fwa_stream *stream, fwa_tensor dx, fwa_tensor dw, fwa_tensor dhalo,
                                            fwa_tensor dy, fwa_tensor rstd, fwa_tensor x, fwa_tensor w, fwa_tensor halo,
                                            fwa_tensor reset, const fwa_feature_options *options) {
    (void)stream;
    fwa_conv conv;
    FWA_TRY(check_arguments(dy, rstd, x, w, halo, reset, options, &conv));
    FWA_TRY(check_halo(dhalo, &conv));
    int64_t H = dy.shape[2], K = dy.shape[3], T = conv.T, blocks = fwa_ceil_div(T, ROWS);
    FWA_EXPECT(dx, FWA_REAL_DTYPE, 3, conv.B, T, conv.P);
    if (conv.W > 0) FWA_EXPECT_DENSE(dw, FWA_REAL_DTYPE, 2, conv.P, conv.W);
    const real *scales = rstd.data;
#pragma omp parallel if (fwa_parallel(12 * conv.B * T * conv.P))
    {
#pragma omp for
        for (int64_t block = 0; block < conv.B * blocks; block++) {
            int64_t b = block / blocks, begin = block % blocks * ROWS, end = fwa_min(T, begin + ROWS);
            pre_activation(&conv, b, begin, end, dx);
            for (int64_t t = begin; t < end; t++)
                backward_step(fwa_row_at(dx, b, t), fwa_row_at(dy, b, t), scales ? scales + (b * T + t) * H : NULL, H,
                              K, options);
        }
        int64_t first, last;
        fwa_own_columns(conv.P, &first, &last);
        if (conv.W > 0) FWA_T(fwa_conv_backward)(&conv, first, last, dx, dw, dhalo);
    }
    return FWA_OK;
}
