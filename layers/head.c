// Output head.
#include "layers/head.h"

// Bytes of the logits of one piece, at most: those of the scratch that blocks leave free, within these two. Fewer
// pieces cost less: each reads and writes the embedding's gradient.
#define LEAST_BYTES (INT64_C(512) << 20)
#define MOST_BYTES  (INT64_C(2) << 30)
#define ROW_ALIGN   256

// Rows of a piece: R in as few pieces as fit, all of one size but the last.
static int64_t piece_rows(int64_t R, int64_t row_bytes, int64_t room) {
    const int64_t bytes = fwa_max(LEAST_BYTES, fwa_min(room, MOST_BYTES));
    int64_t most = fwa_max(bytes / row_bytes / ROW_ALIGN, 1) * ROW_ALIGN;
    int64_t pieces = fwa_ceil_div(R, most);
    return fwa_min(R, fwa_round_up(fwa_ceil_div(R, pieces), ROW_ALIGN));
}

fwa_status fwa_head_plan_acts(const fwa_layer_context *ctx, const fwa_model_spec *model, fwa_arena *scratch,
                              fwa_arena *kept, fwa_head_acts *acts) {
    int64_t R = ctx->B * ctx->T, room = (int64_t)(fwa_arena_bytes(scratch) - fwa_arena_mark(scratch));
    acts->rows = piece_rows(R, (int64_t)fwa_dtype_size(ctx->backend->compute) * model->N, room);
    const int64_t logits[] = {acts->rows, model->N}, rows[] = {R};
    FWA_TRY(fwa_arena_plan(scratch, &acts->logits, ctx->backend->compute, 2, logits));
    FWA_TRY(fwa_arena_plan(kept, &acts->loss, ctx->backend->master, 1, rows));
    return fwa_arena_plan(kept, &acts->prediction, FWA_I32, 1, rows);
}

fwa_status fwa_head_run(const fwa_layer_context *ctx, const fwa_model_spec *model, int embedding,
                        const fwa_head_acts *acts, fwa_tensor dn, fwa_tensor n, fwa_tensor targets,
                        fwa_step_state *state) {
    const fwa_ops *ops = ctx->backend->ops;
    fwa_stream *stream = ctx->backend->stream;
    fwa_tensor none = fwa_tensor_absent(), E = fwa_value(ctx, embedding);
    bool gradient = fwa_tensor_present(dn);
    fwa_range_begin(ctx->backend, "head");
    for (int64_t r = 0, R = n.shape[0]; r < R; r += acts->rows) {
        int64_t count = fwa_min(acts->rows, R - r);
        fwa_tensor logits = fwa_tensor_slice(acts->logits, 0, 0, count), piece = fwa_tensor_slice(n, 0, r, count);
        FWA_TRY(ops->gemm(stream, logits, piece, false, E, true, none, model->logit_scale, 0.0));
        FWA_TRY(ops->cross_entropy(stream, fwa_tensor_slice(acts->loss, 0, r, count),
                                   fwa_tensor_slice(acts->prediction, 0, r, count), logits,
                                   fwa_tensor_slice(targets, 0, r, count), model->vocab, gradient));
        if (!gradient) continue;
        const double beta = ctx->fresh && r == 0 ? 0.0 : 1.0;
        FWA_TRY(
            ops->gemm(stream, fwa_grad(ctx, embedding), logits, true, piece, false, none, model->logit_scale, beta));
        FWA_TRY(ops->gemm(stream, fwa_tensor_slice(dn, 0, r, count), logits, false, E, false, none, model->logit_scale,
                          0.0));
    }
    FWA_TRY(ops->loss_accumulate(stream, state, fwa_tensor_slice(acts->loss, 0, 0, n.shape[0]), targets));
    fwa_range_end(ctx->backend);
    return FWA_OK;
}
