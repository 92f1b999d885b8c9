// Flash attention on own kernels as an entry of the list of attention kernels: heads of 64 or 128, any length. The same
// bits in every run.
#include "core/shape.h"
#include "kernels/cpu/bump.h"
#include "kernels/cuda/attention_flash.cuh"

namespace {

using namespace fwa;

flash::rows rows_of(fwa_tensor t) {
    return {static_cast<__nv_bfloat16 *>(t.data), t.stride[0], t.stride[1], t.stride[2]};
}

int64_t padded_of(const fwa_mixer_shape &shape) {
    return fwa_round_up(shape.T, flash::block_rows);
}

// What scratch holds.
void plan(const attention_task &call, bool backward, fwa_bump *scratch, flash::task *a) {
    const fwa_mixer_shape &s = call.shape;
    if (backward) a->sums = FWA_TAKE(scratch, float2, s.B * s.H * padded_of(s));
    if (call.reset.ndim > 0) a->first = FWA_TAKE(scratch, int32_t, s.B * s.T);
}

int64_t earlier_rows(const attention_task &call) {
    return fwa_tail_rows(call.earlier_k);
}

const char *refusal(fwa_stream *stream, const attention_task &task, bool backward, size_t *scratch) {
    const fwa_mixer_shape &s = task.shape;
    if (s.K != s.V || (s.K != 64 && s.K != 128)) return "heads are of another size than K = V = 64 or 128";
    const int head_size = static_cast<int>(s.K);
    if (stream->shared_bytes < (backward ? flash::backward_bytes(head_size) : flash::forward_bytes(head_size)))
        return "the GPU has too little shared memory";
    const int64_t rows = padded_of(s) + fwa_round_up(earlier_rows(task), flash::block_rows);
    if (s.B * s.H * rows / flash::block_rows > INT32_MAX || rows > INT32_MAX / 4) return "too many tokens";
    fwa_bump bump = {};
    flash::task a = {};
    plan(task, backward, &bump, &a);
    *scratch = bump.used;
    return nullptr;
}

// Document starts of all sequences, [B,rows] u8; null: none.
struct starts {
    const uint8_t *data;
    int64_t b, t; // strides
    __device__ bool at(int sequence, int step) const {
        return data && data[sequence * b + step * t];
    }
};

starts starts_of(fwa_tensor reset) {
    return {static_cast<const uint8_t *>(reset.data), reset.stride[0], reset.stride[1]};
}

// first[b,t]: the number of the last key up to t at which a document begins. A block a sequence; a thread looks through
// neighbouring numbers, then over what the threads before it found.
__global__ void __launch_bounds__(1024)
    flash_first_kernel(const flash::task a, const starts earlier, const starts own) {
    __shared__ int32_t last[1024];
    const int lane = static_cast<int>(threadIdx.x), b = static_cast<int>(blockIdx.x), count = a.before + a.T;
    const int share = (count + 1023) / 1024, begin = min(lane * share, count), end = min(begin + share, count);
    const auto starts_at = [&](int j) { return j < a.n ? earlier.at(b, j) : j >= a.before && own.at(b, j - a.before); };
    int32_t start = 0;
    for (int j = begin; j < end; j++)
        if (starts_at(j)) start = j;
    last[lane] = start;
    for (int reach = 1; reach < 1024; reach *= 2) {
        __syncthreads();
        const int32_t other = lane >= reach ? last[lane - reach] : 0;
        __syncthreads();
        last[lane] = max(last[lane], other);
    }
    __syncthreads();
    start = lane > 0 ? last[lane - 1] : 0;
    for (int j = begin; j < end; j++) {
        if (starts_at(j)) start = j;
        if (j >= a.before) a.first[static_cast<int64_t>(b) * a.T + j - a.before] = start;
    }
}

fwa_status bind(fwa_stream *stream, const attention_task &call, bool backward, flash::task *a) {
    const fwa_mixer_shape &s = call.shape;
    fwa_bump scratch = {static_cast<char *>(call.scratch), 0};
    *a = {};
    a->B = static_cast<int>(s.B), a->T = static_cast<int>(s.T);
    a->Hq = static_cast<int>(s.Hq), a->H = static_cast<int>(s.H), a->group = static_cast<int>(s.H / s.Hq);
    a->padded = static_cast<int>(padded_of(s));
    a->n = static_cast<int>(earlier_rows(call));
    a->before = static_cast<int>(fwa_round_up(a->n, flash::block_rows));
    a->scale = call.scale;
    a->q = rows_of(call.q), a->k = rows_of(call.k), a->v = rows_of(call.v), a->o = rows_of(call.o);
    a->earlier_k = rows_of(call.earlier_k), a->earlier_v = rows_of(call.earlier_v);
    a->lse = call.lse;
    plan(call, backward, &scratch, a);
    if (!a->first) return FWA_OK;
    flash_first_kernel<<<static_cast<unsigned>(s.B), 1024, 0, stream->handle>>>(*a, starts_of(call.earlier_reset),
                                                                                starts_of(call.reset));
    FWA_CUDA_TRY(cudaGetLastError());
    return FWA_OK;
}

fwa_status forward(fwa_stream *stream, const attention_task &call) {
    flash::task a;
    FWA_TRY(bind(stream, call, false, &a));
    return flash::forward(stream, a, static_cast<int>(call.shape.K));
}

fwa_status backward(fwa_stream *stream, const attention_task &call) {
    flash::task a;
    FWA_TRY(bind(stream, call, true, &a));
    a.d_o = rows_of(call.d_o), a.dq = rows_of(call.dq), a.dk = rows_of(call.dk), a.dv = rows_of(call.dv);
    a.d_earlier_k = rows_of(call.d_earlier_k), a.d_earlier_v = rows_of(call.d_earlier_v);
    return flash::backward(stream, a, static_cast<int>(call.shape.K));
}

} // namespace

namespace fwa {
const attention_kernel attention_flash = {"flash", refusal, forward, backward};
}
