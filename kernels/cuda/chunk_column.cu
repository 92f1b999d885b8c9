// The chunk kernels of the column core as a fast path of the driver (mixer_common.cuh): which calls they take, how
// memory is laid out, what runs in which order. falcon2a, falcon2.
#include "kernels/cuda/chunk_column.cuh"

#include <cmath>

#include "kernels/cuda/chunk_call.cuh"
#include "kernels/cuda/chunk_edges.cuh"
#include "kernels/cuda/moves.cuh"

namespace {

using namespace fwa;

const char *refusal(const mixer_kit &kit, const fwa_mixer_call *call) {
    const fwa_mixer_options &options = call->options;
    if (kit.rate != rate_kind::falcon) return unknown_rate;
    if (!chunk_width(call->shape.K) || !chunk_width(call->shape.V)) return "K and V are not 64 or 128";
    if (options.ridge != FWA_RIDGE_NONE && options.eps_gamma < least_decay) return "eps_gamma is below 0.001";
    if (call->shape.T > INT32_MAX / 2) return "the sequence is too long";
    return nullptr;
}

struct layout {
    column_task task;
    chunk_rate rate;
    moved_reads reads;
};

bool is_delta(const mixer_kit &kit) {
    return kit.kernels == &core_column_delta;
}

chunk_view dense_view(__nv_bfloat16 *data, const mixer_task &a) {
    return {data, a.T * a.H * a.V, a.H * a.V, a.V};
}

column_view column_view_of(const view &v) {
    return {static_cast<float *>(v.data), v.stride[0], v.stride[1], v.stride[2]};
}

// Segments of the serial passes, and scratch for their states. falcon2 has none: what a segment makes of a state is a
// matrix [K,K] for every column of V.
void plan_segments(fwa_bump *scratch, layout *l) {
    const mixer_task &a = l->rate.task;
    column_task &t = l->task;
    const chunk_split split =
        chunk_split_of(a.B * a.H * (a.V / 64), t.chunks, t.multiprocessors, {3, 1.0, 0.6, 6.0, 0.0});
    t.segments = split.segments, t.length = split.length;
    if (t.segments == 1) return;
    t.starts = FWA_TAKE(scratch, float, a.B *a.H *t.segments *a.K *a.V);
    t.decays = FWA_TAKE(scratch, float, a.B *a.H *t.segments *a.V);
}

void plan_memory(const mixer_kit &kit, const fwa_mixer_call *call, bool backward, fwa_bump *saved, fwa_bump *scratch,
                 layout *l) {
    mixer_task &a = l->rate.task;
    column_task &t = l->task;
    const int64_t tiles = a.B * a.H * t.chunks, states = tiles * a.K * a.V / 8, values = a.B * a.T * a.H * a.V;
    l->rate.kind = kit.rate;
    t.tokens = FWA_TAKE(a.save ? saved : scratch, float4, tiles * tile_rows_64);
    if (a.save) {
        t.states = FWA_TAKE(saved, uint4, states);
        if (is_delta(kit)) t.r = dense_view(FWA_TAKE(saved, __nv_bfloat16, values), a);
    }
    if (!is_delta(kit)) plan_segments(scratch, l);
    plan_moved_reads(a, backward, scratch, &l->reads);
    t.beta = column_view_of(a.beta);
    t.most = a.options.eta_max > 0 ? static_cast<float>(a.options.eta_max) : HUGE_VALF;
    t.least = static_cast<float>(a.options.eps_gamma);
    t.documents = call->reset.ndim > 0;
    if (t.documents) {
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
    t.sums = FWA_TAKE(scratch, float2, tiles * tile_rows_64 * (a.V / 64));
    // Where nobody asks for dv: it is an operand.
    if (is_delta(kit)) t.dv = dense_view(FWA_TAKE(scratch, __nv_bfloat16, values), a);
    if (resumed) t.edge_x = FWA_TAKE(scratch, float, a.B *a.Hq *t.chunks *a.K);
    if (a.group == 1) return;
    t.dq_parts = FWA_TAKE(scratch, float, tiles *tile_rows_64 *a.K);
    t.dx_parts = FWA_TAKE(scratch, float, tiles *tile_rows_64 *a.K);
}

fwa_status bytes(const mixer_kit &kit, const fwa_mixer_call *call, bool backward, size_t *saved, size_t *scratch) {
    return chunk_bytes<layout>(plan_memory, kit, call, backward, saved, scratch);
}

fwa_status check_columns(const mixer_kit &kit, const char *name, fwa_tensor t) {
    FWA_CHECK(!t.data || t.dtype == FWA_F32, FWA_USAGE, "%s: %s is %s, the chunk kernels expect f32", kit.rule->name,
              name, fwa_dtype_name(t.dtype));
    return chunk_check_rows(kit, name, t);
}

fwa_status forward(const mixer_kit &kit, cudaStream_t stream, const fwa_mixer_call *call) {
    layout l;
    FWA_TRY(check_columns(kit, "beta", call->beta));
    FWA_TRY(chunk_bind<layout>(plan_memory, kit, call, false, &l));
    const mixer_task &a = l.rate.task;
    const int K = static_cast<int>(a.K), V = static_cast<int>(a.V);
    if (a.first) FWA_TRY(find_windows(stream, a));
    FWA_TRY(move_reads(stream, a, l.reads, &l.task));
    FWA_TRY(chunk_first_pairs(stream, a, l.task));
    FWA_TRY(chunk_column_rate(stream, l.task, l.rate));
    FWA_TRY(chunk_column_starts(stream, l.task, call, K, V));
    FWA_TRY(chunk_pass(
        l.task, [&] { return chunk_column_forward(stream, l.task, K, V, is_delta(kit)); },
        [&] { return send_states(call); }));
    FWA_TRY(return_reads(stream, a, l.reads));
    return chunk_last_pairs(stream, a, l.task);
}

fwa_status backward(const mixer_kit &kit, cudaStream_t stream, const fwa_mixer_call *call,
                    const fwa_mixer_grads *grads) {
    layout l;
    FWA_TRY(check_columns(kit, "beta", call->beta));
    FWA_TRY(check_columns(kit, "dbeta", grads->dbeta));
    FWA_TRY(chunk_bind<layout>(plan_memory, kit, call, true, &l));
    const chunk_view own = l.task.dv;
    FWA_TRY(chunk_bind_grads(kit, grads, &l.rate.task, &l.task));
    if (!l.task.dv.data) l.task.dv = own;
    const mixer_task &a = l.rate.task;
    const int K = static_cast<int>(a.K), V = static_cast<int>(a.V);
    l.task.dbeta = column_view_of(a.dbeta);
    if (a.first) FWA_TRY(find_windows(stream, a));
    FWA_TRY(move_reads(stream, a, l.reads, &l.task));
    FWA_TRY(chunk_first_pairs(stream, a, l.task));
    FWA_TRY(chunk_column_ends(stream, l.task, call, K, V));
    FWA_TRY(chunk_pass(
        l.task, [&] { return (is_delta(kit) ? chunk_column_scan : chunk_column_carry)(stream, l.task, K, V); },
        [&] { return send_gradients(stream, a, l.reads, call); }));
    FWA_TRY(chunk_column_gates(stream, l.task, K, V, is_delta(kit)));
    FWA_TRY(chunk_column_grads(stream, l.task, l.rate, is_delta(kit)));
    FWA_TRY(return_read_grads(stream, a, l.reads));
    return chunk_state_grads(stream, a, l.task);
}

} // namespace

namespace fwa {
const fast_path chunk_column_additive = {
    &core_column_additive, "chunk kernels, bf16", refusal, bytes, forward, backward};
const fast_path chunk_column_delta = {&core_column_delta, "chunk kernels, bf16", refusal, bytes, forward, backward};
} // namespace fwa
