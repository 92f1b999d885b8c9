// Reads before the write (chunk_before.cuh). Mapping: a thread a 16-byte piece of a row; the first step by a block a
// head, a thread a column. Cost: q and o are copied once each, and so are their gradients.
#include "kernels/cuda/chunk_before.cuh"

#include "core/shape.h"

namespace {

using namespace fwa;

// Step t reads an empty state.
__device__ bool reads_nothing(const mixer_task &a, int64_t b, int64_t t) {
    return a.drop && a.drop[b * a.T + t];
}

__device__ uint4 *piece_at(const view &v, int64_t b, int64_t t, int64_t h, int64_t piece) {
    return reinterpret_cast<uint4 *>(static_cast<__nv_bfloat16 *>(v.data) + v.offset(b, t, h, piece * 8));
}

// to [B,T,heads,width] = row t + 1 of `from`; zeros at the end, where step t + 1 reads nothing, and without `from`.
__global__ void __launch_bounds__(map_threads)
    forward_rows_kernel(const __grid_constant__ mixer_task a, view from, uint4 *to, int64_t heads, int64_t pieces) {
    each_element(a.B * a.T * heads * pieces, [&](int64_t i) {
        const int64_t piece = i % pieces, h = i / pieces % heads, t = i / pieces / heads % a.T,
                      b = i / pieces / heads / a.T;
        const bool there = from.present() && t + 1 < a.T && !reads_nothing(a, b, t + 1);
        to[i] = there ? *piece_at(from, b, t + 1, h, piece) : make_uint4(0, 0, 0, 0);
    });
}

// Row t of `to` is row t - 1 of `from`, zeros where step t reads nothing; row 0 is written elsewhere.
__global__ void __launch_bounds__(map_threads)
    backward_rows_kernel(const __grid_constant__ mixer_task a, const uint4 *from, view to, int64_t heads,
                         int64_t pieces) {
    each_element(a.B * (a.T - 1) * heads * pieces, [&](int64_t i) {
        const int64_t piece = i % pieces, h = i / pieces % heads, t = i / pieces / heads % (a.T - 1) + 1,
                      b = i / pieces / heads / (a.T - 1);
        const uint4 row = from[((b * a.T + t - 1) * heads + h) * pieces + piece];
        *piece_at(to, b, t, h, piece) = reads_nothing(a, b, t) ? make_uint4(0, 0, 0, 0) : row;
    });
}

// o_0 = S_0^T q_0. A block a value head, a thread a column of V.
__global__ void __launch_bounds__(128) first_read_kernel(const __grid_constant__ mixer_task a) {
    const int64_t b = blockIdx.x / a.H, h = blockIdx.x % a.H, v = threadIdx.x;
    if (v >= a.V) return;
    float sum = 0.0f;
    if (a.in.S.present() && !reads_nothing(a, b, 0))
        for (int64_t k = 0; k < a.K; k++) sum += a.in.S.get(b, h, k, v) * a.q.get(b, 0, h / a.group, k);
    a.o.set(sum, b, 0, h, v);
}

// dq_0 = sum over value heads of S_0 dO_0, and dS_0 += q_0 dO_0^T. A block a query head, a thread a row of K.
__global__ void __launch_bounds__(128) first_read_grads_kernel(const __grid_constant__ mixer_task a) {
    const int64_t b = blockIdx.x / a.Hq, hq = blockIdx.x % a.Hq, k = threadIdx.x;
    if (k >= a.K) return;
    const bool reads = a.d_o.present() && !reads_nothing(a, b, 0);
    const float q = a.q.get(b, 0, hq, k);
    float sum = 0.0f;
    for (int64_t h = hq * a.group; reads && h < (hq + 1) * a.group; h++)
        for (int64_t v = 0; v < a.V; v++) {
            const float d_o = a.d_o.get(b, 0, h, v);
            if (a.in.S.present()) sum += a.in.S.get(b, h, k, v) * d_o;
            if (a.d_in.S.present()) a.d_in.S.set(a.d_in.S.get(b, h, k, v) + q * d_o, b, h, k, v);
        }
    if (a.dq.present()) a.dq.set(sum, b, 0, hq, k);
}

chunk_view dense(__nv_bfloat16 *data, int64_t T, int64_t heads, int64_t width) {
    return {data, T * heads * width, heads * width, width};
}

fwa_status forward_rows(cudaStream_t stream, const mixer_task &a, const view &from, __nv_bfloat16 *to, int64_t heads,
                        int64_t width) {
    FWA_LAUNCH(forward_rows_kernel, element_blocks(a.B * a.T * heads * (width / 8)), map_threads, 0, stream, a, from,
               reinterpret_cast<uint4 *>(to), heads, width / 8);
    return FWA_OK;
}

fwa_status backward_rows(cudaStream_t stream, const mixer_task &a, const __nv_bfloat16 *from, const view &to,
                         int64_t heads, int64_t width) {
    if (a.T == 1 || !to.present()) return FWA_OK;
    FWA_LAUNCH(backward_rows_kernel, element_blocks(a.B * (a.T - 1) * heads * (width / 8)), map_threads, 0, stream, a,
               reinterpret_cast<const uint4 *>(from), to, heads, width / 8);
    return FWA_OK;
}

} // namespace

namespace fwa {

void plan_moved_reads(const mixer_task &a, bool backward, fwa_bump *scratch, moved_reads *to) {
    *to = {};
    if (!a.before) return;
    to->q = FWA_TAKE(scratch, __nv_bfloat16, a.B * a.T * a.Hq * a.K);
    to->o = FWA_TAKE(scratch, __nv_bfloat16, a.B * a.T * a.H * a.V);
    if (backward) to->dq = FWA_TAKE(scratch, __nv_bfloat16, a.B * a.T * a.Hq * a.K);
}

fwa_status move_reads(cudaStream_t stream, const mixer_task &a, const moved_reads &to, chunk_task *task) {
    if (!to.q) return FWA_OK;
    FWA_TRY(forward_rows(stream, a, a.q, to.q, a.Hq, a.K));
    task->q = dense(to.q, a.T, a.Hq, a.K);
    if (!to.dq) {
        task->o = dense(to.o, a.T, a.H, a.V);
        return FWA_OK;
    }
    FWA_TRY(forward_rows(stream, a, a.d_o, to.o, a.H, a.V));
    task->d_o = dense(to.o, a.T, a.H, a.V);
    task->dq = dense(to.dq, a.T, a.Hq, a.K);
    return FWA_OK;
}

fwa_status return_reads(cudaStream_t stream, const mixer_task &a, const moved_reads &from) {
    if (!from.q) return FWA_OK;
    FWA_TRY(backward_rows(stream, a, from.o, a.o, a.H, a.V));
    FWA_LAUNCH(first_read_kernel, static_cast<unsigned>(a.B * a.H), 128, 0, stream, a);
    return FWA_OK;
}

fwa_status return_first_grads(cudaStream_t stream, const mixer_task &a, const moved_reads &from) {
    if (!from.q) return FWA_OK;
    FWA_LAUNCH(first_read_grads_kernel, static_cast<unsigned>(a.B * a.Hq), 128, 0, stream, a);
    return FWA_OK;
}

fwa_status return_read_grads(cudaStream_t stream, const mixer_task &a, const moved_reads &from) {
    return from.q ? backward_rows(stream, a, from.dq, a.dq, a.Hq, a.K) : FWA_OK;
}

} // namespace fwa
