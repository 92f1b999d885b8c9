// Forward and reverse sweep over the steps of a block of the window core (window_block.h).
#include "kernels/cpu/window_block.h"

#include "kernels/cpu/lanes.h"

// Step k: its window is the rows [begin, end), its own row is end - 1 and d_{k-1} lives on the rows before that.
typedef struct block_step {
    int64_t begin, end, live;
    bool drop;
    real gamma, g; // as they act: 0 where the state is dropped
    real *before, *after, *r;
} block_step;

static block_step get_step(const fwa_window_block *block, int64_t k) {
    const int64_t size = block->rows * block->V;
    const bool drop = block->drop[k];
    return (block_step){
        .begin = block->first[k] - block->first_row,
        .end = block->own + k + 1,
        .live = block->own + k,
        .drop = drop,
        .gamma = drop ? 0 : block->gamma[k],
        .g = drop ? 0 : block->g[k],
        .before = block->d + k * size,
        .after = block->d + (k + 1) * size,
        .r = block->r + k * size,
    };
}

// Residuals of the window at the state before the step.
static void residuals(const fwa_window_block *block, const block_step *step) {
    const int64_t V = block->V;
    for (int64_t j = step->begin; j < step->end; j++) {
        real *r = step->r + j * V;
        fwa_copy(r, block->v + j * V, V);
        if (step->drop) continue;
        fwa_axpy(r, -step->g, block->base + j * V, V);
        for (int64_t l = 0; l < step->live; l++) fwa_axpy(r, -block->G[j * block->ld + l], step->before + l * V, V);
    }
}

static void write_step(const fwa_window_block *block, int64_t k, const block_step *step) {
    const int64_t V = block->V;
    fwa_scaled(step->after, step->gamma, step->before, step->live * V);
    fwa_zero(step->after + step->live * V, V);
    for (int64_t j = step->begin; j < step->end; j++) fwa_axpy(step->after + j * V, block->w[k], step->r + j * V, V);
    block->g[k + 1] = step->gamma * block->g[k];
}

// o = g S^T q_k + sum_l (q_k . x_l) d_l over `live` rows
static void read_step(const fwa_window_block *block, int64_t k, real g, const real *d, int64_t live, real *o) {
    const int64_t V = block->V;
    fwa_scaled(o, g, block->read + k * V, V);
    for (int64_t l = 0; l < live; l++) fwa_axpy(o, block->P[k * block->ld + l], d + l * V, V);
}

void FWA_T(fwa_window_block_forward)(const fwa_window_block *block, real *o) {
    block->g[0] = 1;
    fwa_zero(block->d, block->own * block->V);
    for (int64_t k = 0; k < block->c; k++) {
        const block_step step = get_step(block, k);
        residuals(block, &step);
        write_step(block, k, &step);
        if (!o) continue;
        if (block->before)
            read_step(block, k, step.g, step.before, step.drop ? 0 : step.live, o + k * block->V);
        else
            read_step(block, k, block->g[k + 1], step.after, step.end, o + k * block->V);
    }
}

static void read_backward(const fwa_window_block *block, fwa_window_block_grads *grads, int64_t k, real g,
                          const real *d, int64_t live) {
    const int64_t V = block->V;
    const real *d_o = grads->d_o + k * V;
    for (int64_t l = 0; l < live; l++) {
        grads->dP[k * block->ld + l] += fwa_dot(d_o, d + l * V, V);
        fwa_axpy(grads->dd + l * V, block->P[k * block->ld + l], d_o, V);
    }
    fwa_scaled(grads->dread + k * V, g, d_o, V);
    grads->dg += fwa_dot(d_o, block->read + k * V, V);
}

// From the gradients of d_k and g_k: those of w_k, gamma_k, r_k, and the decay's share of d_{k-1}, g_{k-1}.
static void write_backward(const fwa_window_block *block, fwa_window_block_grads *grads, int64_t k,
                           const block_step *step) {
    const int64_t V = block->V;
    grads->dw[k] = grads->dgamma[k] = 0;
    for (int64_t j = step->begin; j < step->end; j++) {
        grads->dw[k] += fwa_dot(grads->dd + j * V, step->r + j * V, V);
        fwa_scaled(grads->dr + j * V, block->w[k], grads->dd + j * V, V);
    }
    if (!step->drop) grads->dgamma[k] = fwa_dot(grads->dd, step->before, step->live * V) + grads->dg * step->g;
    fwa_scale(grads->dd, step->gamma, step->live * V);
    grads->dg *= step->gamma;
}

static void residuals_backward(const fwa_window_block *block, fwa_window_block_grads *grads, const block_step *step) {
    const int64_t V = block->V, ld = block->ld;
    for (int64_t j = step->begin; j < step->end; j++) {
        const real *dr = grads->dr + j * V;
        fwa_axpy(grads->dv + j * V, 1, dr, V);
        if (step->drop) continue;
        fwa_axpy(grads->dbase + j * V, -step->g, dr, V);
        grads->dg -= fwa_dot(dr, block->base + j * V, V);
        for (int64_t l = 0; l < step->live; l++) {
            grads->dG[j * ld + l] -= fwa_dot(dr, step->before + l * V, V);
            fwa_axpy(grads->dd + l * V, -block->G[j * ld + l], dr, V);
        }
    }
}

void FWA_T(fwa_window_block_backward)(const fwa_window_block *block, fwa_window_block_grads *grads) {
    fwa_zero(grads->dbase, block->rows * block->V);
    for (int64_t k = block->c - 1; k >= 0; k--) {
        const block_step step = get_step(block, k);
        if (!block->before) read_backward(block, grads, k, block->g[k + 1], step.after, step.end);
        write_backward(block, grads, k, &step);
        residuals_backward(block, grads, &step);
        if (!block->before) continue;
        if (step.drop)
            fwa_zero(grads->dread + k * block->V, block->V);
        else
            read_backward(block, grads, k, step.g, step.before, step.live);
    }
}
