// Moves between the tensors of a call and the dense arrays of a task (moves.cuh).
//
// Mapping: a warp a row, lanes along it. Every output element is written by one lane from sums in a fixed order: over
// slices, then value heads. Cost: each array is read or written once.
#include "kernels/cuda/moves.cuh"

namespace {

using namespace fwa;

__device__ int lane_id() {
    return static_cast<int>(threadIdx.x % 32);
}

// First pair of the document of each step, then first and drop: a running maximum over blocks of steps. A block a
// sequence.
__global__ void __launch_bounds__(map_threads) windows_kernel(const __grid_constant__ mixer_task a) {
    __shared__ int32_t starts[map_threads];
    const int64_t b = blockIdx.x;
    const int lane = static_cast<int>(threadIdx.x), shift = a.shifted ? 1 : 0;
    int32_t before = static_cast<int32_t>(a.shifted && !a.resumed ? a.n + 1 : 0);
    if (a.tail_reset) {
        starts[lane] = 0;
        for (int64_t j = lane; j < a.n; j += map_threads)
            if (a.tail_reset[b * a.tail_reset_stride + j]) starts[lane] = static_cast<int32_t>(j + shift);
        __syncthreads();
        for (int i = 0; i < map_threads; i++) before = max(before, starts[i]);
        __syncthreads();
    }
    for (int64_t t0 = 0; t0 < a.T; t0 += map_threads) {
        const int64_t t = t0 + lane;
        const bool drop = t < a.T && a.reset && a.reset[b * a.reset_stride + t];
        starts[lane] = drop ? static_cast<int32_t>(a.n + t + shift) : before;
        __syncthreads();
        for (int reach = 1; reach < map_threads; reach *= 2) {
            const int32_t other = lane >= reach ? starts[lane - reach] : 0;
            __syncthreads();
            starts[lane] = max(starts[lane], other);
            __syncthreads();
        }
        if (t < a.T) {
            a.drop[b * a.T + t] = drop;
            a.first[b * a.T + t] = max(starts[lane], static_cast<int32_t>(max(a.n + t - a.halo, int64_t{0})));
        }
        before = starts[map_threads - 1];
        __syncthreads();
    }
}

__global__ void __launch_bounds__(map_threads) gather_keys_kernel(const __grid_constant__ mixer_task a) {
    each_row(a.B * a.Hq * a.rows, [&](int64_t row) {
        const int64_t j = row % a.rows, hq = row / a.rows % a.Hq, b = row / a.rows / a.Hq, t = j - a.n;
        const bool empty = a.empty_row(b, j);
        for (int64_t k = lane_id(); k < a.Kp; k += 32) {
            a.xs[row * a.Kp + k] = k < a.K && !empty ? a.key_of_pair(b, hq, j, k) : 0.0f;
            if (t >= 0 && a.qs) a.qs[((b * a.Hq + hq) * a.T + t) * a.Kp + k] = k < a.K ? a.q.get(b, t, hq, k) : 0.0f;
        }
    });
}

__global__ void __launch_bounds__(map_threads) gather_values_kernel(const __grid_constant__ mixer_task a) {
    each_row(a.B * a.H * a.rows, [&](int64_t row) {
        const int64_t j = row % a.rows, h = row / a.rows % a.H, b = row / a.rows / a.H;
        for (int64_t c = lane_id(); c < a.Vp; c += 32) {
            float v = a.normalized && c == a.V ? 1.0f : 0.0f;
            if (c < a.V) v = j < a.n ? a.in.tail_v.get(b, j, h, c) : a.v.get(b, j - a.n, h, c);
            a.vs[row * a.Vp + c] = v;
        }
    });
}

// o = os, or os / (z^T q + eps_attn)
__global__ void __launch_bounds__(map_threads) scatter_values_kernel(const __grid_constant__ mixer_task a) {
    each_row(a.B * a.H * a.T, [&](int64_t row) {
        const int64_t t = row % a.T, h = row / a.T % a.H, b = row / a.T / a.H;
        const float *o = a.os + row * a.Vp;
        const float inverse = a.normalized ? 1.0f / (o[a.V] + static_cast<float>(a.options.eps_attn)) : 1.0f;
        for (int64_t c = lane_id(); c < a.V; c += 32) a.o.set(o[c] * inverse, b, t, h, c);
    });
}

// The last rows of x and v, and the last key.
__global__ void __launch_bounds__(map_threads) scatter_tail_kernel(const __grid_constant__ mixer_task a) {
    const int64_t leaving = a.out.tail;
    each_row(a.B * a.H * (leaving + 1), [&](int64_t row) {
        const int64_t i = row % (leaving + 1), h = row / (leaving + 1) % a.H, b = row / (leaving + 1) / a.H;
        const int64_t hq = h / a.group, j = a.rows - leaving + i;
        const bool keys = h % a.group == 0;
        if (i == leaving) {
            for (int64_t k = lane_id(); keys && a.out.k_last.present() && k < a.K; k += 32)
                a.out.k_last.set(a.k.get(b, a.T - 1, hq, k), b, hq, k);
            return;
        }
        for (int64_t k = lane_id(); keys && k < a.K; k += 32) a.out.tail_x.set(a.x_row(b, h, j)[k], b, i, hq, k);
        for (int64_t c = lane_id(); c < a.V; c += 32)
            a.out.tail_v.set(a.vs[((b * a.H + h) * a.rows + j) * a.Vp + c], b, i, h, c);
    });
}

__global__ void __launch_bounds__(map_threads) gather_grads_kernel(const __grid_constant__ mixer_task a) {
    each_row(a.B * a.H * a.T, [&](int64_t row) {
        const int64_t t = row % a.T, h = row / a.T % a.H, b = row / a.T / a.H;
        const float *o = a.os + row * a.Vp;
        float *to = a.d_os + row * a.Vp, inverse = 1.0f, along = 0.0f;
        if (a.normalized) inverse = 1.0f / (o[a.V] + static_cast<float>(a.options.eps_attn));
        for (int64_t c = lane_id(); c < a.Vp; c += 32) {
            const float d = c < a.V && a.d_o.present() ? a.d_o.get(b, t, h, c) * inverse : 0.0f;
            to[c] = d;
            if (a.normalized && c < a.V) along += d * o[c];
        }
        if (!a.normalized) return;
        along = warp_sum(along);
        if (lane_id() == a.V % 32) to[a.V] = -along * inverse;
    });
}

__global__ void __launch_bounds__(map_threads) scatter_value_grads_kernel(const __grid_constant__ mixer_task a) {
    each_row(a.B * a.H * a.rows, [&](int64_t row) {
        const int64_t j = row % a.rows, h = row / a.rows % a.H, b = row / a.rows / a.H, leaving = a.d_out.tail;
        const view &to = j < a.n ? a.d_in.tail_v : a.dv;
        if (!to.present()) return;
        for (int64_t c = lane_id(); c < a.V; c += 32) {
            float d = a.dvs[row * a.Vp + c];
            if (j >= a.rows - leaving && a.d_out.tail_v.present())
                d += a.d_out.tail_v.get(b, j - (a.rows - leaving), h, c);
            to.set(d, b, j < a.n ? j : j - a.n, h, c);
        }
    });
}

// Sum over the value heads of hq and their slices of row `row` of d [B,H,slices,count,Kp].
__device__ float head_sum(const mixer_task &a, const float *d, int64_t count, int64_t b, int64_t hq, int64_t row,
                          int64_t k) {
    float sum = 0.0f;
    const int64_t begin = (b * a.H + hq * a.group) * a.slices;
    for (int64_t part = begin; part < begin + a.group * a.slices; part++) sum += d[(part * count + row) * a.Kp + k];
    return sum;
}

__global__ void __launch_bounds__(map_threads) scatter_query_grads_kernel(const __grid_constant__ mixer_task a) {
    each_row(a.B * a.Hq * a.T, [&](int64_t row) {
        const int64_t t = row % a.T, hq = row / a.T % a.Hq, b = row / a.T / a.Hq;
        for (int64_t k = lane_id(); k < a.K; k += 32) a.dq.set(head_sum(a, a.dqs, a.T, b, hq, t, k), b, t, hq, k);
    });
}

// Steps whose windows may hold row j: [*begin, *end).
__device__ void steps_of_row(const mixer_task &a, int64_t j, int64_t *begin, int64_t *end) {
    *begin = max(j - a.n, int64_t{0});
    *end = min(a.T, j - a.n + a.halo + 1);
}

// What the mean energy adds to dx_j: this times x_j.
__device__ float mean_pull(const mixer_task &a, int64_t b, int64_t hq, int64_t j) {
    int64_t begin, end;
    double pull = 0;
    steps_of_row(a, j, &begin, &end);
    for (int64_t t = begin; t < end; t++)
        if (a.first_of(b, t) <= j) pull += a.pulls[(b * a.Hq + hq) * a.T + t];
    return static_cast<float>(2 * pull);
}

// Element k of what the largest eigenvalue adds to dx_j: sum_t (2 dE_t / B_t) (z_t . x_j) z_t. All lanes call it.
__device__ float top_pull(const mixer_task &a, int64_t b, int64_t hq, int64_t j, int64_t k) {
    int64_t begin, end;
    float pull = 0.0f;
    const float *x = a.xs + ((b * a.Hq + hq) * a.rows + j) * a.Kp;
    steps_of_row(a, j, &begin, &end);
    for (int64_t t = begin; t < end; t++) {
        const int64_t at = (b * a.Hq + hq) * a.T + t;
        if (a.first_of(b, t) > j || a.pulls[at] == 0) continue;
        const float *z = a.z + at * a.Kp;
        float along = 0.0f;
        for (int64_t i = lane_id(); i < a.Kp; i += 32) along += z[i] * x[i];
        along = warp_sum(along);
        if (k < a.K) pull += static_cast<float>(2 * a.pulls[at]) * along * z[k];
    }
    return pull;
}

// Element k of dx_j. All lanes of a warp call it with the same j.
__device__ float key_grad(const mixer_task &a, int64_t b, int64_t hq, int64_t j, int64_t k) {
    const int64_t leaving = a.rows - a.d_out.tail;
    const float extra = a.energies == energy_kind::top ? top_pull(a, b, hq, j, k) : 0.0f;
    if (k >= a.K) return 0.0f;
    float d = extra + head_sum(a, a.dxs, a.rows, b, hq, j, k);
    if (a.energies == energy_kind::mean) d += mean_pull(a, b, hq, j) * a.xs[((b * a.Hq + hq) * a.rows + j) * a.Kp + k];
    if (j >= leaving && a.d_out.tail_x.present()) d += a.d_out.tail_x.get(b, j - leaving, hq, k);
    return d;
}

// Destinations of a query/key head, in order: n rows of the tail, the last key before the segment, T keys.
__global__ void __launch_bounds__(map_threads) scatter_key_grads_kernel(const __grid_constant__ mixer_task a) {
    const int64_t count = a.n + 1 + a.T;
    each_row(a.B * a.Hq * count, [&](int64_t row) {
        const int64_t i = row % count, hq = row / count % a.Hq, b = row / count / a.Hq, t = i - a.n - 1;
        const bool tail = i < a.n, last = i == a.n;
        const view &to = tail ? a.d_in.tail_x : last ? a.d_in.k_last : a.dk;
        if (!to.present()) return;
        const int64_t step = a.shifted ? t + 1 : t; // whose row the key became
        const bool lost = !tail && (step < 0 || step >= a.T || a.pairs(b, step) <= 0);
        for (int64_t k0 = 0; k0 < a.K; k0 += 32) {
            const int64_t k = k0 + lane_id();
            float d = lost ? 0.0f : key_grad(a, b, hq, tail ? i : a.n + step, k);
            if (k >= a.K) continue;
            if (t == a.T - 1 && a.d_out.k_last.present()) d += a.d_out.k_last.get(b, hq, k);
            if (tail)
                to.set(d, b, i, hq, k);
            else if (last)
                to.set(d, b, hq, k);
            else
                to.set(d, b, t, hq, k);
        }
    });
}

} // namespace

namespace fwa {

fwa_status find_windows(cudaStream_t stream, const mixer_task &task) {
    FWA_LAUNCH(windows_kernel, static_cast<unsigned>(task.B), map_threads, 0, stream, task);
    return FWA_OK;
}

fwa_status gather_keys(cudaStream_t stream, const mixer_task &task) {
    FWA_TRY(find_windows(stream, task));
    FWA_LAUNCH(gather_keys_kernel, row_blocks(task.B * task.Hq * task.rows), map_threads, 0, stream, task);
    return FWA_OK;
}

fwa_status gather_inputs(cudaStream_t stream, const mixer_task &task) {
    FWA_TRY(gather_keys(stream, task));
    FWA_LAUNCH(gather_values_kernel, row_blocks(task.B * task.H * task.rows), map_threads, 0, stream, task);
    return FWA_OK;
}

fwa_status scatter_outputs(cudaStream_t stream, const mixer_task &task) {
    FWA_LAUNCH(scatter_values_kernel, row_blocks(task.B * task.H * task.T), map_threads, 0, stream, task);
    if (task.out.tail > 0 || task.out.k_last.present())
        FWA_LAUNCH(scatter_tail_kernel, row_blocks(task.B * task.H * (task.out.tail + 1)), map_threads, 0, stream,
                   task);
    return FWA_OK;
}

fwa_status gather_grads(cudaStream_t stream, const mixer_task &task) {
    FWA_LAUNCH(gather_grads_kernel, row_blocks(task.B * task.H * task.T), map_threads, 0, stream, task);
    return FWA_OK;
}

fwa_status scatter_grads(cudaStream_t stream, const mixer_task &task) {
    if (task.dv.present() || task.d_in.tail_v.present())
        FWA_LAUNCH(scatter_value_grads_kernel, row_blocks(task.B * task.H * task.rows), map_threads, 0, stream, task);
    if (task.dq.present())
        FWA_LAUNCH(scatter_query_grads_kernel, row_blocks(task.B * task.Hq * task.T), map_threads, 0, stream, task);
    if (task.dk.present() || task.d_in.k_last.present() || task.d_in.tail_x.present())
        FWA_LAUNCH(scatter_key_grads_kernel, row_blocks(task.B * task.Hq * (task.n + 1 + task.T)), map_threads, 0,
                   stream, task);
    return FWA_OK;
}

} // namespace fwa
