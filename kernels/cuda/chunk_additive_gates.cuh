// Gradients of the gates of a chunk in the backward passes of the additive core (chunk_additive_backward.cu,
// _shared.cu): what the mask leaves for them, and what becomes of it.
#ifndef FWA_KERNELS_CUDA_CHUNK_ADDITIVE_GATES_CUH
#define FWA_KERNELS_CUDA_CHUNK_ADDITIVE_GATES_CUH

#include "kernels/cuda/chunk_additive.cuh"
#include "kernels/cuda/chunk_rows.cuh"

namespace fwa {

// Gates of a tile [64]; pairs: where halo > 0.
struct gate_rows {
    const float *u, *w, *pairs;
};

// Parts of sums over rows and columns.
struct part_sums {
    float row[2][64], history[2][64], leave[2][64], column[4][64], state[8];
};

// What becomes of gradients of energies; room for them.
struct key_pulls {
    float energy[64], pull[64];
};

// Weights M_is of the thread's entries of a block of 16 columns from s on (mask_block in chunk.cuh). both: of P o D.
// Adds its sums over the block: of a row weighted, of a column what a gradient of the pairs' weights is made of. `band`
// takes that of a window (chunk.cuh). below: the block ends before it.
template <int W, bool below>
__device__ inline void weigh_block(const tile_mask<W> &mask, const mask_rows &rows, int s, const float (&both)[8],
                                   float (&weight)[8], float (&row)[2], float (&column)[4], float *band) {
    if constexpr (below) {
        const mask_columns columns(mask, rows, s);
#pragma unroll
        for (int c = 0; c < 4; c++) {
            const float w = columns.w[c] * columns.decay[c];
            float sum = 0.0f;
#pragma unroll
            for (int high = 0; high < 2; high++) {
                const int n = c / 2 * 4 + high * 2 + c % 2;
                weight[n] = rows.decay[high] * w;
                row[high] += weight[n] * both[n];
                sum += rows.decay[high] * both[n];
            }
            column[c] += columns.decay[c] * sum;
        }
    } else {
        if constexpr (W > 1) mask_block(weight, mask, rows, s);
#pragma unroll
        for (int c = 0; c < 4; c++) {
            const int at = s + c / 2 * 8 + c % 2;
            const float u_s = mask.u[W > 1 ? min(at + mask.halo, 63) : at], w_s = W > 1 ? 0.0f : mask.w[at];
#pragma unroll
            for (int high = 0; high < 2; high++) {
                const int n = c / 2 * 4 + high * 2 + c % 2, d = rows.i + high * 8 - at;
                const float decay = d >= (W > 1 ? mask.halo : 0) ? power2(rows.u[high] - u_s) : 0.0f;
                if constexpr (W == 1) weight[n] = w_s * decay;
                column[c] += decay * both[n];
                row[high] += weight[n] * both[n];
            }
            if constexpr (W > 1) {
                const int d = rows.i - at;
                const float of_step = d >= 0 ? both[c / 2 * 4 + c % 2] : both[c / 2 * 4 + 2 + c % 2];
                if (d >= -8 && d < 8 && (W == 8 || (d & 7) < mask.halo)) band[at * 8 + rows.i % 8] = of_step;
            }
        }
    }
}

// Of a chunk without a window, by one warp: lane l has rows 2 l and 2 l + 1. With G = P o D, L = X . Z:
//   dw_s  = sum_{i >= s} e^{u_i - u_s} G_is + e^{u_C - u_s} L_s
//   dlg_t = sum_{i >= t > s} M_is G_is + sum_{i >= t} h_i Q_i . Y_i + sum_{s < t} M_Cs L_s + h_C <S, dS'>
// Pairs with i, s >= t are in sums of rows and of columns, and cancel.
__device__ inline gate_pair plain_gate_grads(const gate_rows &m, const part_sums &parts, int lane) {
    float behind[2], before[2], state = 0.0f;
    gate_pair to;
    for (int i = 0; i < 8; i++) state += parts.state[i];
#pragma unroll
    for (int e = 0; e < 2; e++) {
        const int r = lane * 2 + e;
        const float column = (parts.column[0][r] + parts.column[1][r]) + (parts.column[2][r] + parts.column[3][r]);
        const float leave = (parts.leave[0][r] + parts.leave[1][r]) * power2(m.u[63] - m.u[r]);
        to.dw[e] = column + leave;
        before[e] = m.w[r] * leave;
        behind[e] = parts.row[0][r] + parts.row[1][r] - m.w[r] * column +
                    power2(m.u[r]) * (parts.history[0][r] + parts.history[1][r]);
    }
    const float all_before = warp_prefix_sum(before[0] + before[1], lane) - before[0] - before[1];
    const float all_behind = warp_suffix_sum(behind[0] + behind[1], lane);
    const float through = power2(m.u[63]) * state;
    to.dlg[0] = all_behind + all_before + through;
    to.dlg[1] = all_behind - behind[0] + all_before + before[0] + through;
    return to;
}

// The same with a window. R_s(t), the gradient of what step t writes of pair s, for t = s .. s + halo:
//   R_s(t) = sum_{i >= t} e^{u_i - u_t} G_is + e^{u_C - u_t} L_s      dw_t = sum_{s in I_t} R_s(t)
//   dlg_t = sum_{i >= t} (sum_s M_is G_is + h_i Q_i . Y_i - w_i dw_i) + sum_s M_Cs L_s + h_C <S, dS'>
// reach: scratch [W,64].
template <int W>
__device__ inline gate_pair window_gate_grads(const gate_rows &m, const tile_mask<W> &mask, const part_sums &parts,
                                              const float *band, float (*reach)[64], int lane) {
    constexpr int halo = mask.halo;
    float behind[2], leaving = 0.0f, state = 0.0f;
    gate_pair to;
    for (int i = 0; i < 8; i++) state += parts.state[i];
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int s = lane + half * 32;
        const float L = parts.leave[0][s] + parts.leave[1][s];
        float close[halo], R = L;
#pragma unroll
        for (int d = 0; d < halo; d++) close[d] = s + d < 64 ? band[s * 8 + (s + d) % 8] : 0.0f;
        leaving += mask.at(63, s, m.u[63]) * L;
#pragma unroll
        for (int d = halo; d >= 0; d--) {
            const int t = s + d;
            if (t > 63) continue;
            if (d == halo)
                R = (parts.column[0][s] + parts.column[1][s]) + (parts.column[2][s] + parts.column[3][s]) +
                    power2(m.u[63] - m.u[t]) * L;
            else
                R = close[min(d, halo - 1)] + (t < 63 ? power2(m.u[t + 1] - m.u[t]) : 1.0f) * R;
            reach[d][s] = R;
        }
    }
    __syncwarp();
#pragma unroll
    for (int e = 0; e < 2; e++) {
        const int t = lane * 2 + e;
        to.dw[e] = behind[e] = 0.0f;
        if (t < halo) continue;
        for (int d = 0; d <= halo; d++)
            if (m.pairs[t] > static_cast<float>(d)) to.dw[e] += reach[d][t - d];
        behind[e] = parts.row[0][t] + parts.row[1][t] - m.w[t] * to.dw[e] +
                    power2(m.u[t]) * (parts.history[0][t] + parts.history[1][t]);
    }
    const float all_behind = warp_suffix_sum(behind[0] + behind[1], lane);
    const float through = warp_sum(leaving) + power2(m.u[63]) * state;
    to.dlg[0] = all_behind + through;
    to.dlg[1] = all_behind - behind[0] + through;
    return to;
}

// pull_s = 2 sum over the chunk's steps t with s in I_t of dE_t / B_t: what x_s adds to its gradient.
__device__ inline void pulls(const float *pairs, key_pulls &to, int s, int halo) {
    float sum = to.energy[s];
    for (int d = 1; d <= halo && s + d < 64; d++)
        if (pairs[s + d] > static_cast<float>(d)) sum += to.energy[s + d];
    to.pull[s] = 2.0f * sum;
}

} // namespace fwa
#endif
