// A call as chunk kernels see it (chunk.cuh), for the fast paths that are made of them.
#ifndef FWA_KERNELS_CUDA_CHUNK_CALL_CUH
#define FWA_KERNELS_CUDA_CHUNK_CALL_CUH

#include "core/shape.h"
#include "kernels/cuda/chunk.cuh"
#include "kernels/cuda/chunk_before.cuh"
#include "kernels/cuda/chunk_split.cuh"
#include "kernels/cuda/mixer_common.cuh"

namespace fwa {

// Why a fast path refuses a rule whose rate its kernels do not compute.
constexpr const char *unknown_rate = "the chunk kernels do not know its rate";

inline bool chunk_width(int64_t n) {
    return n == 64 || n == 128;
}

inline chunk_view chunk_rows_of(fwa_tensor t) {
    return {static_cast<__nv_bfloat16 *>(t.data), t.stride[0], t.stride[1], t.stride[2]};
}

inline chunk_state chunk_state_of(fwa_tensor t) {
    return {static_cast<float *>(t.data), t.stride[0], t.stride[1], t.stride[2]};
}

// Sizes and views of a call; a: described.
inline void chunk_describe(const fwa_mixer_call *call, const mixer_task &a, chunk_task *task) {
    chunk_task &t = *task;
    t.B = static_cast<int>(a.B), t.T = static_cast<int>(a.T), t.Hq = static_cast<int>(a.Hq),
    t.H = static_cast<int>(a.H);
    t.group = static_cast<int>(a.group), t.halo = static_cast<int>(a.halo), t.shift = a.shifted ? 1 : 0;
    t.chunks = static_cast<int>(fwa_ceil_div(a.T, tile_rows_64 - a.halo));
    t.q = chunk_rows_of(call->q), t.k = chunk_rows_of(call->k), t.v = chunk_rows_of(call->v),
    t.o = chunk_rows_of(call->o);
    t.segments = 1, t.length = t.chunks;
    t.S0 = chunk_state_of(call->in.S), t.S_end = chunk_state_of(call->out.S);
}

inline fwa_status chunk_check_rows(const mixer_kit &kit, const char *name, fwa_tensor t) {
    FWA_CHECK(
        rows_aligned(t), FWA_USAGE,
        "%s: rows of %s do not start on multiples of 16 bytes, which the chunk kernels expect; align them or use the "
        "recurrent form",
        kit.rule->name, name);
    return FWA_OK;
}

inline fwa_status chunk_check_rows(const mixer_kit &kit, const fwa_mixer_call *call) {
    FWA_TRY(chunk_check_rows(kit, "q", call->q));
    FWA_TRY(chunk_check_rows(kit, "k", call->k));
    FWA_TRY(chunk_check_rows(kit, "v", call->v));
    return chunk_check_rows(kit, "o", call->o);
}

// Lays out a call of a core whose `layout` has the members task and rate, and whose plan_memory() takes its memory from
// two bumps; without memory only counts the bytes.
template <typename layout>
using plan_memory_of = void (*)(const mixer_kit &, const fwa_mixer_call *, bool, fwa_bump *, fwa_bump *, layout *);

template <typename layout>
fwa_status chunk_plan(plan_memory_of<layout> plan_memory, const mixer_kit &kit, const fwa_mixer_call *call,
                      bool backward, fwa_bump *saved, fwa_bump *scratch, layout *l) {
    *l = {};
    FWA_TRY(mixer_describe(kit, call, &l->rate.task));
    chunk_describe(call, l->rate.task, &l->task);
    FWA_TRY(chunk_multiprocessors(&l->task.multiprocessors));
    FWA_TRY(chunk_check_asked_length());
    plan_memory(kit, call, backward, saved, scratch, l);
    return FWA_OK;
}

template <typename layout>
fwa_status chunk_bytes(plan_memory_of<layout> plan_memory, const mixer_kit &kit, const fwa_mixer_call *call,
                       bool backward, size_t *saved, size_t *scratch) {
    fwa_bump saved_bump = {}, scratch_bump = {};
    layout l;
    FWA_TRY(chunk_plan(plan_memory, kit, call, backward, &saved_bump, &scratch_bump, &l));
    *saved = saved_bump.used;
    *scratch = scratch_bump.used;
    return FWA_OK;
}

template <typename layout>
fwa_status chunk_bind(plan_memory_of<layout> plan_memory, const mixer_kit &kit, const fwa_mixer_call *call,
                      bool backward, layout *l) {
    fwa_bump saved = {static_cast<char *>(call->saved.data), 0};
    fwa_bump scratch = {static_cast<char *>(call->scratch.data), 0};
    FWA_TRY(chunk_check_rows(kit, call));
    return chunk_plan(plan_memory, kit, call, backward, &saved, &scratch, l);
}

// Checks gradients and enters their views.
inline fwa_status chunk_bind_grads(const mixer_kit &kit, const fwa_mixer_grads *grads, mixer_task *a, chunk_task *t) {
    FWA_TRY(chunk_check_rows(kit, "d_o", grads->d_o));
    FWA_TRY(chunk_check_rows(kit, "dq", grads->dq));
    FWA_TRY(chunk_check_rows(kit, "dk", grads->dk));
    FWA_TRY(chunk_check_rows(kit, "dv", grads->dv));
    mixer_describe_grads(grads, a);
    t->d_o = chunk_rows_of(grads->d_o), t->dq = chunk_rows_of(grads->dq);
    t->dk = chunk_rows_of(grads->dk), t->dv = chunk_rows_of(grads->dv);
    t->dS_end = chunk_state_of(grads->d_out.S), t->dS0 = chunk_state_of(grads->d_in.S);
    return FWA_OK;
}

// A serial pass, and what the call does with the state that leaves: in front of the pass where joined segments have
// given that state, behind it where the pass gives it.
template <typename Pass, typename Leave> fwa_status chunk_pass(const chunk_task &task, Pass pass, Leave leave) {
    if (task.segments > 1) FWA_TRY(leave());
    FWA_TRY(pass());
    return task.segments > 1 ? FWA_OK : leave();
}

// Sends the gradient of the incoming state, to which the first of moved reads adds.
inline fwa_status send_gradients(cudaStream_t stream, const mixer_task &a, const moved_reads &reads,
                                 const fwa_mixer_call *call) {
    FWA_TRY(return_first_grads(stream, a, reads));
    return send_states(call);
}

} // namespace fwa
#endif
