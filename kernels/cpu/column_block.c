// Steps of one block of the column core, one row of V columns after another (column_chunk.h). With z_s and D the
// weights of the block's own writes and of the state before the block, both as they stand before step i:
//
//   r_i = v_i - D o (S^T x_i) - sum_{s<i} G_is z_s
//   D, z_s: times gamma_i      z_i = w_i o r_i
//   o_i = D o (S^T q_i) + sum_{s<=i} P_is z_s      before_write: ahead of the step, s < i
//
// The backward pass takes the gradients a_s of z_s and a_state of D back through the same steps, D summed over k.
// Cost: forward 3 c^2 V, backward about 7 c^2 V operations.
#include "kernels/cpu/column_chunk.h"

#include "kernels/cpu/lanes.h"

#define BLOCK FWA_COLUMN_BLOCK

typedef struct block_work {
    real *z;   // forward [BLOCK,V]; backward [BLOCK,BLOCK,V]: row i is z_s before step i
    real *D;   // forward [V]; backward [BLOCK,V]
    real *row; // [V]
    size_t bytes;
} block_work;

static block_work plan_work(int64_t V, fwa_bump bump, bool backward) {
    block_work work = {0};
    work.z = FWA_TAKE(&bump, real, (backward ? BLOCK * BLOCK : BLOCK) * V);
    work.D = FWA_TAKE(&bump, real, (backward ? BLOCK : 1) * V);
    work.row = FWA_TAKE(&bump, real, V);
    work.bytes = bump.used;
    return work;
}

size_t FWA_T(fwa_column_block_scratch)(int64_t V, bool backward) {
    fwa_bump none = {0};
    return plan_work(V, none, backward).bytes;
}

// o_i = D o (S^T q_i) + sum_{s<live} P_is z_s
static void read_row(const fwa_column_block *block, int64_t i, int64_t live, const block_work *work, real *o) {
    const int64_t V = block->V;
    fwa_multiplied(o + i * V, work->D, block->read + i * V, V);
    for (int64_t s = 0; s < live; s++) fwa_axpy(o + i * V, block->P[i * block->ld + s], work->z + s * V, V);
}

void FWA_T(fwa_column_block_forward)(const fwa_column_block *block, real *r, real *o, fwa_bump scratch) {
    const int64_t V = block->V;
    const block_work work = plan_work(V, scratch, false);
    fwa_fill(work.D, 1, V);
    for (int64_t i = 0; i < block->c; i++) {
        const real *gamma = block->gamma + i * V;
        real *ri = r + i * V;
        if (block->drop[i]) {
            fwa_zero(work.D, V);
            fwa_zero(work.z, i * V);
        }
        if (block->before) read_row(block, i, i, &work, o);
        if (block->delta) {
            fwa_multiplied(work.row, work.D, block->seen + i * V, V);
            fwa_axpy(ri, -1, work.row, V);
            for (int64_t s = 0; s < i; s++) fwa_axpy(ri, -block->G[i * block->ld + s], work.z + s * V, V);
        }
        fwa_multiply(work.D, gamma, V);
        for (int64_t s = 0; s < i; s++) fwa_multiply(work.z + s * V, gamma, V);
        fwa_multiplied(work.z + i * V, block->w + i * V, ri, V);
        if (!block->before) read_row(block, i, i + 1, &work, o);
    }
}

// Every z_s and D as they stand before every step.
static void replay(const fwa_column_block *block, const real *r, const block_work *work) {
    const int64_t V = block->V, row = BLOCK * V;
    fwa_fill(work->D, 1, V);
    for (int64_t i = 0; i < block->c; i++) {
        real *z = work->z + i * row, *D = work->D + i * V;
        if (block->drop[i]) {
            fwa_zero(D, V);
            fwa_zero(z, i * V);
            continue;
        }
        if (i == 0) continue;
        const real *gamma = block->gamma + (i - 1) * V;
        fwa_multiplied(D, gamma, D - V, V);
        for (int64_t s = 0; s < i - 1; s++) fwa_multiplied(z + s * V, gamma, z - row + s * V, V);
        fwa_multiplied(z + (i - 1) * V, block->w + (i - 1) * V, r + (i - 1) * V, V);
    }
}

// What o_i read: gradients of z_s, s < live, and of D.
static void read_row_backward(const fwa_column_block *block, const fwa_column_block_grads *grads, int64_t i,
                              int64_t live) {
    const int64_t V = block->V;
    const real *d_o = grads->d_o + i * V;
    for (int64_t s = 0; s < live; s++) fwa_axpy(grads->a + s * V, block->P[i * block->ld + s], d_o, V);
    fwa_multiply_add(grads->a_state, block->read + i * V, d_o, V);
}

// M_is, s <= i: what stands of write s where o_i reads, times d_o_i.
static void read_products(const fwa_column_block *block, const fwa_column_block_grads *grads, int64_t i, const real *r,
                          const block_work *work) {
    const int64_t V = block->V;
    const real *z = work->z + i * BLOCK * V, *d_o = grads->d_o + i * V;
    real *M = grads->M + i * block->ld;
    M[i] = 0;
    if (!block->before) {
        fwa_multiplied(work->row, block->w + i * V, r + i * V, V);
        M[i] = fwa_dot(work->row, d_o, V);
        fwa_multiplied(work->row, block->gamma + i * V, d_o, V);
        d_o = work->row;
    }
    for (int64_t s = 0; s < i; s++) M[s] = fwa_dot(z + s * V, d_o, V);
}

// The residual of step i: gradients of z_s and D, and N_is.
static void residual_backward(const fwa_column_block *block, const fwa_column_block_grads *grads, int64_t i,
                              const block_work *work) {
    const int64_t V = block->V;
    const real *z = work->z + i * BLOCK * V, *dr = grads->dr + i * V;
    for (int64_t s = 0; s < i; s++) {
        grads->N[i * block->ld + s] = fwa_dot(z + s * V, dr, V);
        fwa_axpy(grads->a + s * V, -block->G[i * block->ld + s], dr, V);
    }
    grads->N[i * block->ld + i] = 0;
    fwa_multiplied(work->row, block->seen + i * V, dr, V);
    fwa_axpy(grads->a_state, -1, work->row, V);
}

void FWA_T(fwa_column_block_backward)(const fwa_column_block *block, const real *r, const fwa_column_block_grads *grads,
                                      fwa_bump scratch) {
    const int64_t V = block->V;
    const block_work work = plan_work(V, scratch, true);
    replay(block, r, &work);
    for (int64_t i = block->c - 1; i >= 0; i--) {
        const real *gamma = block->gamma + i * V, *z = work.z + i * BLOCK * V;
        real *a = grads->a, *dgamma = grads->dgamma + i * V;
        if (!block->before) read_row_backward(block, grads, i, i + 1);
        fwa_multiplied(grads->dw + i * V, a + i * V, r + i * V, V);
        fwa_multiplied(grads->dr + i * V, a + i * V, block->w + i * V, V);
        fwa_multiplied(dgamma, work.D + i * V, grads->a_state, V);
        for (int64_t s = 0; s < i; s++) {
            fwa_multiply_add(dgamma, z + s * V, a + s * V, V);
            fwa_multiply(a + s * V, gamma, V);
        }
        fwa_multiply(grads->a_state, gamma, V);
        if (block->before) read_row_backward(block, grads, i, i);
        read_products(block, grads, i, r, &work);
        if (block->delta) residual_backward(block, grads, i, &work);
        if (block->drop[i]) {
            fwa_zero(a, i * V);
            fwa_zero(grads->a_state, V);
        }
    }
}
