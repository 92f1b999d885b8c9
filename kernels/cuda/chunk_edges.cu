// Rows at the edges of chunks and sequences (chunk_edges.cuh). Mapping: a warp a row, lanes along it.
#include "kernels/cuda/chunk_edges.cuh"

#include "kernels/cuda/chunk_rate.cuh"

namespace {

using namespace fwa;

__device__ int lane_id() {
    return static_cast<int>(threadIdx.x % 32);
}

// Element k of the row of x that step t owns, t < 0 in the tail; 0 for a step without a pair.
__device__ float pair_key(const mixer_task &a, int64_t b, int64_t hq, int64_t t, int64_t k) {
    if (t < 0) return t + a.n >= 0 ? a.in.tail_x.get(b, t + a.n, hq, k) : 0.0f;
    if (window_pairs(a, b, t) <= 0) return 0.0f;
    if (!a.shifted) return a.k.get(b, t, hq, k);
    return t > 0 ? a.k.get(b, t - 1, hq, k) : a.in.k_last.get(b, hq, k);
}
__device__ float pair_value(const mixer_task &a, int64_t b, int64_t h, int64_t t, int64_t v) {
    if (t < 0) return t + a.n >= 0 ? a.in.tail_v.get(b, t + a.n, h, v) : 0.0f;
    return a.v.get(b, t, h, v);
}

__global__ void __launch_bounds__(map_threads)
    first_pairs_kernel(const __grid_constant__ mixer_task a, int64_t halo, __nv_bfloat16 *x, __nv_bfloat16 *v) {
    const int64_t count = halo + 1;
    each_row(a.B * a.H * count, [&](int64_t row) {
        const int64_t i = row % count, h = row / count % a.H, b = row / count / a.H, t = i - halo, hq = h / a.group;
        if (h % a.group == 0)
            for (int64_t k = lane_id(); k < a.K; k += 32)
                x[((b * a.Hq + hq) * count + i) * a.K + k] = from_float<__nv_bfloat16>(pair_key(a, b, hq, t, k));
        for (int64_t c = lane_id(); c < a.V; c += 32)
            v[((b * a.H + h) * count + i) * a.V + c] = from_float<__nv_bfloat16>(pair_value(a, b, h, t, c));
    });
}

__global__ void __launch_bounds__(map_threads) last_pairs_kernel(const __grid_constant__ mixer_task a) {
    const int64_t leaving = a.out.tail, count = leaving + 1;
    each_row(a.B * a.H * count, [&](int64_t row) {
        const int64_t i = row % count, h = row / count % a.H, b = row / count / a.H, t = a.T - leaving + i;
        const int64_t hq = h / a.group;
        const bool keys = h % a.group == 0;
        if (i == leaving) {
            for (int64_t k = lane_id(); keys && a.out.k_last.present() && k < a.K; k += 32)
                a.out.k_last.set(a.k.get(b, a.T - 1, hq, k), b, hq, k);
            return;
        }
        for (int64_t k = lane_id(); keys && k < a.K; k += 32) a.out.tail_x.set(pair_key(a, b, hq, t, k), b, i, hq, k);
        for (int64_t c = lane_id(); c < a.V; c += 32) a.out.tail_v.set(pair_value(a, b, h, t, c), b, i, h, c);
    });
}

// Row `row` of tile c of edge_x or edge_v, `width` wide; head: of edges.
__device__ const float *edge(const float *edges, const chunk_task &a, int64_t head, int64_t c, int64_t row,
                             int64_t width) {
    return edges + ((head * a.chunks + c) * (2 * a.halo + 1) + row) * width;
}

// A row of `width` elements, 64 or 128, as bf16 from its two parts.
__device__ void join_row(__nv_bfloat16 *to, const float *one, const float *other, int64_t width) {
    const int at = lane_id() * 4;
    if (at >= width) return;
    const float4 x = *reinterpret_cast<const float4 *>(one + at), y = *reinterpret_cast<const float4 *>(other + at);
    *reinterpret_cast<uint2 *>(to + at) = make_uint2(bf16_pair(x.x + y.x, x.y + y.y), bf16_pair(x.z + y.z, x.w + y.w));
}

// Row i of the tile of chunk c and row 64 - halo + i of the tile before are one pair.
__global__ void __launch_bounds__(map_threads)
    join_rows_kernel(const __grid_constant__ mixer_task a, const __grid_constant__ chunk_task task) {
    const int64_t halo = task.halo, cuts = task.chunks - 1;
    each_row(a.B * a.H * cuts * halo, [&](int64_t row) {
        int64_t i, c, h, b, hq, of_key;
        divide(row, halo, &row, &i), divide(row, cuts, &row, &c), divide(row, a.H, &b, &h);
        divide(h, a.group, &hq, &of_key);
        const int64_t t = tile_step(task, static_cast<int>(++c), static_cast<int>(i)), other = halo + 1 + i;
        if (of_key == 0 && task.dk.data) {
            const int64_t key = b * a.Hq + hq;
            join_row(task.dk.row(b, t - task.shift, hq), edge(task.edge_x, task, key, c, i, a.K),
                     edge(task.edge_x, task, key, c - 1, other, a.K), a.K);
        }
        if (task.dv.data)
            join_row(task.dv.row(b, t, h), edge(task.edge_v, task, row, c, i, a.V),
                     edge(task.edge_v, task, row, c - 1, other, a.V), a.V);
    });
}

// What arrives at the leaving tail for step t; 0 where its pair does not leave.
__device__ float arriving(const mixer_task &a, const view &tail, int64_t b, int64_t t, int64_t h, int64_t k) {
    const int64_t i = t - (a.T - a.d_out.tail);
    return i >= 0 && t < a.T && tail.present() ? tail.get(b, i, h, k) : 0.0f;
}

// Rows of a query/key head: n of the tail, the last key, then the last leaving + 1 keys.
__device__ void key_state_row(const mixer_task &a, const chunk_task &task, int64_t b, int64_t hq, int64_t i) {
    const int64_t key = b * a.Hq + hq;
    for (int64_t k = lane_id(); k < a.K; k += 32) {
        if (i < a.n) {
            if (!a.d_in.tail_x.present()) return;
            const float d = edge(task.edge_x, task, key, 0, task.halo - a.n + i, a.K)[k];
            a.d_in.tail_x.set(d + arriving(a, a.d_out.tail_x, b, i - a.n, hq, k), b, i, hq, k);
        } else if (i == a.n) {
            if (!a.d_in.k_last.present()) return;
            const bool used = a.shifted && window_pairs(a, b, 0) > 0;
            float d = 0.0f;
            if (used) d = edge(task.edge_x, task, key, 0, task.halo, a.K)[k] + arriving(a, a.d_out.tail_x, b, 0, hq, k);
            a.d_in.k_last.set(d, b, hq, k);
        } else {
            const int64_t t = a.T - 1 - (i - a.n - 1), step = t + task.shift;
            if (t < 0 || !a.dk.present()) return;
            float d = a.dk.get(b, t, hq, k);
            if (step < a.T && window_pairs(a, b, step) > 0) d += arriving(a, a.d_out.tail_x, b, step, hq, k);
            if (t == a.T - 1 && a.d_out.k_last.present()) d += a.d_out.k_last.get(b, hq, k);
            a.dk.set(d, b, t, hq, k);
        }
    }
}

// Rows of a value head: n of the tail, then the last ones that leave.
__device__ void value_state_row(const mixer_task &a, const chunk_task &task, int64_t b, int64_t h, int64_t i) {
    for (int64_t v = lane_id(); v < a.V; v += 32) {
        if (i < a.n) {
            if (!a.d_in.tail_v.present()) return;
            const float d = edge(task.edge_v, task, b * a.H + h, 0, task.halo - a.n + i, a.V)[v];
            a.d_in.tail_v.set(d + arriving(a, a.d_out.tail_v, b, i - a.n, h, v), b, i, h, v);
        } else {
            const int64_t t = a.T - 1 - (i - a.n);
            if (t < 0 || i - a.n >= a.d_out.tail || !a.dv.present()) return;
            a.dv.set(a.dv.get(b, t, h, v) + arriving(a, a.d_out.tail_v, b, t, h, v), b, t, h, v);
        }
    }
}

__global__ void __launch_bounds__(map_threads)
    state_grads_kernel(const __grid_constant__ mixer_task a, const __grid_constant__ chunk_task task) {
    const int64_t count = a.n + a.d_out.tail + 2;
    each_row(a.B * a.H * count, [&](int64_t row) {
        const int64_t i = row % count, h = row / count % a.H, b = row / count / a.H;
        if (h % a.group == 0) key_state_row(a, task, b, h / a.group, i);
        value_state_row(a, task, b, h, i);
    });
}

} // namespace

namespace fwa {

fwa_status chunk_first_pairs(cudaStream_t stream, const mixer_task &a, const chunk_task &task) {
    if (!task.first_x) return FWA_OK;
    FWA_LAUNCH(first_pairs_kernel, row_blocks(a.B * a.H * (task.halo + 1)), map_threads, 0, stream, a, task.halo,
               const_cast<__nv_bfloat16 *>(task.first_x), const_cast<__nv_bfloat16 *>(task.first_v));
    return FWA_OK;
}

fwa_status chunk_last_pairs(cudaStream_t stream, const mixer_task &a, const chunk_task &) {
    if (!a.out.k_last.present() && a.out.tail == 0) return FWA_OK;
    FWA_LAUNCH(last_pairs_kernel, row_blocks(a.B * a.H * (a.out.tail + 1)), map_threads, 0, stream, a);
    return FWA_OK;
}

fwa_status chunk_join_rows(cudaStream_t stream, const mixer_task &a, const chunk_task &task) {
    if (task.halo == 0 || task.chunks == 1) return FWA_OK;
    FWA_LAUNCH(join_rows_kernel, row_blocks(a.B * a.H * (task.chunks - 1) * task.halo), map_threads, 0, stream, a,
               task);
    return FWA_OK;
}

fwa_status chunk_state_grads(cudaStream_t stream, const mixer_task &a, const chunk_task &task) {
    const bool in = a.d_in.k_last.present() || a.d_in.tail > 0, out = a.d_out.k_last.present() || a.d_out.tail > 0;
    if (!in && !out) return FWA_OK;
    FWA_LAUNCH(state_grads_kernel, row_blocks(a.B * a.H * (a.n + a.d_out.tail + 2)), map_threads, 0, stream, a, task);
    return FWA_OK;
}

} // namespace fwa
