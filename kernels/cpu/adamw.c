// Decoupled AdamW with clipping and the copy that products read, in one pass over memory (equations: ops.h).
#include "kernels/cpu/arguments.h"
#include "kernels/cpu/ops_cpu.h"
#include "kernels/cpu/parallel.h"

typedef struct factors {
    real grad, beta1, beta2, one_minus_beta1, one_minus_beta2;
    real mean, variance; // bias corrections
    real eps, rate, decay;
} factors;

static factors make_factors(const fwa_adamw_options *o, const fwa_step_state *state) {
    double updates = (double)state->accepted;
    return (factors){
        .grad = (real)state->grad_scale,
        .beta1 = (real)o->beta1,
        .beta2 = (real)o->beta2,
        .one_minus_beta1 = (real)(1 - o->beta1),
        .one_minus_beta2 = (real)(1 - o->beta2),
        .mean = (real)(1 / (1 - pow(o->beta1, updates))),
        .variance = (real)(1 / (1 - pow(o->beta2, updates))),
        .eps = (real)o->eps,
        .rate = (real)(state->lr * o->lr_scale),
        .decay = (real)o->decay,
    };
}

static fwa_status check_dense(fwa_tensor t, const char *name, int64_t count) {
    FWA_CHECK(t.data && t.dtype == FWA_REAL_DTYPE && fwa_tensor_count(t) == count && fwa_tensor_dense(t), FWA_ERROR,
              "%s: got %lld elements of %s%s, expected a dense tensor of %lld of %s", name,
              (long long)fwa_tensor_count(t), fwa_dtype_name(t.dtype), t.data ? "" : ", absent", (long long)count,
              fwa_dtype_name(FWA_REAL_DTYPE));
    return FWA_OK;
}

fwa_status FWA_T(fwa_adamw_cpu)(fwa_stream *stream, fwa_tensor master, fwa_tensor copy, fwa_tensor grad, fwa_tensor m,
                                fwa_tensor v, const fwa_adamw_options *options, const fwa_step_state *state) {
    (void)stream;
    int64_t n = fwa_tensor_count(master);
    FWA_TRY(check_dense(master, "master", n));
    FWA_TRY(check_dense(grad, "grad", n));
    FWA_TRY(check_dense(m, "m", n));
    FWA_TRY(check_dense(v, "v", n));
    bool copied = fwa_tensor_present(copy) && copy.data != master.data;
    if (copied) FWA_TRY(check_dense(copy, "copy", n));
    if (state->skip) return FWA_OK;
    factors f = make_factors(options, state);
    real *weight = master.data, *second = copied ? copy.data : master.data, *mean = m.data, *square = v.data;
    const real *gradient = grad.data;
#pragma omp parallel for simd if (parallel : fwa_parallel(4 * n))
    for (int64_t i = 0; i < n; i++) {
        real g = gradient[i] * f.grad;
        real first_moment = f.beta1 * mean[i] + f.one_minus_beta1 * g;
        real second_moment = f.beta2 * square[i] + f.one_minus_beta2 * (g * g);
        real step = first_moment * f.mean / (sqrt(second_moment * f.variance) + f.eps) + f.decay * weight[i];
        real updated = weight[i] - f.rate * step;
        mean[i] = first_moment;
        square[i] = second_moment;
        weight[i] = updated;
        second[i] = updated;
    }
    return FWA_OK;
}
