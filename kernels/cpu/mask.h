// The decay mask of one chunk: with which weight the pair of column j stands in the state after step i.
//
//   M_i[j] = gamma_i M_{i-1}[j] + w_i [j in I_i]      M_{-1} = 0
//   h_i    = gamma_i h_{i-1}                          h_{-1} = 1: what is left of the state before the chunk
//
// This is the mask (D.1) as a recursion (docs/math/README.md §3). Products of decays replace e^{u_i - u_s}: nothing is
// exponentiated, every factor is at most 1, and gamma = 0 or a run of clamped steps underflows to 0. A dropped state
// sets M_{i-1} and h_{i-1} to 0. Row i has off + i + 1 live columns.
#ifndef FWA_KERNELS_CPU_MASK_H
#define FWA_KERNELS_CPU_MASK_H

#include "kernels/cpu/core.h"

typedef struct fwa_mask {
    int64_t c, m, off; // steps, columns, columns before the chunk's own
    int64_t first_row; // row of column 0
    const int64_t *first;
    const uint8_t *drop;
    const real *w, *gamma;
    bool before, decay_first;
    real *M; // [c+1,m]: row i is M_{i-1}
    real *h; // [c+1]: element i is h_{i-1}
} fwa_mask;

// Gradients of what the chunk took from the mask.
typedef struct fwa_mask_grads {
    const real *read, *read_h;      // [c,m], [c]: of fwa_mask_read
    const real *residual, *history; // [c,m], [c]: of fwa_mask_residual; NULL where unused
    real *leave;                    // [m]: of M_{c-1}; destroyed
    real leave_h;                   // of h_{c-1}
} fwa_mask_grads;

void FWA_T(fwa_mask_build)(const fwa_mask *mask);
void FWA_T(fwa_mask_backward)(const fwa_mask *mask, const fwa_mask_grads *grads, real *dw, real *dgamma);

// Weights with which o_i reads pairs (row, NULL: none) and the state before the chunk (*h).
static inline const real *fwa_mask_read(const fwa_mask *mask, int64_t i, real *h) {
    int64_t row = mask->before ? i : i + 1;
    bool none = mask->before && mask->drop[i];
    *h = none ? 0 : mask->h[row];
    return none ? NULL : mask->M + row * mask->m;
}

// Weights with which the residual of step i sees earlier pairs (row times *factor) and the state before the chunk (*g).
static inline const real *fwa_mask_residual(const fwa_mask *mask, int64_t i, real *factor, real *g) {
    *factor = mask->drop[i] ? 0 : mask->decay_first ? mask->gamma[i] : 1;
    *g = *factor * mask->h[i];
    return mask->M + i * mask->m;
}

#endif
