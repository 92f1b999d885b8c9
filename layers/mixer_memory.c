// A mixer layer that continues what a memory holds.
#include "layers/mixer_memory.h"

#include <string.h>

bool fwa_mixer_memory_cached(const fwa_mixer_layer *layer) {
    return layer->spec->rule->state == FWA_STATE_CACHE;
}

// Whether x_t = k_{t-1}.
static bool shifted(const fwa_mixer_layer *layer) {
    const fwa_mixer_spec *spec = layer->spec;
    return (spec->rule->switches & FWA_SWITCH_SHIFT) && spec->options.shift == FWA_SHIFT_NEXT_LATENT;
}

// Pairs of the tail after `held` tokens of a document: all, or those of the window; the first token has none where keys
// are shifted.
static int64_t pairs(const fwa_mixer_layer *layer, int64_t held) {
    if (fwa_mixer_memory_cached(layer)) return held;
    return fwa_max(0, fwa_min(layer->spec->options.window - 1, held - (shifted(layer) ? 1 : 0)));
}

static int64_t conv_rows(const fwa_mixer_layer *layer) {
    return fwa_max(0, layer->spec->conv - 1);
}

static int64_t conv_columns(const fwa_mixer_layer *layer) {
    return layer->v.at + layer->v.columns;
}

static fwa_status plan_state(const fwa_mixer_layer *layer, fwa_dtype mst, int64_t B, int64_t rows, fwa_arena *arena,
                             fwa_mixer_state *state) {
    const fwa_mixer_shape *s = &layer->shape;
    if (!fwa_mixer_memory_cached(layer)) {
        FWA_TRY(fwa_arena_plan(arena, &state->S, mst, 4, (int64_t[]){B, s->H, s->K, s->V}));
        if (layer->spec->options.normalized_read)
            FWA_TRY(fwa_arena_plan(arena, &state->z, mst, 3, (int64_t[]){B, s->H, s->K}));
        if (shifted(layer)) FWA_TRY(fwa_arena_plan(arena, &state->k_last, mst, 3, (int64_t[]){B, s->Hq, s->K}));
    }
    if (rows == 0) return FWA_OK;
    FWA_TRY(fwa_arena_plan(arena, &state->tail_x, mst, 4, (int64_t[]){B, rows, s->Hq, s->K}));
    return fwa_arena_plan(arena, &state->tail_v, mst, 4, (int64_t[]){B, rows, s->H, s->V});
}

fwa_status fwa_mixer_memory_plan(const fwa_mixer_layer *layer, const fwa_backend *backend, int64_t B, int64_t capacity,
                                 fwa_arena *arena, fwa_layer_memory *memory) {
    const bool cached = fwa_mixer_memory_cached(layer);
    const int64_t rows = cached ? capacity : layer->spec->options.window - 1;
    if (conv_rows(layer) > 0)
        FWA_TRY(fwa_arena_plan(arena, &memory->conv, backend->compute, 3,
                               (int64_t[]){B, conv_rows(layer), conv_columns(layer)}));
    for (int i = 0; i < (cached ? 1 : 2); i++)
        FWA_TRY(plan_state(layer, backend->master, B, rows, arena, &memory->state[i]));
    return FWA_OK;
}

static fwa_tensor first_rows(fwa_tensor tail, int64_t rows) {
    return rows > 0 ? fwa_tensor_slice(tail, 1, 0, rows) : fwa_tensor_absent();
}

fwa_mixer_state fwa_mixer_memory_state(const fwa_mixer_layer *layer, const fwa_mixer_state *all, int64_t held) {
    fwa_mixer_state state;
    memset(&state, 0, sizeof state);
    if (held == 0) return state;
    state = *all;
    state.tail_x = first_rows(all->tail_x, pairs(layer, held));
    state.tail_v = first_rows(all->tail_v, pairs(layer, held));
    return state;
}

// A cache takes its new rows by append() instead of letting the rule write all of it again.
static fwa_mixer_call call_of(const fwa_mixer_layer *layer, const fwa_layer_context *ctx, const fwa_mixer_acts *acts,
                              int64_t held, fwa_tensor scratch) {
    const fwa_layer_memory *own = &ctx->memory->layers[layer->index];
    const int now = ctx->memory->now;
    fwa_mixer_call call = fwa_mixer_layer_call(layer, ctx, false, acts, scratch);
    call.form = ctx->T == 1 ? FWA_FORM_RECURRENT : FWA_FORM_CHUNK;
    if (fwa_mixer_memory_cached(layer)) {
        call.in = fwa_mixer_memory_state(layer, &own->state[0], held);
        return call;
    }
    call.in = fwa_mixer_memory_state(layer, &own->state[now], held);
    call.out = fwa_mixer_memory_state(layer, &own->state[1 - now], held + ctx->T);
    return call;
}

// Bytes of the rows of a convolution's past that stay for another segment.
static size_t kept_bytes(const fwa_mixer_layer *layer, const fwa_layer_context *ctx) {
    const int64_t rows = fwa_max(0, conv_rows(layer) - ctx->T);
    return (size_t)(ctx->B * rows * conv_columns(layer)) * fwa_dtype_size(ctx->backend->compute);
}

fwa_status fwa_mixer_memory_plan_acts(const fwa_mixer_layer *layer, const fwa_layer_context *ctx, fwa_mixer_acts *acts,
                                      size_t *scratch_bytes) {
    const fwa_memory *memory = ctx->memory;
    size_t saved = 0, scratch = 0;
    acts->cut.conv = memory->layers[layer->index].conv;
    // The most pairs that come in; scratch grows with them.
    const int64_t most =
        fwa_mixer_memory_cached(layer) ? fwa_max(0, memory->capacity - ctx->T) : layer->spec->options.window;
    const fwa_mixer_call call = call_of(layer, ctx, acts, most, fwa_tensor_absent());
    FWA_TRY(layer->kernels->sizes(ctx->backend, &call, &saved, &scratch));
    if (kept_bytes(layer, ctx) > scratch) scratch = kept_bytes(layer, ctx);
    if (scratch > *scratch_bytes) *scratch_bytes = scratch;
    return FWA_OK;
}

fwa_status fwa_mixer_memory_keep_conv(const fwa_mixer_layer *layer, const fwa_layer_context *ctx,
                                      const fwa_mixer_acts *acts, fwa_tensor scratch) {
    fwa_backend *backend = ctx->backend;
    fwa_stream *stream = backend->stream;
    const int64_t W = conv_rows(layer), T = ctx->T, fresh = fwa_min(W, T), kept = W - fresh;
    const size_t size = fwa_dtype_size(backend->compute), row = (size_t)conv_columns(layer) * size;
    const size_t width = (size_t)W * row, stays = (size_t)kept * row, step = (size_t)acts->proj.stride[0] * size;
    if (W == 0) return FWA_OK;
    char *conv = acts->cut.conv.data;
    if (kept > 0) { // to the front, through scratch: the two places overlap
        FWA_TRY(backend->copy_rows(backend, stream, scratch.data, stays, conv + (size_t)fresh * row, width, stays,
                                   (size_t)ctx->B));
        FWA_TRY(backend->copy_rows(backend, stream, conv, width, scratch.data, stays, stays, (size_t)ctx->B));
    }
    for (int64_t i = 0; i < fresh; i++)
        FWA_TRY(backend->copy_rows(backend, stream, conv + (size_t)(kept + i) * row, width,
                                   (const char *)acts->proj.data + (size_t)(T - fresh + i) * step, (size_t)T * step,
                                   row, (size_t)ctx->B));
    return FWA_OK;
}

// tail [B,capacity,heads,K] mst: rows [held, held + T) = x [B,T,heads,K] act.
static fwa_status append(const fwa_layer_context *ctx, fwa_tensor tail, fwa_tensor x) {
    fwa_backend *backend = ctx->backend;
    const int64_t count = fwa_tensor_count(x) / ctx->B;
    const fwa_tensor rows = fwa_tensor_slice(tail, 1, ctx->memory->held, ctx->T);
    const size_t bytes = (size_t)count * fwa_dtype_size(x.dtype);
    if (x.dtype == tail.dtype)
        return backend->copy_rows(backend, backend->stream, rows.data,
                                  (size_t)tail.stride[0] * fwa_dtype_size(tail.dtype), x.data, bytes, bytes,
                                  (size_t)ctx->B);
    for (int64_t b = 0; b < ctx->B; b++)
        FWA_TRY(backend->ops->cast(backend->stream,
                                   fwa_tensor_1d(fwa_tensor_slice(rows, 0, b, 1).data, tail.dtype, count),
                                   fwa_tensor_1d(fwa_tensor_slice(x, 0, b, 1).data, x.dtype, count)));
    return FWA_OK;
}

fwa_status fwa_mixer_memory_forward(const fwa_mixer_layer *layer, const fwa_layer_context *ctx,
                                    const fwa_mixer_acts *acts, fwa_tensor scratch) {
    const fwa_mixer_call call = call_of(layer, ctx, acts, ctx->memory->held, scratch);
    FWA_TRY(layer->kernels->forward(ctx->backend, ctx->backend->stream, &call));
    if (!fwa_mixer_memory_cached(layer)) return FWA_OK;
    const fwa_mixer_state *cache = &ctx->memory->layers[layer->index].state[0];
    FWA_TRY(append(ctx, cache->tail_x, acts->k));
    return append(ctx, cache->tail_v, acts->v);
}
