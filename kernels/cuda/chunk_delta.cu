// The chunk kernels of the delta core as a fast path of the driver (mixer_common.cuh): which calls they take, how
// memory is laid out, what runs in which order. deltanet, gated_deltanet, falcon1.
#include "kernels/cuda/chunk_delta.cuh"

#include "kernels/cuda/chunk_call.cuh"
#include "kernels/cuda/chunk_edges.cuh"
#include "kernels/cuda/moves.cuh"

namespace {

using namespace fwa;

const char *refusal(const mixer_kit &kit, const fwa_mixer_call *call) {
    if (!chunk_knows_rate(kit.rate)) return unknown_rate;
    if (!chunk_width(call->shape.K) || !chunk_width(call->shape.V)) return "K and V are not 64 or 128";
    if (call->shape.T > INT32_MAX / 2) return "the sequence is too long";
    return nullptr;
}

struct layout {
    delta_task task;
    chunk_rate rate;
    moved_reads reads;
};

// Segments of the serial passes; transitions stay for the backward pass.
void plan_segments(fwa_bump *kept, fwa_bump *scratch, layout *l) {
    const mixer_task &a = l->rate.task;
    delta_task &t = l->task;
    // The pass before looks for transitions, too, but for no o; joining reads a matrix a segment.
    const double wide = 1.0 + static_cast<double>(a.K) / static_cast<double>(a.V);
    const chunk_split split =
        chunk_split_of(a.B * a.H * (a.V / 64), t.chunks, t.multiprocessors, {3, wide, 0.6, 4.0, 0.25});
    t.segments = split.segments, t.length = split.length;
    if (t.segments == 1) return;
    t.transitions = FWA_TAKE(kept, float, a.B *a.H *t.segments *a.K *a.K);
    t.starts = FWA_TAKE(scratch, float, a.B *a.H *t.segments *a.K *a.V);
}

// Gates and the inverse stay for the backward pass where there is one.
void plan_systems(const mixer_kit &kit, fwa_bump *kept, layout *l) {
    const mixer_task &a = l->rate.task;
    const int64_t tiles = a.B * a.H * l->task.chunks, rows = tiles * tile_rows_64;
    l->task.gates = FWA_TAKE(kept, delta_gates, tiles);
    l->rate.kind = kit.rate;
    if (energy_of(kit.rate) == energy_kind::mean) l->rate.energy = FWA_TAKE(kept, float, rows / a.group);
    l->task.inverse = FWA_TAKE(kept, uint4, tiles * inverse_pieces);
}

void plan_memory(const mixer_kit &kit, const fwa_mixer_call *call, bool backward, fwa_bump *saved, fwa_bump *scratch,
                 layout *l) {
    mixer_task &a = l->rate.task;
    delta_task &t = l->task;
    const int64_t tiles = a.B * a.H * t.chunks, states = tiles * a.K * a.V / 8;
    plan_systems(kit, a.save ? saved : scratch, l);
    plan_segments(a.save ? saved : scratch, scratch, l);
    plan_moved_reads(a, backward, scratch, &l->reads);
    if (a.save) {
        t.states = FWA_TAKE(saved, uint4, states);
        t.residuals = FWA_TAKE(saved, uint4, tiles * tile_rows_64 * a.V / 8);
    }
    if (call->reset.ndim > 0) {
        a.first = FWA_TAKE(scratch, int32_t, a.B * a.T);
        a.drop = FWA_TAKE(scratch, uint8_t, a.B * a.T);
    }
    const bool resumed = a.shifted && a.resumed;
    if (resumed) {
        t.first_x = FWA_TAKE(scratch, __nv_bfloat16, a.B * a.Hq * a.K);
        t.first_v = FWA_TAKE(scratch, __nv_bfloat16, a.B * a.H * a.V);
    }
    if (!backward) return;
    t.d_states = FWA_TAKE(scratch, uint4, states);
    // Where nobody asks for dv: it is an operand.
    t.dv.data = FWA_TAKE(scratch, __nv_bfloat16, a.B * a.T * a.H * a.V);
    t.dv.batch = a.T * a.H * a.V, t.dv.time = a.H * a.V, t.dv.head = a.V;
    if (resumed) t.edge_x = FWA_TAKE(scratch, float, a.B *a.Hq *t.chunks *a.K);
    if (a.group == 1) return;
    t.dq_parts = FWA_TAKE(scratch, float, tiles *tile_rows_64 *a.K);
    t.dx_parts = FWA_TAKE(scratch, float, tiles *tile_rows_64 *a.K);
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
    FWA_TRY(chunk_delta_solve(stream, l.task, l.rate));
    FWA_TRY(chunk_delta_starts(stream, l.task, call, K, V));
    FWA_TRY(chunk_pass(
        l.task, [&] { return chunk_delta_forward(stream, l.task, K, V); }, [&] { return send_states(call); }));
    FWA_TRY(return_reads(stream, a, l.reads));
    return chunk_last_pairs(stream, a, l.task);
}

fwa_status backward(const mixer_kit &kit, cudaStream_t stream, const fwa_mixer_call *call,
                    const fwa_mixer_grads *grads) {
    layout l;
    FWA_TRY(chunk_bind<layout>(plan_memory, kit, call, true, &l));
    const chunk_view own = l.task.dv;
    FWA_TRY(chunk_bind_grads(kit, grads, &l.rate.task, &l.task));
    if (!l.task.dv.data) l.task.dv = own;
    const mixer_task &a = l.rate.task;
    const int K = static_cast<int>(a.K), V = static_cast<int>(a.V);
    if (a.first) FWA_TRY(find_windows(stream, a));
    FWA_TRY(move_reads(stream, a, l.reads, &l.task));
    FWA_TRY(chunk_first_pairs(stream, a, l.task));
    FWA_TRY(chunk_delta_ends(stream, l.task, call, K, V));
    FWA_TRY(chunk_pass(
        l.task, [&] { return chunk_delta_scan(stream, l.task, K, V); },
        [&] { return send_gradients(stream, a, l.reads, call); }));
    FWA_TRY(chunk_delta_grads(stream, l.task, l.rate));
    FWA_TRY(return_read_grads(stream, a, l.reads));
    return chunk_state_grads(stream, a, l.task);
}

} // namespace

namespace fwa {
const fast_path chunk_delta = {&core_delta, "chunk kernels, bf16", refusal, bytes, forward, backward};
}
