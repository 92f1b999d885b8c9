// Decoupled AdamW with clipping and the copy that products read, in one pass over memory (equations: ops.h).
#include "kernels/cpu/arguments.h"
#include "kernels/cpu/ops_cpu.h"
#include "kernels/cpu/parallel.h"

typedef struct factors {
    real grad, beta1, beta2, one_minus_beta1, one_minus_beta2;
    real mean, variance; // bias corrections
    real eps, rate, decay;
} factors;

static factors make_factors(const fwa_adamw_options *o, const fwa_adamw_part *part, const fwa_step_state *state) {
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
        .rate = (real)(state->lr * o->lr_scale * part->lr_scale),
        .decay = (real)(o->decay * part->decay),
    };
}

static void update(const fwa_adamw_part *part, const fwa_adamw_options *options, const fwa_step_state *state) {
    const factors f = make_factors(options, part, state);
    const int64_t n = part->count;
    real *weight = part->master, *second = part->copy ? part->copy : part->master, *mean = part->m, *square = part->v;
    const real *gradient = part->grad;
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
}

fwa_status FWA_T(fwa_adamw_cpu)(fwa_stream *stream, fwa_tensor master, fwa_tensor copy, fwa_tensor grad, fwa_tensor m,
                                fwa_tensor v, const fwa_adamw_options *options, const fwa_step_state *state) {
    fwa_adamw_part part;
    (void)stream;
    FWA_TRY(fwa_adamw_part_make(&part, NULL, FWA_REAL_DTYPE, master, copy, grad, m, v));
    if (!state->skip) update(&part, options, state);
    return FWA_OK;
}

fwa_status FWA_T(fwa_adamw_parts_cpu)(fwa_stream *stream, fwa_tensor parts, int64_t elements,
                                      const fwa_adamw_options *options, const fwa_step_state *state) {
    const fwa_adamw_part *part = parts.data;
    (void)stream;
    (void)elements;
    const size_t count = fwa_tensor_bytes(parts) / sizeof *part;
    for (size_t i = 0; i < count && !state->skip; i++) update(&part[i], options, state);
    return FWA_OK;
}
