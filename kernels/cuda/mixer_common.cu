// The driver of all CUDA mixers (mixer_common.cuh).
#include "kernels/cuda/mixer_common.cuh"

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "core/log.h"
#include "core/shape.h"
#include "kernels/cuda/moves.cuh"

namespace {

using namespace fwa;

view view_of(fwa_tensor t) {
    view v = {t.data, {0, 0, 0}, t.dtype == FWA_BF16};
    for (int i = 0; i < 3 && i < t.ndim; i++) v.stride[i] = t.stride[i];
    return v;
}

state_views views_of(const fwa_mixer_state &state) {
    return {view_of(state.S),      view_of(state.z),
            view_of(state.k_last), view_of(state.tail_x),
            view_of(state.tail_v), fwa_max(fwa_tail_rows(state.tail_x), fwa_tail_rows(state.tail_v))};
}

fwa_status set_sizes(const mixer_kit &kit, const fwa_mixer_call *call, mixer_task *a) {
    const fwa_mixer_options &options = call->options;
    const fwa_mixer_shape &shape = call->shape;
    a->options = options;
    a->B = shape.B, a->T = shape.T, a->Hq = shape.Hq, a->H = shape.H, a->K = shape.K, a->V = shape.V;
    a->n = fwa_tail_rows(call->in.tail_x);
    a->rows = a->n + a->T;
    a->group = a->H / a->Hq;
    a->halo = kit.rule->state == FWA_STATE_CACHE ? a->rows : options.window - 1;
    a->shifted = (kit.rule->switches & FWA_SWITCH_SHIFT) && options.shift == FWA_SHIFT_NEXT_LATENT;
    a->normalized = options.normalized_read;
    a->before = options.read == FWA_READ_BEFORE_WRITE;
    a->decay_first = kit.decay_first;
    a->save = call->save;
    a->resumed = call->in.k_last.ndim > 0;
    a->scale = static_cast<float>(pow(static_cast<double>(shape.K), kit.rule->qk_scale_power));
    a->energies = energy_of(kit.rate);
    FWA_CHECK(a->rows < INT32_MAX, FWA_UNSUPPORTED, "%s: %lld tokens in a sequence, expected less than 2^31",
              kit.rule->name, static_cast<long long>(a->rows));
    FWA_TRY(kit.kernels->shape(a));
    a->columns = kit.rule->inputs & FWA_INPUT_BETA_CHANNEL ? a->Vp : 1;
    return FWA_OK;
}

void set_views(const fwa_mixer_call *call, mixer_task *a) {
    a->q = view_of(call->q), a->k = view_of(call->k), a->v = view_of(call->v), a->o = view_of(call->o);
    a->beta = view_of(call->beta), a->lambda = view_of(call->lambda), a->log_decay = view_of(call->log_decay);
    a->reset = static_cast<const uint8_t *>(call->reset.data);
    a->reset_stride = call->reset.stride[0];
    a->tail_reset = static_cast<const uint8_t *>(call->tail_reset.data);
    a->tail_reset_stride = call->tail_reset.stride[0];
    a->in = views_of(call->in), a->out = views_of(call->out);
}

void set_grad_views(const fwa_mixer_grads *grads, mixer_task *a) {
    a->d_o = view_of(grads->d_o), a->dq = view_of(grads->dq), a->dk = view_of(grads->dk), a->dv = view_of(grads->dv);
    a->dbeta = view_of(grads->dbeta), a->dlambda = view_of(grads->dlambda);
    a->dlog_decay = view_of(grads->dlog_decay);
    a->d_in = views_of(grads->d_in), a->d_out = views_of(grads->d_out);
}

// The backward pass needs the read as it was before the division, or attention's o.
bool keeps_read(const mixer_kit &kit, const mixer_task &a) {
    return a.save && (a.normalized || kit.rule->core == FWA_CORE_ATTENTION);
}

void plan_inputs(const mixer_kit &kit, mixer_task *a, fwa_bump *saved, fwa_bump *scratch, bool backward) {
    const int64_t B = a->B, T = a->T, Hq = a->Hq, H = a->H, rows = a->rows;
    a->first = FWA_TAKE(scratch, int32_t, B * T);
    a->drop = FWA_TAKE(scratch, uint8_t, B * T);
    a->qs = FWA_TAKE(scratch, float, B *Hq *T * a->Kp);
    a->xs = FWA_TAKE(scratch, float, B *Hq *rows * a->Kp);
    a->vs = FWA_TAKE(scratch, float, B *H *rows * a->Vp);
    if (keeps_read(kit, *a))
        a->os = FWA_TAKE(saved, float, B *H *T * a->Vp);
    else if (!backward)
        a->os = FWA_TAKE(scratch, float, B *H *T * a->Vp);
    if (kit.rate == rate_kind::none) return;
    a->w = FWA_TAKE(scratch, float, B *H *T * a->columns);
    a->gamma = FWA_TAKE(scratch, float, B *H *T * a->columns);
    if (a->energies == energy_kind::none) return;
    a->energy = FWA_TAKE(scratch, double, B *Hq *T);
    if (a->energies == energy_kind::mean) a->norms = FWA_TAKE(scratch, double, B *Hq *rows);
    const size_t work = energy_work(*a);
    if (work) a->jacobi = static_cast<double *>(fwa_bump_take(scratch, static_cast<int64_t>(work), 1));
    if (backward && a->energies == energy_kind::top) a->z = FWA_TAKE(scratch, float, B *Hq *T * a->Kp);
}

void plan_grads(const mixer_kit &kit, mixer_task *a, fwa_bump *scratch) {
    const int64_t B = a->B, T = a->T, H = a->H, parts = B * H * a->slices;
    a->d_os = FWA_TAKE(scratch, float, B *H *T * a->Vp);
    a->dvs = FWA_TAKE(scratch, float, B *H * a->rows * a->Vp);
    a->dqs = FWA_TAKE(scratch, float, parts *T * a->Kp);
    a->dxs = FWA_TAKE(scratch, float, parts * a->rows * a->Kp);
    if (kit.rate == rate_kind::none) return;
    a->dw = FWA_TAKE(scratch, float, a->columns > 1 ? B * H * T * a->Vp : parts * T);
    a->dgamma = FWA_TAKE(scratch, float, a->columns > 1 ? B * H * T * a->Vp : parts * T);
    if (a->energies == energy_kind::none) return;
    a->denergy = FWA_TAKE(scratch, double, B *H *T);
    a->pulls = FWA_TAKE(scratch, double, B * a->Hq * T);
}

// Lays out a call in its memory; without memory (`saved`, `scratch` null) only counts the bytes.
fwa_status plan(const mixer_kit &kit, const fwa_mixer_call *call, bool backward, fwa_bump *saved, fwa_bump *scratch,
                mixer_task *a) {
    *a = {};
    FWA_TRY(set_sizes(kit, call, a));
    plan_inputs(kit, a, saved, scratch, backward);
    if (backward) plan_grads(kit, a, scratch);
    kit.kernels->plan(a, saved, scratch, backward);
    return FWA_OK;
}

// Bytes for sums of gates; 0 where the rule has none.
fwa_status gates_bytes(const mixer_kit &kit, const fwa_mixer_call *call, size_t *scratch) {
    fwa_bump bump = {};
    mixer_task task = {};
    FWA_TRY(set_sizes(kit, call, &task));
    if (has_gates(kit.rate)) plan_gates(&task, &bump);
    *scratch = bump.used;
    return FWA_OK;
}

fwa_status bytes_of(const mixer_kit &kit, const fwa_mixer_call *call, bool backward, size_t *saved, size_t *scratch) {
    fwa_bump saved_bump = {}, scratch_bump = {};
    mixer_task task;
    FWA_TRY(plan(kit, call, backward, &saved_bump, &scratch_bump, &task));
    *saved = saved_bump.used;
    *scratch = scratch_bump.used;
    return FWA_OK;
}

// For each core at most one.
const fast_path *const fast_paths[] = {&chunk_additive, &chunk_delta, &chunk_column_additive, &chunk_column_delta,
                                       &chunk_window};

fwa_status is_hopper(const fwa_backend *backend, bool *hopper) {
    int major = 0, minor = 0;
    FWA_CUDA_TRY(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, backend->device));
    FWA_CUDA_TRY(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, backend->device));
    *hopper = major == 9 && minor == 0;
    return FWA_OK;
}

// FWA_MIXER=general in the environment leaves no other kernel, for comparisons.
fwa_status only_general(bool *only) {
    const char *asked = getenv("FWA_MIXER");
    *only = asked && asked[0];
    FWA_CHECK(!*only || strcmp(asked, "general") == 0, FWA_USAGE, "FWA_MIXER: got '%s', expected 'general' or nothing",
              asked);
    return FWA_OK;
}

// The fast path that takes a call, or null and *why not; *why null: the core has none, or the call asks for none.
fwa_status choose(const mixer_kit &kit, const fwa_backend *backend, const fwa_mixer_call *call, const fast_path **path,
                  const char **why) {
    bool hopper, general;
    *path = nullptr;
    *why = nullptr;
    if (call->form != FWA_FORM_CHUNK || backend->compute != FWA_BF16) return FWA_OK;
    FWA_TRY(is_hopper(backend, &hopper));
    FWA_TRY(only_general(&general));
    for (const fast_path *candidate : fast_paths) {
        if (candidate->instead_of != kit.kernels) continue;
        *why = general  ? "FWA_MIXER asks for it"
               : hopper ? candidate->refusal(kit, call)
                        : "the GPU is not of compute capability 9.0";
        if (!*why) *path = candidate;
    }
    return FWA_OK;
}

fwa_status check_memory(const mixer_kit &kit, const fwa_backend *backend, const fwa_mixer_call *call) {
    size_t saved, scratch;
    FWA_TRY(mixer_sizes(kit, backend, call, &saved, &scratch));
    return fwa_mixer_check_memory(kit.rule, call, saved, scratch);
}

fwa_status bind(const mixer_kit &kit, const fwa_mixer_call *call, bool backward, mixer_task *task) {
    fwa_bump saved_bump = {static_cast<char *>(call->saved.data), 0};
    fwa_bump scratch_bump = {static_cast<char *>(call->scratch.data), 0};
    FWA_TRY(plan(kit, call, backward, &saved_bump, &scratch_bump, task));
    set_views(call, task);
    return FWA_OK;
}

fwa_status run_forward(const mixer_kit &kit, cudaStream_t stream, const fwa_mixer_call *call) {
    mixer_task task;
    FWA_TRY(bind(kit, call, false, &task));
    FWA_TRY(receive_states(call));
    FWA_TRY(gather_inputs(stream, task));
    FWA_TRY(rate_forward(stream, kit.rate, task));
    FWA_TRY(kit.kernels->forward(stream, task));
    FWA_TRY(scatter_outputs(stream, task));
    return send_states(call);
}

fwa_status run_backward(const mixer_kit &kit, cudaStream_t stream, const fwa_mixer_call *call,
                        const fwa_mixer_grads *grads) {
    mixer_task task;
    FWA_TRY(bind(kit, call, true, &task));
    set_grad_views(grads, &task);
    FWA_TRY(receive_states(call));
    const int64_t heads = task.B * task.H, parts = heads * task.slices;
    FWA_TRY(gather_inputs(stream, task));
    FWA_TRY(gather_grads(stream, task));
    FWA_CUDA_TRY(
        cudaMemsetAsync(task.dvs, 0, static_cast<size_t>(heads * task.rows * task.Vp) * sizeof(float), stream));
    FWA_CUDA_TRY(
        cudaMemsetAsync(task.dxs, 0, static_cast<size_t>(parts * task.rows * task.Kp) * sizeof(float), stream));
    FWA_TRY(rate_forward(stream, kit.rate, task));
    FWA_TRY(kit.kernels->backward(stream, task));
    FWA_TRY(rate_backward(stream, kit.rate, task));
    FWA_TRY(scatter_grads(stream, task));
    return send_states(call);
}

void log_choice(const mixer_kit &kit, const fast_path *path, const char *why) {
    char key[160];
    snprintf(key, sizeof key, "cuda mixer %s %s %s", kit.rule->name, path ? path->kernel : "", why ? why : "");
    fwa_log_once(key, "%s: %s%s%s", kit.rule->name, path ? path->kernel : kit.kernels->kernel, why ? ", as " : "",
                 why ? why : "");
}

} // namespace

namespace fwa {

fwa_status mixer_describe(const mixer_kit &kit, const fwa_mixer_call *call, mixer_task *task) {
    *task = {};
    FWA_TRY(set_sizes(kit, call, task));
    set_views(call, task);
    return FWA_OK;
}

void mixer_describe_grads(const fwa_mixer_grads *grads, mixer_task *task) {
    set_grad_views(grads, task);
}

fwa_status mixer_sizes(const mixer_kit &kit, const fwa_backend *backend, const fwa_mixer_call *call, size_t *saved,
                       size_t *scratch) {
    const fast_path *path;
    const char *why;
    FWA_TRY(fwa_mixer_check_options(kit.rule, call));
    FWA_CHECK(call->form != FWA_FORM_PARALLEL, FWA_UNSUPPORTED,
              "%s: the cuda backend has no parallel form; use chunk or recurrent, or the CPU backend", kit.rule->name);
    FWA_TRY(choose(kit, backend, call, &path, &why));
    const auto bytes = path ? path->bytes : bytes_of;
    FWA_TRY(bytes(kit, call, false, saved, scratch));
    if (!call->save) return FWA_OK;
    size_t same, backward, gates;
    FWA_TRY(bytes(kit, call, true, &same, &backward));
    FWA_TRY(gates_bytes(kit, call, &gates));
    *scratch = backward > *scratch ? backward : *scratch;
    *scratch = gates > *scratch ? gates : *scratch;
    return FWA_OK;
}

fwa_status mixer_forward(const mixer_kit &kit, const fwa_backend *backend, fwa_stream *stream,
                         const fwa_mixer_call *call) {
    const fast_path *path;
    const char *why;
    FWA_TRY(fwa_mixer_check(kit.rule, backend, call));
    FWA_TRY(check_memory(kit, backend, call));
    FWA_TRY(choose(kit, backend, call, &path, &why));
    log_choice(kit, path, why);
    return (path ? path->forward : run_forward)(kit, stream->handle, call);
}

fwa_status mixer_backward(const mixer_kit &kit, const fwa_backend *backend, fwa_stream *stream,
                          const fwa_mixer_call *call, const fwa_mixer_grads *grads) {
    const fast_path *path;
    const char *why;
    FWA_TRY(fwa_mixer_check(kit.rule, backend, call));
    FWA_TRY(fwa_mixer_check_grads(kit.rule, backend, call, grads));
    FWA_TRY(check_memory(kit, backend, call));
    FWA_TRY(choose(kit, backend, call, &path, &why));
    return (path ? path->backward : run_backward)(kit, stream->handle, call, grads);
}

fwa_status mixer_gates(const mixer_kit &kit, const fwa_backend *backend, fwa_stream *stream, const fwa_mixer_call *call,
                       fwa_gate_sums *sums) {
    fwa_bump scratch = {static_cast<char *>(call->scratch.data), 0};
    mixer_task task;
    FWA_TRY(fwa_mixer_check(kit.rule, backend, call));
    FWA_CHECK(call->save, FWA_ERROR, "%s: gates are summed of calls that save", kit.rule->name);
    if (!has_gates(kit.rate)) return FWA_OK;
    FWA_TRY(check_memory(kit, backend, call));
    FWA_TRY(mixer_describe(kit, call, &task));
    const gate_memory memory = plan_gates(&task, &scratch);
    return sum_gates(stream->handle, kit.rate, task, memory, sums);
}

} // namespace fwa
