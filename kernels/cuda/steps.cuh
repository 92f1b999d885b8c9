// The general recurrent kernel of the cores with matrix state, any V and T, K <= 1024, fp32 inside:
//
//   S_t = gamma_t S_{t-1} + w_t sum_{j in I_t} x_j r_j^T      o_t = S_t^T q_t (before: S_{t-1}^T q_t)
//   additive: r_j = v_j      delta: r_j = v_j - f S_{t-1}^T x_j, f = gamma_t where the decay acts first, else 1
//
// with w and gamma for every column of V in the column core.
//
// Mapping: a block holds 32 columns of S of one head (a slice): a lane a column, warp p the rows p R .. p R + R - 1 in
// registers. Columns of S are independent forward; sums over K run over the warps through shared memory, sums over V
// (dq, dx, dw, dgamma) over the lanes of a warp, and over slices and value heads later (moves.cu, rate.cu). All sums
// have a fixed order: the same bits every time. No exponentials, so no overflow: gamma <= 1 multiplies S. Inputs of a
// few steps (a part) are staged in shared memory together.
//
// Saved: S before every piece of 64 steps, fp32. Backward: a piece is run again, keeping S before every part; each
// part, last one first, is run again keeping S before every step and the residuals; then its steps are taken in
// reverse, carrying dS. Cost: 3 T K V multiply-adds a head forward and 12 T K V backward (delta, window 1), and 8 T K V
// bytes of shared memory traffic for the states kept on the way.
#ifndef FWA_KERNELS_CUDA_STEPS_CUH
#define FWA_KERNELS_CUDA_STEPS_CUH

#include "core/shape.h"
#include "kernels/cuda/core.cuh"
#include "kernels/cuda/steps_block.cuh"

namespace fwa {

// One thread of a block: head (b, h), column c of its slice, rows k0 .. k0 + R - 1; and the part that is staged.
template <typename C, bool DELTA, bool COLUMN> struct stepper {
    static constexpr int R = C::R;
    const mixer_task &a;
    block_memory<C> &memory;
    int64_t b, h, head, slice, c, t0; // t0: first step of the part
    int warp, lane, k0, turn;

    __device__ stepper(const mixer_task &task, block_memory<C> &shared) : a(task), memory(shared), t0(0), turn(0) {
        const int64_t block = blockIdx.x;
        slice = block % a.slices, head = block / a.slices, h = head % a.H, b = head / a.H;
        warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
        k0 = warp * R, c = slice * slice_columns + lane;
    }

    // Stages steps start .. start + count - 1; d_o too where `grads`.
    __device__ __forceinline__ void stage(int64_t start, int count, bool grads) {
        const int thread = static_cast<int>(threadIdx.x);
        const auto *x = reinterpret_cast<const float4 *>(a.x_row(b, h, a.n + start));
        const auto *q = reinterpret_cast<const float4 *>(a.q_row(b, h, start));
        __syncthreads();
        t0 = start;
        for (int i = thread; i < count * C::Kp / 4; i += C::threads) {
            reinterpret_cast<float4 *>(memory.x)[i] = x[i];
            reinterpret_cast<float4 *>(memory.q)[i] = q[i];
        }
        for (int i = warp; i < count; i += C::W) {
            const int64_t t = start + i, row = head * a.T + t;
            const int64_t weight = COLUMN ? row * a.Vp + c : row;
            memory.v[i][lane] = a.vs[(head * a.rows + a.n + t) * a.Vp + c];
            memory.w[i][lane] = a.w[weight];
            memory.gamma[i][lane] = a.gamma[weight];
            if (grads) memory.d_o[i][lane] = a.d_os[row * a.Vp + c];
        }
        if (thread < count) {
            memory.first[thread] = a.first[b * a.T + start + thread];
            memory.drop[thread] = a.drop[b * a.T + start + thread];
        }
        __syncthreads();
    }

    // Rows of pairs; those of steps before the part come from device memory.
    __device__ __forceinline__ void x(float (&to)[R], int64_t j) const {
        const int64_t i = j - a.n - t0;
        load_rows(to, i >= 0 ? &memory.x[i][k0] : a.x_row(b, h, j) + k0);
    }
    __device__ __forceinline__ float v(int64_t j) const {
        const int64_t i = j - a.n - t0;
        return i >= 0 ? memory.v[i][lane] : a.vs[(head * a.rows + j) * a.Vp + c];
    }

    // Sum over the warps, lane by lane. Two buffers: one barrier a sum.
    __device__ __forceinline__ float sum(float x) {
        memory.sums[turn][warp][lane] = x;
        __syncthreads();
        x = over_warps<C>(memory.sums[turn], lane);
        turn ^= 1;
        return x;
    }

    // S or dS and its column z, from and to the caller's tensors; absent: zeros.
    __device__ __forceinline__ void get_state(float (&S)[R], const state_views &from) const {
#pragma unroll
        for (int i = 0; i < R; i++) {
            const int64_t k = k0 + i;
            S[i] = 0.0f;
            if (k >= a.K) continue;
            if (c < a.V && from.S.present()) S[i] = from.S.get(b, h, k, c);
            if (a.normalized && c == a.V && from.z.present()) S[i] = from.z.get(b, h, k);
        }
    }
    __device__ __forceinline__ void set_state(const float (&S)[R], const state_views &to) const {
#pragma unroll
        for (int i = 0; i < R; i++) {
            const int64_t k = k0 + i;
            if (k >= a.K) continue;
            if (c < a.V && to.S.present()) to.S.set(S[i], b, h, k, c);
            if (a.normalized && c == a.V && to.z.present()) to.z.set(S[i], b, h, k);
        }
    }

    // This thread's rows of state `index` [Kp,32] of the `count` states that a block has.
    __device__ __forceinline__ float *slot(float *base, int64_t count, int64_t index) const {
        return base + (blockIdx.x * count + index) * C::state + k0 * slice_columns + lane;
    }
    __device__ __forceinline__ void keep(float *to, const float (&S)[R]) const {
#pragma unroll
        for (int i = 0; i < R; i++) to[i * slice_columns] = S[i];
    }
    __device__ __forceinline__ void recall(float (&S)[R], const float *from) const {
#pragma unroll
        for (int i = 0; i < R; i++) S[i] = from[i * slice_columns];
    }

    // This warp's part of S^T q.
    __device__ __forceinline__ float read(int i, const float (&S)[R]) const {
        float q[R];
        load_rows(q, &memory.q[i][k0]);
        return dot(S, q);
    }

    // S_{t-1} -> S_t for step i of the part; residuals of the step go to kept [pairs,32] where it is not null.
    __device__ __forceinline__ void write(int i, float (&S)[R], float *kept) {
        const int64_t first = memory.first[i], last = a.n + t0 + i;
        const float gamma = memory.gamma[i][lane], w = memory.w[i][lane], factor = a.decay_first ? gamma : 1.0f;
        float next[R], row[R];
#pragma unroll
        for (int k = 0; k < R; k++) next[k] = gamma * S[k];
#pragma unroll 1
        for (int64_t j = first; j <= last; j++) {
            float r = v(j);
            x(row, j);
            if (DELTA) {
                r -= factor * sum(dot(S, row));
                if (kept && warp == 0) kept[(j - first) * slice_columns + lane] = r;
            }
            r *= w;
#pragma unroll
            for (int k = 0; k < R; k++) next[k] += r * row[k];
        }
#pragma unroll
        for (int k = 0; k < R; k++) S[k] = next[k];
    }
};

// Parts of o of the warps, for every step of a part.
template <typename C> using partial_reads = float[C::PART][C::W][slice_columns];

__device__ inline int steps_left(int64_t most, int64_t begin, int64_t end) {
    return static_cast<int>(min(most, end - begin));
}

// o of `count` steps of the part, once all warps have read.
template <typename C, bool DELTA, bool COLUMN>
__device__ inline void flush_reads(const stepper<C, DELTA, COLUMN> &at, const partial_reads<C> &reads, int count) {
    __syncthreads();
    for (int i = at.warp; i < count; i += C::W) {
        at.a.os[(at.head * at.a.T + at.t0 + i) * at.a.Vp + at.c] = over_warps<C>(reads[i], at.lane);
    }
}

template <typename C, bool DELTA, bool COLUMN>
__global__ void __launch_bounds__(C::threads, C::threads <= 256 ? 3 : 1)
    steps_forward_kernel(const __grid_constant__ mixer_task a) {
    __shared__ block_memory<C> memory;
    __shared__ partial_reads<C> reads;
    stepper<C, DELTA, COLUMN> at(a, memory);
    float S[C::R];
    at.get_state(S, a.in);
    for (int64_t t0 = 0; t0 < a.T; t0 += C::PART) {
        const int count = steps_left(C::PART, t0, a.T);
        if (a.save && t0 % piece_steps == 0) at.keep(at.slot(a.states, pieces_of(a.T), t0 / piece_steps), S);
        at.stage(t0, count, false);
#pragma unroll 1
        for (int i = 0; i < count; i++) {
            if (memory.drop[i]) clear(S);
            if (a.before) reads[i][at.warp][at.lane] = at.read(i, S);
            at.write(i, S, nullptr);
            if (!a.before) reads[i][at.warp][at.lane] = at.read(i, S);
        }
        flush_reads(at, reads, count);
    }
    at.set_state(S, a.out);
}

// What the backward pass needs more. dw, dgamma of the steps of a part, by column; dgamma as parts of the warps.
template <typename C> struct backward_memory : block_memory<C> {
    float dw[C::PART][slice_columns], dgamma[C::PART][C::W][slice_columns];
};

// The backward pass of one block.
template <typename C, bool DELTA, bool COLUMN> struct reverse : stepper<C, DELTA, COLUMN> {
    using base = stepper<C, DELTA, COLUMN>;
    using base::a, base::lane, base::memory, base::t0, base::warp;
    static constexpr int R = C::R;
    backward_memory<C> &more;
    int64_t pairs_most;
    float *kept_far; // residuals of the part where a step has too many for shared memory
    float *ring;     // S before every step of the part
    float *dq, *dx, *dv;
    float dS[R];

    __device__ reverse(const mixer_task &task, backward_memory<C> &shared, float *shared_ring)
        : base(task, shared), more(shared), pairs_most(min(task.halo + 1, task.rows)) {
        const int64_t part = this->head * a.slices + this->slice;
        kept_far = pairs_most > kept_pairs ? a.kept + blockIdx.x * C::PART * pairs_most * slice_columns : nullptr;
        ring = a.ring_far ? this->slot(a.ring_far, C::PART, 0) : shared_ring + this->k0 * slice_columns + lane;
        dq = a.dqs + part * a.T * C::Kp + this->k0;
        dx = a.dxs + part * a.rows * C::Kp + this->k0;
        dv = a.dvs + this->head * a.rows * a.Vp + this->c;
        this->get_state(dS, a.d_out);
    }

    __device__ __forceinline__ float *part_state(int64_t part) const {
        return this->slot(a.ring, C::parts, part);
    }
    __device__ __forceinline__ float *step_state(int i) const {
        return ring + i * C::state;
    }
    __device__ __forceinline__ float *residuals(int i) const {
        return kept_far ? kept_far + i * pairs_most * slice_columns : memory.kept[i][0];
    }

    // dq of this slice from the state that was read (none: zeros); its share of dS.
    __device__ __forceinline__ void read_back(int i, const float (&S)[R], bool none) {
        const float d = memory.d_o[i][lane], seen = none ? 0.0f : d;
        float q[R], product[R];
        load_rows(q, &memory.q[i][this->k0]);
#pragma unroll
        for (int k = 0; k < R; k++) {
            product[k] = S[k] * seen;
            dS[k] += q[k] * d;
        }
        const float sum = lane_sums(product);
        if (lane < R) dq[(t0 + i) * C::Kp + lane] = sum;
    }

    // Without a window a row is written once; otherwise its steps add to it, one after another.
    __device__ __forceinline__ void add_row(int64_t j, float sum, float dr) const {
        const bool alone = a.halo == 0;
        if (lane < R) {
            float *to = dx + j * C::Kp + lane;
            *to = alone ? sum : *to + sum;
        }
        if (warp == static_cast<int>(j % C::W)) {
            float *to = dv + j * a.Vp;
            *to = alone ? dr : *to + dr;
        }
    }

    // The write of step i, P = S_{t-1} (none: it was dropped, and dS is not needed any more): gradients of x, v, w,
    // gamma; dS becomes that of S_{t-1}.
    //   dr = w dS^T x    dx_j += w dS r_j - f P dr_j    dS = gamma dS - f sum_j x_j dr_j^T
    __device__ __forceinline__ void write_back(int i, const float (&P)[R], bool none) {
        const int64_t first = memory.first[i], last = a.n + t0 + i;
        const float gamma = memory.gamma[i][lane], w = memory.w[i][lane];
        const float factor = none ? 0.0f : a.decay_first ? gamma : 1.0f;
        const float *kept = residuals(i);
        float next[R], x[R], product[R], dw = 0.0f, dgamma = none ? 0.0f : dot(dS, P);
#pragma unroll
        for (int k = 0; k < R; k++) next[k] = gamma * dS[k];
#pragma unroll 1
        for (int64_t j = first; j <= last; j++) {
            const float r = DELTA ? kept[(j - first) * slice_columns + lane] : this->v(j);
            this->x(x, j);
            const float pulled = this->sum(dot(dS, x)), dr = w * pulled, written = w * r;
            const float pull = DELTA ? factor * dr : 0.0f;
            dw += pulled * r;
            if (DELTA && a.decay_first && !none) dgamma -= dot(P, x) * dr;
#pragma unroll
            for (int k = 0; k < R; k++) {
                product[k] = dS[k] * written - P[k] * pull;
                next[k] -= x[k] * pull;
            }
            add_row(j, lane_sums(product), dr);
        }
#pragma unroll
        for (int k = 0; k < R; k++) dS[k] = next[k];
        more.dgamma[i][warp][lane] = dgamma;
        if (warp == 0) more.dw[i][lane] = dw;
    }

    // dw and dgamma of the part, once all warps have theirs.
    __device__ __forceinline__ void flush_weights(int count) const {
        __syncthreads();
        for (int i = warp; i < count; i += C::W) {
            const int64_t t = t0 + i, row = (this->head * a.slices + this->slice) * a.T + t;
            float dw = more.dw[i][lane], dgamma = over_warps<C>(more.dgamma[i], lane);
            if (COLUMN) {
                a.dw[(this->head * a.T + t) * a.Vp + this->c] = dw;
                a.dgamma[(this->head * a.T + t) * a.Vp + this->c] = dgamma;
                continue;
            }
            dw = warp_sum(dw);
            dgamma = warp_sum(dgamma);
            if (lane == 0) a.dw[row] = dw, a.dgamma[row] = dgamma;
        }
    }

    // Step i backward; S is S_t, and becomes S_{t-1} as it was before a drop.
    __device__ __forceinline__ void step_back(int i, float (&S)[R]) {
        const bool drop = memory.drop[i];
        if (!a.before) read_back(i, S, false);
        this->recall(S, step_state(i));
        write_back(i, S, drop);
        if (a.before) read_back(i, S, drop);
        if (drop) clear(dS);
    }

    // Steps of a part again, then backward; S is the state before it.
    __device__ __forceinline__ void part(int64_t start, int count, float (&S)[R]) {
        this->stage(start, count, true);
#pragma unroll 1
        for (int i = 0; i < count; i++) {
            this->keep(step_state(i), S);
            if (memory.drop[i]) clear(S);
            this->write(i, S, residuals(i));
        }
        __syncthreads();
#pragma unroll 1
        for (int i = count - 1; i >= 0; i--) step_back(i, S);
        flush_weights(count);
    }

    __device__ __forceinline__ void piece(int64_t index) {
        const int64_t begin = index * piece_steps, end = min(a.T, begin + piece_steps);
        const int last = static_cast<int>((end - begin - 1) / C::PART);
        float S[R];
        this->recall(S, this->slot(a.states, pieces_of(a.T), index));
#pragma unroll 1
        for (int p = 0; p < last; p++) {
            this->keep(part_state(p), S);
            this->stage(begin + p * C::PART, C::PART, false);
#pragma unroll 1
            for (int i = 0; i < C::PART; i++) {
                if (memory.drop[i]) clear(S);
                this->write(i, S, nullptr);
            }
        }
#pragma unroll 1
        for (int p = last; p >= 0; p--) {
            if (p < last) this->recall(S, part_state(p));
            part(begin + p * C::PART, steps_left(C::PART, begin + p * C::PART, end), S);
        }
    }
};

template <typename C, bool DELTA, bool COLUMN>
__global__ void __launch_bounds__(C::threads, C::threads <= 256 ? 2 : 1)
    steps_backward_kernel(const __grid_constant__ mixer_task a) {
    __shared__ backward_memory<C> memory;
    extern __shared__ float ring[];
    reverse<C, DELTA, COLUMN> block(a, memory, ring);
    for (int64_t p = pieces_of(a.T) - 1; p >= 0; p--) block.piece(p);
    block.set_state(block.dS, a.d_in);
}

// Calls use(cuts) with the cuts for keys of K elements.
template <typename F> auto with_cuts(int64_t K, F use) {
    if (K <= cuts64::forward::Kp) return use(cuts64());
    if (K <= cuts128::forward::Kp) return use(cuts128());
    if (K <= cuts256::forward::Kp) return use(cuts256());
    return use(cuts1024());
}

// Bytes of shared memory for S before every step of a part; 0 where the device has too little beside the rest.
template <typename C> size_t shared_ring() {
    int device = 0, most = 0;
    if (cudaGetDevice(&device) != cudaSuccess ||
        cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device) != cudaSuccess)
        return 0;
    const size_t ring = C::PART * C::state * sizeof(float);
    return ring + sizeof(backward_memory<C>) <= static_cast<size_t>(most) ? ring : 0;
}

inline fwa_status steps_shape(mixer_task *task) {
    FWA_CHECK(task->K <= cuts1024::forward::Kp, FWA_UNSUPPORTED,
              "K = %lld: the general recurrent kernel of the cuda backend takes keys of at most %d elements; lower "
              "model.head_dim (of a state-space block: state), or run on the CPU backend (run.backend: cpu)",
              static_cast<long long>(task->K), cuts1024::forward::Kp);
    task->Kp = with_cuts(task->K, [](auto c) { return decltype(c)::forward::Kp; });
    task->Vp = fwa_round_up(task->V + task->normalized, slice_columns);
    task->slices = task->Vp / slice_columns;
    return FWA_OK;
}

template <typename C> void plan_backward(mixer_task *task, fwa_bump *scratch) {
    const int64_t blocks = task->B * task->H * task->slices, pairs = fwa_min(task->halo + 1, task->rows);
    task->ring = FWA_TAKE(scratch, float, blocks *C::parts *C::state);
    if (!shared_ring<C>()) task->ring_far = FWA_TAKE(scratch, float, blocks *C::PART *C::state);
    if (pairs > kept_pairs) task->kept = FWA_TAKE(scratch, float, blocks *C::PART *pairs *slice_columns);
}

inline void steps_plan(mixer_task *task, fwa_bump *saved, fwa_bump *scratch, bool backward) {
    const int64_t blocks = task->B * task->H * task->slices, state = task->Kp * slice_columns;
    if (task->save) task->states = FWA_TAKE(saved, float, blocks *pieces_of(task->T) * state);
    if (backward) with_cuts(task->K, [&](auto c) { plan_backward<typename decltype(c)::backward>(task, scratch); });
}

inline unsigned blocks_of(const mixer_task &task) {
    return static_cast<unsigned>(task.B * task.H * task.slices);
}

template <typename C, bool DELTA, bool COLUMN> fwa_status launch_forward(cudaStream_t stream, const mixer_task &task) {
    FWA_LAUNCH((steps_forward_kernel<C, DELTA, COLUMN>), blocks_of(task), C::threads, 0, stream, task);
    return FWA_OK;
}

template <typename C, bool DELTA, bool COLUMN> fwa_status launch_backward(cudaStream_t stream, const mixer_task &task) {
    auto *kernel = steps_backward_kernel<C, DELTA, COLUMN>;
    const size_t ring = shared_ring<C>();
    FWA_CUDA_TRY(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(ring)));
    FWA_LAUNCH(kernel, blocks_of(task), C::threads, ring, stream, task);
    return FWA_OK;
}

template <bool DELTA, bool COLUMN> fwa_status steps_forward(cudaStream_t stream, const mixer_task &task) {
    return with_cuts(
        task.K, [&](auto c) { return launch_forward<typename decltype(c)::forward, DELTA, COLUMN>(stream, task); });
}
template <bool DELTA, bool COLUMN> fwa_status steps_backward(cudaStream_t stream, const mixer_task &task) {
    return with_cuts(
        task.K, [&](auto c) { return launch_backward<typename decltype(c)::backward, DELTA, COLUMN>(stream, task); });
}

template <bool DELTA, bool COLUMN>
inline constexpr core steps_core = {"general recurrent kernel", steps_shape, steps_plan, steps_forward<DELTA, COLUMN>,
                                    steps_backward<DELTA, COLUMN>};

} // namespace fwa
#endif
