// The chunk kernels of the window core as a fast path of the driver (mixer_common.cuh): which calls they take, how
// memory is laid out, what runs in which order. falcon3.
#include "kernels/cuda/chunk_window.cuh"

#include "kernels/cuda/chunk_call.cuh"
#include "kernels/cuda/chunk_edges.cuh"
#include "kernels/cuda/moves.cuh"

namespace {

using namespace fwa;

const char *refusal(const mixer_kit &kit, const fwa_mixer_call *call) {
    if (kit.rate != rate_kind::falcon_top) return unknown_rate;
    if (!chunk_width(call->shape.K) || !chunk_width(call->shape.V)) return "K and V are not 64 or 128";
    if (call->options.window > window_most) return "the window is longer than 8";
    if (call->shape.T > INT32_MAX / 2) return "the sequence is too long";
    return nullptr;
}

struct layout {
    window_task task;
    chunk_rate rate;
    chunk_gates gates;
    moved_reads reads;
};

// Segments of the serial passes; transitions stay for the backward pass.
void plan_segments(fwa_bump *kept, fwa_bump *scratch, layout *l) {
    const mixer_task &a = l->rate.task;
    window_task &t = l->task;
    // A chunk takes three times as long as one of the delta core: joining costs less of it.
    const double wide = 1.0 + static_cast<double>(a.K) / static_cast<double>(a.V);
    const chunk_split split = chunk_split_of(a.B * a.H * (a.V / 64), t.chunks, t.multiprocessors,
                                             {t.window == 4 ? 3 : 2, wide, 0.7, 1.5, 0.1});
    t.segments = split.segments, t.length = split.length;
    if (t.segments == 1) return;
    t.transitions = FWA_TAKE(kept, float, a.B *a.H *t.segments *a.K *a.K);
    t.starts = FWA_TAKE(scratch, float, a.B *a.H *t.segments *a.K *a.V);
}

// Gates stay for the backward pass where there is one.
void plan_gates(const mixer_kit &kit, fwa_bump *kept, layout *l) {
    const mixer_task &a = l->rate.task;
    const int64_t rows = a.B * a.H * l->task.chunks * tile_rows_64, keys = rows / a.group;
    l->task.u = l->gates.u = FWA_TAKE(kept, float, rows);
    l->task.w = l->gates.w = FWA_TAKE(kept, float, rows);
    l->task.pairs = l->gates.pairs = FWA_TAKE(kept, float, rows);
    l->task.seen = FWA_TAKE(kept, float, rows);
    l->rate.kind = kit.rate;
    l->rate.energy = FWA_TAKE(kept, float, keys);
    l->task.gram = FWA_TAKE(kept, float, keys * l->task.window);
    l->task.top = FWA_TAKE(kept, float, keys * l->task.window);
}

void plan_grads(fwa_bump *scratch, const mixer_task &a, window_task *t) {
    const int64_t tiles = a.B * a.H * t->chunks, rows = tiles * tile_rows_64, edges = tiles * (2 * t->halo + 1);
    t->d_states = FWA_TAKE(scratch, uint4, tiles * a.K * a.V / 8);
    t->members = FWA_TAKE(scratch, __nv_bfloat16, rows * t->window * a.V);
    t->close = FWA_TAKE(scratch, float, tiles *window_close(t->window));
    t->edge_x = FWA_TAKE(scratch, float, edges / a.group * a.K);
    t->edge_v = FWA_TAKE(scratch, float, edges *a.V);
    if (a.group == 1) return;
    t->dq_parts = FWA_TAKE(scratch, float, rows *a.K);
    t->dx_parts = FWA_TAKE(scratch, float, rows *a.K);
}

// The kernels' window may be longer than the rule's, and with it their halo.
void plan_memory(const mixer_kit &kit, const fwa_mixer_call *call, bool backward, fwa_bump *saved, fwa_bump *scratch,
                 layout *l) {
    mixer_task &a = l->rate.task;
    window_task &t = l->task;
    t.window = call->options.window > 4 ? 8 : 4;
    t.halo = t.window - 1;
    t.chunks = static_cast<int>(fwa_ceil_div(a.T, tile_rows_64 - t.halo));
    const int64_t tiles = a.B * a.H * t.chunks, rows = tiles * tile_rows_64;
    plan_gates(kit, a.save ? saved : scratch, l);
    plan_segments(a.save ? saved : scratch, scratch, l);
    plan_moved_reads(a, backward, scratch, &l->reads);
    if (a.save) {
        t.states = FWA_TAKE(saved, uint4, tiles * a.K * a.V / 8);
        t.fresh = FWA_TAKE(saved, __nv_bfloat16, rows * a.V);
    }
    if (call->reset.ndim > 0) {
        a.first = FWA_TAKE(scratch, int32_t, a.B * a.T);
        a.drop = FWA_TAKE(scratch, uint8_t, a.B * a.T);
    }
    if ((a.shifted && a.resumed) || a.n > 0) {
        t.first_x = FWA_TAKE(scratch, __nv_bfloat16, a.B * a.Hq * t.window * a.K);
        t.first_v = FWA_TAKE(scratch, __nv_bfloat16, a.B * a.H * t.window * a.V);
    }
    if (backward) plan_grads(scratch, a, &t);
}

fwa_status bytes(const mixer_kit &kit, const fwa_mixer_call *call, bool backward, size_t *saved, size_t *scratch) {
    return chunk_bytes<layout>(plan_memory, kit, call, backward, saved, scratch);
}

fwa_status prepare(cudaStream_t stream, layout *l) {
    const mixer_task &a = l->rate.task;
    if (a.first) FWA_TRY(find_windows(stream, a));
    FWA_TRY(move_reads(stream, a, l->reads, &l->task));
    return chunk_first_pairs(stream, a, l->task);
}

fwa_status forward(const mixer_kit &kit, cudaStream_t stream, const fwa_mixer_call *call) {
    layout l;
    FWA_TRY(chunk_bind<layout>(plan_memory, kit, call, false, &l));
    const mixer_task &a = l.rate.task;
    const int K = static_cast<int>(a.K), V = static_cast<int>(a.V);
    FWA_TRY(prepare(stream, &l));
    FWA_TRY(chunk_window_rate(stream, l.task, l.rate, l.gates));
    FWA_TRY(chunk_window_starts(stream, l.task, call, K, V));
    FWA_TRY(chunk_pass(
        l.task, [&] { return chunk_window_forward(stream, l.task, K, V); }, [&] { return send_states(call); }));
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
    FWA_TRY(prepare(stream, &l));
    FWA_TRY(chunk_window_ends(stream, l.task, call, K, V));
    FWA_TRY(chunk_pass(
        l.task, [&] { return chunk_window_scan(stream, l.task, K, V); },
        [&] { return send_gradients(stream, a, l.reads, call); }));
    FWA_TRY(chunk_window_near(stream, l.task, V));
    FWA_TRY(chunk_window_grads(stream, l.task, l.rate));
    FWA_TRY(return_read_grads(stream, a, l.reads));
    FWA_TRY(chunk_join_rows(stream, a, l.task));
    return chunk_state_grads(stream, a, l.task);
}

} // namespace

namespace fwa {
const fast_path chunk_window = {&core_window, "chunk kernels, bf16", refusal, bytes, forward, backward};
}
