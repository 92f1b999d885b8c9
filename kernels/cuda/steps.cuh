// The general recurrent kernel of the cores with matrix state, any V and T, K <= 1024, fp32 inside:
//
//   S_t = gamma_t S_{t-1} + w_t sum_{j in I_t} x_j r_j^T      o_t = S_t^T q_t (before: S_{t-1}^T q_t)
//   additive: r_j = v_j      delta: r_j = v_j - f S_{t-1}^T x_j, f = gamma_t where the decay acts first, else 1
//
// with w and gamma for every column of V in the column core. docs/math/ has the equations by rule.
//
// Mapping: a block holds 32 columns of S of one head (a slice): a lane a column, warp p the rows p KR .. p KR + KR - 1
// in registers. Columns of S are independent forward; sums over K run over the warps through shared memory, sums over V
// (dq, dx, dw, dgamma) over the lanes of a warp, and over slices and value heads later (moves.cu, rate.cu). All
// sums have a fixed order: the same bits every time. No exponentials, so no overflow: gamma <= 1 multiplies S.
//
// Saved: S before every piece of 64 steps, fp32. Backward: a piece is run again, keeping S before every part of 8
// steps; each part, last one first, is run again keeping S of every step and the residuals; then its steps are taken in
// reverse, carrying dS. Cost: 3 T K V multiply-adds a head forward and 13 T K V backward (window 1), and 12 K V T bytes
// of L2 traffic for the kept states.
#ifndef FWA_KERNELS_CUDA_STEPS_CUH
#define FWA_KERNELS_CUDA_STEPS_CUH

#include "core/shape.h"
#include "kernels/cuda/core.cuh"

namespace fwa {

constexpr int64_t piece_steps = 64, part_steps = 8;
constexpr int64_t slice_columns = 32;
constexpr int ring_slots = static_cast<int>(piece_steps / part_steps + part_steps);
constexpr int64_t most_warps = 32;

__host__ __device__ constexpr int64_t pieces_of(int64_t T) {
    return (T + piece_steps - 1) / piece_steps;
}
template <int KR> constexpr int most_threads = KR == 32 ? 1024 : 512;

// Sums over the warps of a block, lane by lane. Two buffers: one barrier a sum.
struct column_sums {
    float *space; // [2][3][threads]
    int turn;

    template <int N> __device__ void sum(float (&x)[N]) {
        static_assert(N <= 3);
        const int threads = static_cast<int>(blockDim.x), lane = static_cast<int>(threadIdx.x) % 32;
        float *buffer = space + turn * 3 * threads;
#pragma unroll
        for (int i = 0; i < N; i++) buffer[i * threads + static_cast<int>(threadIdx.x)] = x[i];
        __syncthreads();
#pragma unroll
        for (int i = 0; i < N; i++) {
            x[i] = 0.0f;
            for (int p = lane; p < threads; p += 32) x[i] += buffer[i * threads + p];
        }
        turn ^= 1;
    }
};

// Sum of x[i] over the lanes of a warp; lane l gets that of i = l % KR.
template <int KR> __device__ inline float lane_sums(float (&x)[KR]) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
    for (int half = KR / 2; half >= 1; half /= 2) {
        const bool upper = lane & half;
#pragma unroll
        for (int i = 0; i < half; i++) {
            const float sent = upper ? x[i] : x[i + half], kept = upper ? x[i + half] : x[i];
            x[i] = kept + __shfl_xor_sync(0xffffffffu, sent, half);
        }
    }
#pragma unroll
    for (int offset = KR; offset < 32; offset *= 2) x[0] += __shfl_xor_sync(0xffffffffu, x[0], offset);
    return x[0];
}

template <int KR> __device__ inline void load_rows(float (&to)[KR], const float *from) {
#pragma unroll
    for (int i = 0; i < KR; i += 4) {
        const float4 four = *reinterpret_cast<const float4 *>(from + i);
        to[i] = four.x, to[i + 1] = four.y, to[i + 2] = four.z, to[i + 3] = four.w;
    }
}

template <int KR> __device__ inline float dot(const float (&a)[KR], const float (&b)[KR]) {
    float sum[4] = {};
#pragma unroll
    for (int i = 0; i < KR; i++) sum[i % 4] += a[i] * b[i];
    return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

// What a thread is: head (b, h), column c of its slice, rows k0 .. k0 + KR - 1.
template <int KR, bool COLUMN> struct place {
    const mixer_task &a;
    int64_t b, h, slice, k0, c;
    int warp, lane;

    __device__ explicit place(const mixer_task &task) : a(task) {
        const int64_t block = blockIdx.x;
        slice = block % a.slices, h = block / a.slices % a.H, b = block / a.slices / a.H;
        warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
        k0 = static_cast<int64_t>(warp) * KR, c = slice * slice_columns + lane;
    }
    __device__ int64_t head() const {
        return b * a.H + h;
    }
    __device__ int64_t weight(int64_t t) const { // of w and gamma
        return COLUMN ? (head() * a.T + t) * a.Vp + c : head() * a.T + t;
    }
    __device__ bool drop(int64_t t) const {
        return a.drop[b * a.T + t];
    }
    __device__ float v(int64_t j) const {
        return a.vs[(head() * a.rows + j) * a.Vp + c];
    }
    __device__ void x(float (&to)[KR], int64_t j) const {
        load_rows(to, a.x_row(b, h, j) + k0);
    }
    __device__ void q(float (&to)[KR], int64_t t) const {
        load_rows(to, a.q_row(b, h, t) + k0);
    }
    // A row of dq or dx: this slice's part of it.
    __device__ float *part_row(float *d, int64_t count, int64_t row) const {
        return d + ((head() * a.slices + slice) * count + row) * a.Kp + k0;
    }

    // S or dS and its column z, from and to the caller's tensors; absent: zeros.
    __device__ void get_state(float (&S)[KR], const state_views &from) const {
#pragma unroll
        for (int i = 0; i < KR; i++) {
            const int64_t k = k0 + i;
            S[i] = 0.0f;
            if (k >= a.K) continue;
            if (c < a.V && from.S.present()) S[i] = from.S.get(b, h, k, c);
            if (a.normalized && c == a.V && from.z.present()) S[i] = from.z.get(b, h, k);
        }
    }
    __device__ void set_state(const float (&S)[KR], const state_views &to) const {
#pragma unroll
        for (int i = 0; i < KR; i++) {
            const int64_t k = k0 + i;
            if (k >= a.K) continue;
            if (c < a.V && to.S.present()) to.S.set(S[i], b, h, k, c);
            if (a.normalized && c == a.V && to.z.present()) to.z.set(S[i], b, h, k);
        }
    }
    // Slot of `states` or `ring`: a thread reads back what it wrote itself.
    __device__ float *slot(float *base, int64_t slots, int64_t index) const {
        return base + ((blockIdx.x * slots + index) * KR) * blockDim.x + threadIdx.x;
    }
    __device__ void keep(float *to, const float (&S)[KR]) const {
#pragma unroll
        for (int i = 0; i < KR; i++) to[i * static_cast<int64_t>(blockDim.x)] = S[i];
    }
    __device__ void recall(float (&S)[KR], const float *from) const {
#pragma unroll
        for (int i = 0; i < KR; i++) S[i] = from[i * static_cast<int64_t>(blockDim.x)];
    }
};

// S_{t-1} -> S_t; residuals of the step go to kept [pairs,32] where it is not null.
template <int KR, bool DELTA, bool COLUMN>
__device__ inline void write_step(const place<KR, COLUMN> &at, column_sums &sums, int64_t t, float (&S)[KR],
                                  float *kept) {
    const mixer_task &a = at.a;
    const int64_t first = a.first_of(at.b, t);
    const float gamma = a.gamma[at.weight(t)], w = a.w[at.weight(t)], factor = a.decay_first ? gamma : 1.0f;
    float next[KR], x[KR];
#pragma unroll
    for (int i = 0; i < KR; i++) next[i] = gamma * S[i];
    for (int64_t j = first; j <= a.n + t; j++) {
        float r = at.v(j);
        at.x(x, j);
        if (DELTA) {
            float seen[1] = {dot(S, x)};
            sums.sum(seen);
            r -= factor * seen[0];
            if (kept && at.warp == 0) kept[(j - first) * slice_columns + at.lane] = r;
        }
        r *= w;
#pragma unroll
        for (int i = 0; i < KR; i++) next[i] += r * x[i];
    }
#pragma unroll
    for (int i = 0; i < KR; i++) S[i] = next[i];
}

template <int KR, bool COLUMN>
__device__ inline void read_step(const place<KR, COLUMN> &at, column_sums &sums, int64_t t, const float (&S)[KR]) {
    float q[KR];
    at.q(q, t);
    float o[1] = {dot(S, q)};
    sums.sum(o);
    if (at.warp == 0) at.a.os[(at.head() * at.a.T + t) * at.a.Vp + at.c] = o[0];
}

template <int KR, bool DELTA, bool COLUMN>
__global__ void __launch_bounds__(most_threads<KR>) steps_forward_kernel(const __grid_constant__ mixer_task a) {
    extern __shared__ float space[];
    const place<KR, COLUMN> at(a);
    column_sums sums = {space, 0};
    float S[KR];
    at.get_state(S, a.in);
    for (int64_t t = 0; t < a.T; t++) {
        if (a.save && t % piece_steps == 0) at.keep(at.slot(a.states, pieces_of(a.T), t / piece_steps), S);
        if (at.drop(t)) {
#pragma unroll
            for (int i = 0; i < KR; i++) S[i] = 0.0f;
        }
        if (a.before) read_step(at, sums, t, S);
        write_step<KR, DELTA>(at, sums, t, S, nullptr);
        if (!a.before) read_step(at, sums, t, S);
    }
    at.set_state(S, a.out);
}

// One block's steps of the backward pass.
template <int KR, bool DELTA, bool COLUMN> struct reverse {
    const place<KR, COLUMN> at;
    const mixer_task &a;
    column_sums sums;
    int64_t pairs_most;
    float dS[KR];

    __device__ reverse(const mixer_task &task, float *space)
        : at(task), a(task), sums{space, 0}, pairs_most(min(task.halo + 1, task.rows)) {
        at.get_state(dS, a.d_out);
    }

    __device__ float *part_state(int64_t part) const {
        return at.slot(a.ring, ring_slots, part);
    }
    __device__ float *step_state(int64_t i) const {
        return at.slot(a.ring, ring_slots, piece_steps / part_steps + i);
    }
    __device__ float *residuals(int64_t i) const {
        return a.kept + (blockIdx.x * part_steps + i) * pairs_most * slice_columns;
    }

    __device__ void drop(float (&S)[KR], int64_t t) const {
        if (!at.drop(t)) return;
#pragma unroll
        for (int i = 0; i < KR; i++) S[i] = 0.0f;
    }

    // dq of this slice from the state that was read; its share of dS.
    __device__ void read_step_back(int64_t t, const float (&S)[KR]) {
        const float d = a.d_os[(at.head() * a.T + t) * a.Vp + at.c];
        float q[KR], dq[KR];
        at.q(q, t);
#pragma unroll
        for (int i = 0; i < KR; i++) {
            dq[i] = S[i] * d;
            dS[i] += q[i] * d;
        }
        const float sum = lane_sums(dq);
        if (at.lane < KR) at.part_row(a.dqs, a.T, t)[at.lane] = sum;
    }

    __device__ float residual(int64_t i, int64_t first, int64_t j) const {
        return DELTA ? residuals(i)[(j - first) * slice_columns + at.lane] : at.v(j);
    }

    // S_t from S_{t-1} and the kept residuals.
    __device__ void state_after(float (&S)[KR], int64_t t, int64_t i, float gamma, float w) const {
        const int64_t first = a.first_of(at.b, t);
        float x[KR];
#pragma unroll
        for (int k = 0; k < KR; k++) S[k] *= gamma;
        for (int64_t j = first; j <= a.n + t; j++) {
            const float r = w * residual(i, first, j);
            at.x(x, j);
#pragma unroll
            for (int k = 0; k < KR; k++) S[k] += r * x[k];
        }
    }

    __device__ void set_weights(int64_t t, float dw, float dgamma) const {
        if (at.warp > 0) return;
        if (COLUMN) {
            a.dw[at.weight(t)] = dw;
            a.dgamma[at.weight(t)] = dgamma;
            return;
        }
        dw = warp_sum(dw);
        dgamma = warp_sum(dgamma);
        const int64_t i = (at.head() * a.slices + at.slice) * a.T + t;
        if (at.lane == 0) a.dw[i] = dw, a.dgamma[i] = dgamma;
    }

    // The write of step t, P = S_{t-1}: gradients of x, v, w, gamma; dS becomes that of S_{t-1}.
    //   dr = w dS^T x    dx_j += w dS r_j - f P dr_j    dS = gamma dS - f sum_j x_j dr_j^T
    __device__ void write_step_back(int64_t t, int64_t i, const float (&P)[KR], float gamma, float w) {
        const int64_t first = a.first_of(at.b, t);
        const float factor = a.decay_first ? gamma : 1.0f;
        float next[KR], x[KR], d[KR], dw = 0.0f, dgamma = 0.0f;
#pragma unroll
        for (int k = 0; k < KR; k++) next[k] = gamma * dS[k];
        for (int64_t j = first; j <= a.n + t; j++) {
            const float r = residual(i, first, j);
            at.x(x, j);
            float s[3] = {dot(dS, x), j == first ? dot(dS, P) : 0.0f, DELTA && a.decay_first ? dot(P, x) : 0.0f};
            sums.sum(s);
            const float dr = w * s[0], written = w * r, residual_pull = DELTA ? factor * dr : 0.0f;
            dw += s[0] * r;
            dgamma += s[1] - (a.decay_first ? s[2] * dr : 0.0f);
#pragma unroll
            for (int k = 0; k < KR; k++) {
                d[k] = dS[k] * written - P[k] * residual_pull;
                next[k] -= x[k] * residual_pull;
            }
            const float sum = lane_sums(d);
            if (at.lane < KR) at.part_row(a.dxs, a.rows, j)[at.lane] += sum;
            if (at.warp == 0) a.dvs[(at.head() * a.rows + j) * a.Vp + at.c] += dr;
        }
#pragma unroll
        for (int k = 0; k < KR; k++) dS[k] = next[k];
        set_weights(t, dw, dgamma);
    }

    __device__ void step_back(int64_t t, int64_t i) {
        const float gamma = a.gamma[at.weight(t)], w = a.w[at.weight(t)];
        float P[KR];
        if (!a.before) {
            at.recall(P, step_state(i));
            state_after(P, t, i, gamma, w);
            read_step_back(t, P);
        }
        at.recall(P, step_state(i));
        write_step_back(t, i, P, gamma, w);
        if (a.before) read_step_back(t, P);
        drop(dS, t);
    }

    // Steps [t0, t1) again, forward then backward; S is the state before t0.
    __device__ void part(int64_t t0, int64_t t1, float (&S)[KR]) {
        for (int64_t t = t0; t < t1; t++) {
            drop(S, t);
            at.keep(step_state(t - t0), S);
            write_step<KR, DELTA>(at, sums, t, S, residuals(t - t0));
        }
        __syncthreads();
        for (int64_t t = t1 - 1; t >= t0; t--) step_back(t, t - t0);
        __syncthreads();
    }

    __device__ void piece(int64_t index) {
        const int64_t begin = index * piece_steps, end = min(a.T, begin + piece_steps);
        const int64_t parts = (end - begin + part_steps - 1) / part_steps;
        float S[KR];
        at.recall(S, at.slot(a.states, pieces_of(a.T), index));
        for (int64_t t = begin; t < begin + (parts - 1) * part_steps; t++) {
            if ((t - begin) % part_steps == 0) at.keep(part_state((t - begin) / part_steps), S);
            drop(S, t);
            write_step<KR, DELTA>(at, sums, t, S, nullptr);
        }
        part(begin + (parts - 1) * part_steps, end, S);
        for (int64_t p = parts - 2; p >= 0; p--) {
            at.recall(S, part_state(p));
            part(begin + p * part_steps, begin + (p + 1) * part_steps, S);
        }
    }
};

template <int KR, bool DELTA, bool COLUMN>
__global__ void __launch_bounds__(most_threads<KR>) steps_backward_kernel(const __grid_constant__ mixer_task a) {
    extern __shared__ float space[];
    reverse<KR, DELTA, COLUMN> block(a, space);
    for (int64_t p = pieces_of(a.T) - 1; p >= 0; p--) block.piece(p);
    block.at.set_state(block.dS, a.d_in);
}

inline int64_t rows_a_thread(int64_t K) {
    return K <= 32 ? 4 : K <= 256 ? 16 : 32;
}

inline int64_t steps_threads(const mixer_task &task) {
    return task.Kp / rows_a_thread(task.K) * 32;
}

inline fwa_status steps_shape(mixer_task *task) {
    const int64_t rows = rows_a_thread(task->K);
    FWA_CHECK(task->K <= most_warps * 32, FWA_UNSUPPORTED,
              "K = %lld; the general recurrent kernel takes keys of at most %lld elements",
              static_cast<long long>(task->K), static_cast<long long>(most_warps * 32));
    task->Kp = fwa_round_up(task->K, rows);
    task->Vp = fwa_round_up(task->V + task->normalized, slice_columns);
    task->slices = task->Vp / slice_columns;
    return FWA_OK;
}

inline void steps_plan(mixer_task *task, fwa_bump *saved, fwa_bump *scratch, bool backward) {
    const int64_t blocks = task->B * task->H * task->slices, state = task->Kp * slice_columns;
    const int64_t pairs = fwa_min(task->halo + 1, task->rows);
    if (task->save) task->states = FWA_TAKE(saved, float, blocks *pieces_of(task->T) * state);
    if (!backward) return;
    task->ring = FWA_TAKE(scratch, float, blocks *ring_slots *state);
    task->kept = FWA_TAKE(scratch, float, blocks *part_steps *pairs *slice_columns);
}

template <int KR, bool DELTA, bool COLUMN>
fwa_status steps_launch(cudaStream_t stream, const mixer_task &task, bool backward) {
    const auto blocks = static_cast<unsigned>(task.B * task.H * task.slices);
    const auto threads = static_cast<unsigned>(steps_threads(task));
    const size_t shared = 2 * 3 * threads * sizeof(float);
    if (backward)
        FWA_LAUNCH((steps_backward_kernel<KR, DELTA, COLUMN>), blocks, threads, shared, stream, task);
    else
        FWA_LAUNCH((steps_forward_kernel<KR, DELTA, COLUMN>), blocks, threads, shared, stream, task);
    return FWA_OK;
}

template <bool DELTA, bool COLUMN> fwa_status steps_run(cudaStream_t stream, const mixer_task &task, bool backward) {
    switch (rows_a_thread(task.K)) {
    case 4:
        return steps_launch<4, DELTA, COLUMN>(stream, task, backward);
    case 16:
        return steps_launch<16, DELTA, COLUMN>(stream, task, backward);
    default:
        return steps_launch<32, DELTA, COLUMN>(stream, task, backward);
    }
}

template <bool DELTA, bool COLUMN> fwa_status steps_forward(cudaStream_t stream, const mixer_task &task) {
    return steps_run<DELTA, COLUMN>(stream, task, false);
}
template <bool DELTA, bool COLUMN> fwa_status steps_backward(cudaStream_t stream, const mixer_task &task) {
    return steps_run<DELTA, COLUMN>(stream, task, true);
}

template <bool DELTA, bool COLUMN>
inline constexpr core steps_core = {"general recurrent kernel", steps_shape, steps_plan, steps_forward<DELTA, COLUMN>,
                                    steps_backward<DELTA, COLUMN>};

} // namespace fwa
#endif
