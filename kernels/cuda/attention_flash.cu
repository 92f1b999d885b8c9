// Flash attention on own kernels as an entry of the list of attention kernels: heads of 64 or 128, any length. The same
// bits in every run.
#include "core/shape.h"
#include "kernels/cuda/attention_flash.cuh"

namespace {

using namespace fwa;

flash::rows rows_of(fwa_tensor t) {
    return {static_cast<__nv_bfloat16 *>(t.data), t.stride[0], t.stride[1], t.stride[2]};
}

int64_t padded_of(const fwa_mixer_shape &shape) {
    return fwa_round_up(shape.T, flash::block_rows);
}

const char *refusal(fwa_stream *stream, const attention_task &task, bool backward, size_t *scratch) {
    const fwa_mixer_shape &s = task.shape;
    if (task.reset.ndim > 0) return "documents";
    if (s.K != s.V || (s.K != 64 && s.K != 128)) return "heads are of another size than K = V = 64 or 128";
    const int head_size = static_cast<int>(s.K);
    if (stream->shared_bytes < (backward ? flash::backward_bytes(head_size) : flash::forward_bytes(head_size)))
        return "the GPU has too little shared memory";
    if (s.B * s.H * padded_of(s) / flash::block_rows > INT32_MAX || s.T > INT32_MAX / 2) return "too many tokens";
    if (backward) *scratch = static_cast<size_t>(s.B * s.H * padded_of(s)) * sizeof(float2);
    return nullptr;
}

flash::task task_of(const attention_task &call) {
    const fwa_mixer_shape &s = call.shape;
    flash::task a = {};
    a.B = static_cast<int>(s.B), a.T = static_cast<int>(s.T);
    a.Hq = static_cast<int>(s.Hq), a.H = static_cast<int>(s.H);
    a.padded = static_cast<int>(padded_of(s));
    a.scale = call.scale;
    a.q = rows_of(call.q), a.k = rows_of(call.k), a.v = rows_of(call.v), a.o = rows_of(call.o);
    return a;
}

fwa_status forward(fwa_stream *stream, const attention_task &call) {
    flash::task a = task_of(call);
    a.lse = call.lse;
    return flash::forward(stream, a, static_cast<int>(call.shape.K));
}

fwa_status backward(fwa_stream *stream, const attention_task &call) {
    flash::task a = task_of(call);
    a.lse = call.lse;
    a.sums = static_cast<float2 *>(call.scratch);
    a.d_o = rows_of(call.d_o), a.dq = rows_of(call.dq), a.dk = rows_of(call.dk), a.dv = rows_of(call.dv);
    return flash::backward(stream, a, static_cast<int>(call.shape.K));
}

} // namespace

namespace fwa {
const attention_kernel attention_flash = {"flash", refusal, forward, backward};
}
