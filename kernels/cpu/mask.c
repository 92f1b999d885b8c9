// Builds the decay mask of a chunk and takes gradients back through its recursion (mask.h).
#include "kernels/cpu/mask.h"

#include "core/shape.h"
#include "kernels/cpu/lanes.h"

// Columns of I_i: [*begin, *end).
static void window_columns(const fwa_mask *mask, int64_t i, int64_t *begin, int64_t *end) {
    *end = mask->off + i + 1;
    *begin = fwa_max(mask->first[i] - mask->first_row, 0);
}

void FWA_T(fwa_mask_build)(const fwa_mask *mask) {
    const int64_t m = mask->m;
    fwa_zero(mask->M, m);
    mask->h[0] = 1;
    for (int64_t i = 0; i < mask->c; i++) {
        int64_t begin, end;
        window_columns(mask, i, &begin, &end);
        const real gamma = mask->drop[i] ? 0 : mask->gamma[i];
        real *row = mask->M + (i + 1) * m;
        fwa_scaled(row, gamma, row - m, end);
        fwa_zero(row + end, m - end);
        for (int64_t j = begin; j < end; j++) row[j] += mask->w[i];
        mask->h[i + 1] = gamma * mask->h[i];
    }
}

// Adds the gradients that reach M_{i-1} through the residual of step i; returns those of gamma_i.
static real residual_backward(const fwa_mask *mask, const fwa_mask_grads *grads, int64_t i, int64_t live, real *a,
                              real *a_h) {
    real factor, g;
    const real *row = fwa_mask_residual(mask, i, &factor, &g);
    const real *d = grads->residual + i * mask->m;
    real dgamma = mask->decay_first ? fwa_dot(d, row, live) + grads->history[i] * mask->h[i] : 0;
    fwa_axpy(a, factor, d, live);
    *a_h += factor * grads->history[i];
    return dgamma;
}

void FWA_T(fwa_mask_backward)(const fwa_mask *mask, const fwa_mask_grads *grads, real *dw, real *dgamma) {
    const int64_t m = mask->m;
    real *a = grads->leave; // gradient of M_i, then of M_{i-1}
    real a_h = grads->leave_h;
    for (int64_t i = mask->c - 1; i >= 0; i--) {
        int64_t begin, end;
        window_columns(mask, i, &begin, &end);
        if (!mask->before) {
            fwa_axpy(a, 1, grads->read + i * m, end);
            a_h += grads->read_h[i];
        }
        dw[i] = 0;
        for (int64_t j = begin; j < end; j++) dw[i] += a[j];
        dgamma[i] = 0;
        if (mask->drop[i]) {
            fwa_zero(a, m);
            a_h = 0;
            continue;
        }
        dgamma[i] = fwa_dot(a, mask->M + i * m, end) + a_h * mask->h[i];
        fwa_scale(a, mask->gamma[i], end);
        a_h *= mask->gamma[i];
        if (mask->before) {
            fwa_axpy(a, 1, grads->read + i * m, end);
            a_h += grads->read_h[i];
        }
        if (grads->residual) dgamma[i] += residual_backward(mask, grads, i, mask->off + i, a, &a_h);
    }
}
