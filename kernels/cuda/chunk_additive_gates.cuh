// Gradients of the gates of a chunk in the backward passes of the additive core (chunk_additive_backward.cu,
// _shared.cu): what the mask leaves for them, and what becomes of it.
#ifndef FWA_KERNELS_CUDA_CHUNK_ADDITIVE_GATES_CUH
#define FWA_KERNELS_CUDA_CHUNK_ADDITIVE_GATES_CUH

#include "kernels/cuda/chunk_additive.cuh"
#include "kernels/cuda/chunk_rows.cuh"

namespace fwa {

// Gates of a tile [64], and the diagonal of P o D without a window; pairs: where halo > 0.
struct gate_rows {
    const float *u, *w, *diagonal, *pairs;
};

// Parts of sums over rows and columns.
struct part_sums {
    float row[2][64], history[2][64], leave[2][64], column[4][64], state[8];
    float reach[halo_most + 1][64], energy[64], pull[64];
};

// Weights M_is of the thread's entries of a block of 16 columns: rows i0 and i0 + 8, columns s0, s0 + 1, s0 + 8, s0
// + 9. both: of P o D. Adds its sums over the block: of a row weighted, without the diagonal where there is no window,
// of a column what a gradient of the pairs' weights is made of. `apart` takes the diagonal [64], or the band [64,3] of
// a window. below: the block ends before any of these.
template <bool window, bool below>
__device__ inline void weigh_block(const tile_mask<window> &mask, int i0, int s0, const float (&both)[8],
                                   float (&weight)[8], float (&row)[2], float (&column)[4], float *apart) {
    const float u_i[2] = {mask.u[i0], mask.u[i0 + 8]};
    float diagonal[2];
#pragma unroll
    for (int c = 0; c < 4; c++) {
        const int s = s0 + c / 2 * 8 + c % 2, from = !window ? s : below ? s + mask.halo : min(s + mask.halo, 63);
        const float u_s = mask.u[from], w_s = window ? mask.far[s] : mask.w[s];
#pragma unroll
        for (int high = 0; high < 2; high++) {
            const int n = c / 2 * 4 + high * 2 + c % 2, d = i0 + high * 8 - s;
            const float decay = below || d >= (window ? mask.halo : 0) ? power2(u_i[high] - u_s) : 0.0f;
            float part = decay * both[n];
            weight[n] = w_s * decay;
            if constexpr (!below && !window) {
                if (d == 0) diagonal[high] = both[n], part = 0.0f;
            }
            row[high] += w_s * part;
            column[c] += part;
            if constexpr (!below && window) {
                if (d < 0 || d >= mask.halo) continue;
                apart[s * halo_most + d] = both[n];
                weight[n] = mask.at(i0 + high * 8, s, u_i[high]);
                row[high] += weight[n] * both[n];
            }
        }
    }
    if constexpr (!below && !window) {
        if (s0 % 8 / 2 == i0 % 8 / 2) apart[i0] = diagonal[0], apart[i0 + 8] = diagonal[1];
    }
}

// Of a chunk without a window, by one warp: lane l has rows 2 l and 2 l + 1. With G = P o D, L = X . Z:
//   dw_s  = sum_{i >= s} e^{u_i - u_s} G_is + e^{u_C - u_s} L_s
//   dlg_t = sum_{i >= t > s} M_is G_is + sum_{i >= t} h_i Q_i . Y_i + sum_{s < t} M_Cs L_s + h_C <S, dS'>
__device__ inline gate_pair plain_gate_grads(const gate_rows &m, const part_sums &parts, int lane) {
    float behind[2], before[2], state = 0.0f;
    gate_pair to;
    for (int i = 0; i < 8; i++) state += parts.state[i];
#pragma unroll
    for (int e = 0; e < 2; e++) {
        const int r = lane * 2 + e;
        const float column = (parts.column[0][r] + parts.column[1][r]) + (parts.column[2][r] + parts.column[3][r]);
        const float leave = (parts.leave[0][r] + parts.leave[1][r]) * power2(m.u[63] - m.u[r]);
        to.dw[e] = column + m.diagonal[r] + leave;
        before[e] = m.w[r] * leave;
        behind[e] = parts.row[0][r] + parts.row[1][r] - m.w[r] * column +
                    power2(m.u[r]) * (parts.history[0][r] + parts.history[1][r]);
    }
    const float all_before = sum_before(before[0] + before[1], lane) - before[0] - before[1];
    const float all_behind = sum_behind(behind[0] + behind[1], lane);
    const float through = power2(m.u[63]) * state;
    to.dlg[0] = all_behind + all_before + through;
    to.dlg[1] = all_behind - behind[0] + all_before + before[0] + through;
    return to;
}

// The same with a window. R_s(t), the gradient of what step t writes of pair s, for t = s .. s + halo:
//   R_s(t) = sum_{i >= t} e^{u_i - u_t} G_is + e^{u_C - u_t} L_s      dw_t = sum_{s in I_t} R_s(t)
//   dlg_t = sum_{i >= t} (sum_s M_is G_is + h_i Q_i . Y_i - w_i dw_i) + sum_s M_Cs L_s + h_C <S, dS'>
__device__ inline gate_pair window_gate_grads(const gate_rows &m, const tile_mask<true> &mask, part_sums &parts,
                                              const float *near, int lane) {
    const int halo = mask.halo;
    float behind[2], leaving = 0.0f, state = 0.0f;
    gate_pair to;
    for (int i = 0; i < 8; i++) state += parts.state[i];
    for (int s = lane; s < 64; s += 32) {
        const float L = parts.leave[0][s] + parts.leave[1][s];
        float R = L;
        leaving += mask.at(63, s, m.u[63]) * L;
        for (int d = halo; d >= 0; d--) {
            const int t = s + d;
            if (t > 63) continue;
            if (d == halo)
                R = (parts.column[0][s] + parts.column[1][s]) + (parts.column[2][s] + parts.column[3][s]) +
                    power2(m.u[63] - m.u[t]) * L;
            else
                R = near[s * halo_most + d] + (t < 63 ? power2(m.u[t + 1] - m.u[t]) : 1.0f) * R;
            parts.reach[d][s] = R;
        }
    }
    __syncwarp();
#pragma unroll
    for (int e = 0; e < 2; e++) {
        const int t = lane * 2 + e;
        to.dw[e] = behind[e] = 0.0f;
        if (t < halo) continue;
        for (int d = 0; d <= halo; d++)
            if (m.pairs[t] > static_cast<float>(d)) to.dw[e] += parts.reach[d][t - d];
        behind[e] = parts.row[0][t] + parts.row[1][t] - m.w[t] * to.dw[e] +
                    power2(m.u[t]) * (parts.history[0][t] + parts.history[1][t]);
    }
    const float all_behind = sum_behind(behind[0] + behind[1], lane);
    const float through = warp_sum(leaving) + power2(m.u[63]) * state;
    to.dlg[0] = all_behind + through;
    to.dlg[1] = all_behind - behind[0] + through;
    return to;
}

// pull_s = 2 sum over the chunk's steps t with s in I_t of dE_t / B_t, by one warp: what x_s adds to its gradient.
__device__ inline void pulls(const float *pairs, part_sums &parts, const float (&energy)[2], int halo) {
    const place at;
    parts.energy[at.lane * 2] = energy[0], parts.energy[at.lane * 2 + 1] = energy[1];
    __syncwarp();
    for (int s = at.lane; s < 64; s += 32) {
        float sum = parts.energy[s];
        for (int d = 1; d <= halo && s + d < 64; d++)
            if (pairs[s + d] > static_cast<float>(d)) sum += parts.energy[s + d];
        parts.pull[s] = 2.0f * sum;
    }
}

} // namespace fwa
#endif
