// Causal softmax attention on CUDA. A pass in bf16 and chunk form, with no cache or with one in bf16 that comes in,
// runs on the first of `kernels` that takes it, one token a sequence in the recurrent form on attention_decode.cu, all
// else on the attention core, which is general and fp32. The choice depends on the backend and on shapes, types and
// strides of the call alone, so that sizes() and the passes agree on it. FWA_ATTENTION=NAME in the environment leaves
// out all kernels but the one of that name, and FWA_ATTENTION=general all.
//
// saved: lse [B,H,T]. scratch: a tensor for gradients that the caller leaves out, then the kernel's.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "core/log.h"
#include "core/shape.h"
#include "kernels/cuda/attention.cuh"
#include "kernels/cuda/attention_decode.cuh"
#include "kernels/cuda/mixer_common.cuh"

namespace {

using namespace fwa;

const mixer_kit general = {&fwa_rule_softmax, &core_attention, rate_kind::none, false};

// In order of preference, null behind the last.
const attention_kernel *const kernels[] = {&attention_cudnn, &attention_flash, nullptr};

// Of a call: the kernel of each pass (null: the general one, then of both) and the bytes of memory.
struct choice {
    const attention_kernel *forward, *backward;
    size_t saved, spare, scratch; // scratch: with the spare tensor
};

bool given(fwa_tensor t) {
    return t.ndim > 0;
}

// The tensor, or where it is not known yet a dense one without memory.
fwa_tensor planned(fwa_tensor t, int64_t B, int64_t rows, int64_t heads, int64_t columns) {
    return given(t) ? t : fwa_tensor_4d(nullptr, FWA_BF16, B, rows, heads, columns);
}

int64_t earlier_rows(const fwa_mixer_call *call) {
    return fwa_tail_rows(call->in.tail_x);
}

attention_task task_of(const fwa_mixer_call *call, const fwa_mixer_grads &d) {
    const fwa_mixer_shape &s = call->shape;
    attention_task task = {};
    task.shape = s;
    task.scale = static_cast<float>(pow(static_cast<double>(s.K), fwa_rule_softmax.qk_scale_power));
    task.q = planned(call->q, s.B, s.T, s.Hq, s.K), task.k = planned(call->k, s.B, s.T, s.Hq, s.K);
    task.v = planned(call->v, s.B, s.T, s.H, s.V), task.o = planned(call->o, s.B, s.T, s.H, s.V);
    task.dq = planned(d.dq, s.B, s.T, s.Hq, s.K), task.dk = planned(d.dk, s.B, s.T, s.Hq, s.K);
    task.dv = planned(d.dv, s.B, s.T, s.H, s.V), task.d_o = planned(d.d_o, s.B, s.T, s.H, s.V);
    task.reset = call->reset;
    const int64_t n = earlier_rows(call);
    if (n == 0) return task;
    task.earlier_k = call->in.tail_x, task.earlier_v = call->in.tail_v, task.earlier_reset = call->tail_reset;
    task.d_earlier_k = planned(d.d_in.tail_x, s.B, n, s.Hq, s.K);
    task.d_earlier_v = planned(d.d_in.tail_v, s.B, n, s.H, s.V);
    return task;
}

// Rows of heads lie at multiples of 16 bytes from the first one.
bool has_aligned_rows(fwa_tensor t) {
    for (int i = 0; i < 3; i++)
        if (t.shape[i] > 1 && t.stride[i] % 8) return false;
    return true;
}

// Whether the call is of the kind that `kernels` are made for.
bool is_plain(const fwa_backend *backend, const fwa_mixer_call *call, const attention_task &task) {
    const bool leaves = given(call->out.tail_x) || given(call->out.tail_v);
    const bool other_type = given(call->in.tail_x) && call->in.tail_x.dtype != FWA_BF16;
    return backend->compute == FWA_BF16 && call->form == FWA_FORM_CHUNK && !leaves && !other_type &&
           has_aligned_rows(task.q) && has_aligned_rows(task.k) && has_aligned_rows(task.v) &&
           has_aligned_rows(task.o) && has_aligned_rows(task.earlier_k) && has_aligned_rows(task.earlier_v);
}

void log_line(bool backward, const char *kernel, const char *refusal) {
    char line[512];
    snprintf(line, sizeof line, "softmax, %s: %s%s%s", backward ? "backward" : "forward", kernel,
             refusal ? " is not used: " : "", refusal ? refusal : "");
    fwa_log_once(line, "%s", line);
}

bool is_asked_for(const char *name) {
    const char *asked = getenv("FWA_ATTENTION");
    return !asked || !asked[0] || strcmp(asked, name) == 0;
}

fwa_status check_asked() {
    bool known = is_asked_for("general") || is_asked_for("decode");
    for (const attention_kernel *const *kernel = kernels; *kernel; kernel++)
        known = known || is_asked_for((*kernel)->name);
    FWA_CHECK(known, FWA_USAGE,
              "FWA_ATTENTION: got '%s', expected the name of a kernel (cudnn, flash, decode) or general",
              getenv("FWA_ATTENTION"));
    return FWA_OK;
}

bool decodes(const fwa_mixer_call *call) {
    return is_asked_for("decode") && attention_decode_takes(call);
}

const attention_kernel *first_to_take(fwa_stream *stream, const attention_task &task, bool backward, bool log,
                                      size_t *scratch) {
    for (const attention_kernel *const *kernel = kernels; *kernel; kernel++) {
        size_t bytes = 0;
        const char *refusal = is_asked_for((*kernel)->name) ? (*kernel)->refusal(stream, task, backward, &bytes)
                                                            : "FWA_ATTENTION names another one";
        if (log) log_line(backward, (*kernel)->name, refusal);
        if (refusal) continue;
        if (bytes > *scratch) *scratch = bytes;
        return *kernel;
    }
    return nullptr;
}

choice choose(const fwa_backend *backend, fwa_stream *stream, const fwa_mixer_call *call, const attention_task &task,
              bool log) {
    const fwa_mixer_shape &s = call->shape;
    choice c = {};
    if (!is_plain(backend, call, task)) return c;
    c.forward = first_to_take(stream, task, false, log, &c.scratch);
    if (call->save && c.forward) c.backward = first_to_take(stream, task, true, log, &c.scratch);
    if (call->save && !c.backward) c.forward = nullptr;
    if (!c.forward || !call->save) return c;
    c.saved = static_cast<size_t>(s.B * s.H * s.T) * sizeof(float);
    const int64_t rows = fwa_max(s.T, earlier_rows(call));
    c.spare = static_cast<size_t>(s.B * s.H * rows * fwa_max(s.K, s.V)) * fwa_dtype_size(FWA_BF16);
    c.spare = static_cast<size_t>(fwa_round_up(static_cast<int64_t>(c.spare), FWA_ATTENTION_ALIGN));
    c.scratch += c.spare;
    return c;
}

fwa_status check_rows(const char *name, fwa_tensor t) {
    FWA_CHECK(has_aligned_rows(t) && reinterpret_cast<uintptr_t>(t.data) % 16 == 0, FWA_USAGE,
              "softmax: %s at %p has strides %lld, %lld, %lld; expected rows of heads at multiples of 16 bytes", name,
              t.data, static_cast<long long>(t.stride[0]), static_cast<long long>(t.stride[1]),
              static_cast<long long>(t.stride[2]));
    return FWA_OK;
}

fwa_status bind(const fwa_mixer_call *call, const choice &c, attention_task *task) {
    FWA_TRY(fwa_mixer_check_memory(&fwa_rule_softmax, call, c.saved, c.scratch));
    FWA_TRY(check_rows("q", task->q));
    FWA_TRY(check_rows("k", task->k));
    FWA_TRY(check_rows("v", task->v));
    FWA_TRY(check_rows("o", task->o));
    FWA_TRY(check_rows("tail_x", task->earlier_k));
    FWA_TRY(check_rows("tail_v", task->earlier_v));
    task->lse = call->save ? static_cast<float *>(call->saved.data) : nullptr;
    task->scratch = static_cast<char *>(call->scratch.data) + c.spare;
    return FWA_OK;
}

// Gradients that are left out become the spare tensor: a d_o of zeros, under which all other gradients are zeros too,
// or a place to write to.
fwa_status bind_grads(fwa_stream *stream, const fwa_mixer_call *call, const choice &c, attention_task *task) {
    if (!task->d_o.data) FWA_CUDA_TRY(cudaMemsetAsync(call->scratch.data, 0, c.spare, stream->handle));
    for (fwa_tensor *t : {&task->d_o, &task->dq, &task->dk, &task->dv, &task->d_earlier_k, &task->d_earlier_v})
        if (!t->data) t->data = call->scratch.data;
    FWA_TRY(check_rows("d_o", task->d_o));
    FWA_TRY(check_rows("dq", task->dq));
    FWA_TRY(check_rows("dk", task->dk));
    FWA_TRY(check_rows("dv", task->dv));
    FWA_TRY(check_rows("d_in.tail_x", task->d_earlier_k));
    FWA_TRY(check_rows("d_in.tail_v", task->d_earlier_v));
    return FWA_OK;
}

fwa_status sizes(const fwa_backend *backend, const fwa_mixer_call *call, size_t *saved, size_t *scratch) {
    FWA_TRY(fwa_mixer_check_options(&fwa_rule_softmax, call));
    FWA_TRY(check_asked());
    if (decodes(call)) {
        *saved = 0;
        *scratch = attention_decode_scratch(call);
        return FWA_OK;
    }
    const choice c = choose(backend, backend->stream, call, task_of(call, {}), false);
    if (!c.forward) return mixer_sizes(general, backend, call, saved, scratch);
    *saved = c.saved;
    *scratch = c.scratch;
    return FWA_OK;
}

fwa_status forward(const fwa_backend *backend, fwa_stream *stream, const fwa_mixer_call *call) {
    FWA_TRY(fwa_mixer_check(&fwa_rule_softmax, backend, call));
    attention_task task = task_of(call, {});
    if (decodes(call)) {
        FWA_TRY(fwa_mixer_check_memory(&fwa_rule_softmax, call, 0, attention_decode_scratch(call)));
        return attention_decode(stream, backend->compute, call, task.scale);
    }
    const choice c = choose(backend, stream, call, task, true);
    if (!c.forward) return mixer_forward(general, backend, stream, call);
    FWA_TRY(bind(call, c, &task));
    FWA_TRY(c.forward->forward(stream, task));
    return FWA_OK;
}

fwa_status backward(const fwa_backend *backend, fwa_stream *stream, const fwa_mixer_call *call,
                    const fwa_mixer_grads *grads) {
    FWA_TRY(fwa_mixer_check(&fwa_rule_softmax, backend, call));
    FWA_TRY(fwa_mixer_check_grads(&fwa_rule_softmax, backend, call, grads));
    attention_task task = task_of(call, *grads);
    const choice c = choose(backend, stream, call, task, true);
    if (!c.backward) return mixer_backward(general, backend, stream, call, grads);
    FWA_TRY(bind(call, c, &task));
    FWA_TRY(bind_grads(stream, call, c, &task));
    FWA_TRY(c.backward->backward(stream, task));
    return FWA_OK;
}

fwa_status gates(const fwa_backend *backend, fwa_stream *stream, const fwa_mixer_call *call, fwa_gate_sums *sums) {
    return mixer_gates(general, backend, stream, call, sums);
}

} // namespace

extern "C" {
const fwa_mixer fwa_mixer_softmax_cuda_f32 = {&fwa_rule_softmax, sizes, forward, backward, gates, false};
const fwa_mixer fwa_mixer_softmax_cuda_bf16 = {&fwa_rule_softmax, sizes, forward, backward, gates, false};
}
