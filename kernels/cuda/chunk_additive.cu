// The chunk kernels of the additive core as a fast path of the driver (mixer_common.cuh): which calls they take, how
// memory is laid out, what runs in which order. Everything goes from tensor to tensor; fp32 arrays hold gates alone.
#include "kernels/cuda/chunk_additive.cuh"

#include "core/shape.h"
#include "kernels/cuda/chunk_call.cuh"
#include "kernels/cuda/chunk_edges.cuh"
#include "kernels/cuda/chunk_split.cuh"
#include "kernels/cuda/mixer_common.cuh"
#include "kernels/cuda/moves.cuh"

namespace {

using namespace fwa;

const char *refusal(const mixer_kit &kit, const fwa_mixer_call *call) {
    const fwa_mixer_options &options = call->options;
    if (!chunk_knows_rate(kit.rate)) return unknown_rate;
    if (!chunk_width(call->shape.K) || !chunk_width(call->shape.V)) return "K and V are not 64 or 128";
    if (options.window > window_most) return "the window is longer than 8";
    if (options.normalized_read) return "the read is normalised";
    if (call->shape.T > INT32_MAX / 2) return "the sequence is too long";
    return nullptr;
}

struct layout {
    chunk_task task;
    chunk_rate rate;
    chunk_gates gates;
    moved_reads reads;
};

// Gates and states stay for the backward pass where there is one.
void plan_gates(const mixer_kit &kit, fwa_bump *kept, layout *l) {
    const mixer_task &a = l->rate.task;
    const int64_t rows = a.H * l->task.chunks * tile_rows_64 * a.B;
    l->task.u = l->gates.u = FWA_TAKE(kept, float, rows);
    l->task.w = l->gates.w = FWA_TAKE(kept, float, rows);
    if (l->task.halo > 0) {
        l->task.pairs = l->gates.pairs = FWA_TAKE(kept, float, rows);
        l->task.far = l->gates.far = FWA_TAKE(kept, float, rows);
        l->task.band = l->gates.band = FWA_TAKE(kept, band_row, rows);
    }
    l->rate.kind = kit.rate;
    if (energy_of(kit.rate) == energy_kind::mean) l->rate.energy = FWA_TAKE(kept, float, rows / a.group);
}

// Segments of the serial passes, and scratch for their states.
void plan_segments(fwa_bump *scratch, layout *l) {
    const mixer_task &a = l->rate.task;
    chunk_task &t = l->task;
    const chunk_split split =
        chunk_split_of(a.B * a.H * (a.V / 64), t.chunks, t.multiprocessors, {forward_blocks, 1.0, 0.7, 6.0, 0.0});
    t.segments = split.segments, t.length = split.length;
    if (t.segments == 1) return;
    t.starts = FWA_TAKE(scratch, float, a.B *a.H *t.segments *a.K *a.V);
    t.decays = FWA_TAKE(scratch, float, a.B *a.H *t.segments);
}

void plan_memory(const mixer_kit &kit, const fwa_mixer_call *call, bool backward, fwa_bump *saved, fwa_bump *scratch,
                 layout *l) {
    mixer_task &a = l->rate.task;
    chunk_task &t = l->task;
    t.halo = window_made(t.halo) - 1;
    t.chunks = static_cast<int>(fwa_ceil_div(a.T, tile_rows_64 - t.halo));
    const int64_t states = a.B * a.H * t.chunks * a.K * a.V / 8, edges = a.B * t.chunks * (2 * t.halo + 1);
    plan_gates(kit, a.save ? saved : scratch, l);
    plan_segments(scratch, l);
    plan_moved_reads(a, backward, scratch, &l->reads);
    if (a.save) t.states = FWA_TAKE(saved, uint4, states);
    if (call->reset.ndim > 0) {
        a.first = FWA_TAKE(scratch, int32_t, a.B * a.T);
        a.drop = FWA_TAKE(scratch, uint8_t, a.B * a.T);
    }
    const bool resumed = (a.shifted && a.resumed) || a.n > 0;
    if (resumed) {
        t.first_x = FWA_TAKE(scratch, __nv_bfloat16, a.B * a.Hq * (t.halo + 1) * a.K);
        t.first_v = FWA_TAKE(scratch, __nv_bfloat16, a.B * a.H * (t.halo + 1) * a.V);
    }
    if (!backward) return;
    t.d_states = FWA_TAKE(scratch, uint4, states);
    if (t.halo > 0) t.band_products = FWA_TAKE(scratch, float, a.B *a.Hq *t.chunks *tile_rows_64 * 8);
    if (t.halo == 0 && !resumed) return;
    t.edge_x = FWA_TAKE(scratch, float, edges *a.Hq *a.K);
    t.edge_v = FWA_TAKE(scratch, float, edges *a.H *a.V);
}

fwa_status bytes(const mixer_kit &kit, const fwa_mixer_call *call, bool backward, size_t *saved, size_t *scratch) {
    return chunk_bytes<layout>(plan_memory, kit, call, backward, saved, scratch);
}

fwa_status forward(const mixer_kit &kit, cudaStream_t stream, const fwa_mixer_call *call) {
    layout l;
    FWA_TRY(chunk_bind<layout>(plan_memory, kit, call, false, &l));
    const mixer_task &a = l.rate.task;
    const int K = static_cast<int>(a.K), V = static_cast<int>(a.V);
    if (a.first) FWA_TRY(find_windows(stream, a));
    FWA_TRY(move_reads(stream, a, l.reads, &l.task));
    FWA_TRY(chunk_first_pairs(stream, a, l.task));
    FWA_TRY(chunk_rate_forward(stream, l.rate, l.task, l.gates));
    FWA_TRY(chunk_additive_starts(stream, l.task, call, K, V));
    FWA_TRY(chunk_pass(
        l.task, [&] { return chunk_additive_forward(stream, l.task, K, V); }, [&] { return send_states(call); }));
    FWA_TRY(return_reads(stream, a, l.reads));
    return chunk_last_pairs(stream, a, l.task);
}

fwa_status backward(const mixer_kit &kit, cudaStream_t stream, const fwa_mixer_call *call,
                    const fwa_mixer_grads *grads) {
    layout l;
    FWA_TRY(chunk_bind<layout>(plan_memory, kit, call, true, &l));
    FWA_TRY(chunk_bind_grads(kit, grads, &l.rate.task, &l.task));
    const mixer_task &a = l.rate.task;
    const int K = static_cast<int>(a.K), V = static_cast<int>(a.V);
    if (a.first) FWA_TRY(find_windows(stream, a));
    FWA_TRY(move_reads(stream, a, l.reads, &l.task));
    FWA_TRY(chunk_first_pairs(stream, a, l.task));
    FWA_TRY(chunk_additive_ends(stream, l.task, call, K, V));
    FWA_TRY(chunk_pass(
        l.task, [&] { return chunk_additive_scan(stream, l.task, K, V); },
        [&] { return send_gradients(stream, a, l.reads, call); }));
    FWA_TRY(chunk_additive_grads(stream, l.task, l.rate));
    FWA_TRY(return_read_grads(stream, a, l.reads));
    FWA_TRY(chunk_join_rows(stream, a, l.task));
    return chunk_state_grads(stream, a, l.task);
}

} // namespace

namespace fwa {
const fast_path chunk_additive = {&core_additive, "chunk kernels, bf16", refusal, bytes, forward, backward};
}
