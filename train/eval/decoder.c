// Reading text and asking what comes next.
#include "train/eval/decoder.h"

#include <stdlib.h>
#include <string.h>

#include "core/bf16.h"

static fwa_status build(fwa_decoder *d, int64_t B, int64_t context) {
    const fwa_loaded *l = d->loaded;
    const size_t places = (size_t)(B * l->model->spec.N);
    FWA_TRY(fwa_memory_create(&d->memory, l->model, l->backend, B, context));
    FWA_TRY(fwa_activations_create_over(&d->one, d->memory, 1));
    FWA_TRY(fwa_activations_commit(d->one));
    const bool blocks = B == 1 && (d->memory->capacity == 0 || d->memory->capacity >= FWA_DECODER_BLOCK);
    if (blocks) {
        FWA_TRY(fwa_activations_create_over(&d->block, d->memory, FWA_DECODER_BLOCK));
        FWA_TRY(fwa_activations_commit(d->block));
    }
    d->row = malloc(places * fwa_dtype_size(l->backend->compute));
    d->logits = malloc(places * sizeof *d->logits);
    FWA_CHECK(d->row && d->logits, FWA_MEMORY, "no memory for the logits of %lld sequences", (long long)B);
    return FWA_OK;
}

fwa_status fwa_decoder_create(fwa_decoder **out, const fwa_loaded *loaded, int64_t B, int64_t context) {
    fwa_decoder *d = calloc(1, sizeof *d);
    *out = NULL;
    FWA_CHECK(d, FWA_MEMORY, "decoder: out of memory");
    d->loaded = loaded;
    fwa_status status = build(d, B, context);
    if (status != FWA_OK) {
        fwa_decoder_destroy(d);
        return fwa_error_pass(status, __FILE__, __LINE__, __func__);
    }
    *out = d;
    return FWA_OK;
}

void fwa_decoder_destroy(fwa_decoder *d) {
    if (!d) return;
    fwa_activations_destroy(d->one);
    fwa_activations_destroy(d->block);
    fwa_memory_destroy(d->memory);
    free(d->pending.at);
    free(d->row);
    free(d->logits);
    free(d);
}

int64_t fwa_decoder_position(const fwa_decoder *d) {
    return d->memory->position + (int64_t)d->pending.count;
}

static bool starts_document(const fwa_decoder *d, int32_t token) {
    const fwa_model_spec *spec = &d->loaded->model->spec;
    return spec->reset_documents && token == spec->document;
}

// Whether the next tokens are a whole block, in which no document starts, with more behind it: the token in front of a
// question is read alone.
static bool block_ahead(const fwa_decoder *d, const int32_t *tokens, int64_t count) {
    if (!d->block || count <= FWA_DECODER_BLOCK || d->memory->position % FWA_DECODER_BLOCK != 0) return false;
    for (int64_t i = 1; i < FWA_DECODER_BLOCK; i++)
        if (starts_document(d, tokens[i])) return false;
    return true;
}

// Reads tokens [0, count) but, unless `all`, the last one and those that may yet become part of a block; *done of them.
static fwa_status read_on(fwa_decoder *d, const int32_t *tokens, int64_t count, bool all, int64_t *done) {
    *done = 0;
    while (*done < count) {
        const int64_t left = count - *done, ahead = FWA_DECODER_BLOCK - d->memory->position % FWA_DECODER_BLOCK;
        const int32_t *next = tokens + *done;
        if (!all && left <= (d->block ? ahead : 1)) break;
        if (starts_document(d, *next)) FWA_TRY(fwa_memory_forget(d->memory));
        const bool block = block_ahead(d, next, left);
        FWA_TRY(fwa_model_read(block ? d->block : d->one, next));
        *done += block ? FWA_DECODER_BLOCK : 1;
    }
    return FWA_OK;
}

// Reads what is pending and leaves the rest there.
static fwa_status read_pending(fwa_decoder *d, bool all) {
    int64_t done;
    FWA_TRY(read_on(d, d->pending.at, (int64_t)d->pending.count, all, &done));
    d->pending.count -= (size_t)done;
    memmove(d->pending.at, d->pending.at + done, d->pending.count * sizeof *d->pending.at);
    return FWA_OK;
}

fwa_status fwa_decoder_take(fwa_decoder *d, const int32_t *tokens, int64_t count) {
    FWA_TRY(fwa_tokens_reserve(&d->pending, (size_t)count));
    memcpy(d->pending.at + d->pending.count, tokens, (size_t)count * sizeof *tokens);
    d->pending.count += (size_t)count;
    return read_pending(d, false);
}

static void widen(double *to, const void *from, fwa_dtype dtype, int64_t count) {
    for (int64_t i = 0; i < count; i++)
        to[i] = dtype == FWA_F64   ? ((const double *)from)[i]
                : dtype == FWA_F32 ? (double)((const float *)from)[i]
                                   : (double)fwa_bf16_to_float(((const uint16_t *)from)[i]);
}

static fwa_status fetch_logits(fwa_decoder *d) {
    fwa_backend *backend = d->loaded->backend;
    const fwa_tensor logits = d->one->head.logits;
    FWA_TRY(fwa_model_logits(d->one));
    FWA_TRY(backend->download(backend, backend->stream, d->row, logits.data, fwa_tensor_bytes(logits)));
    FWA_TRY(backend->stream_synchronize(backend, backend->stream));
    widen(d->logits, d->row, logits.dtype, fwa_tensor_count(logits));
    return FWA_OK;
}

fwa_status fwa_decoder_ask(fwa_decoder *d) {
    FWA_CHECK(d->pending.count > 0, FWA_ERROR, "decoder: nothing was taken since it was asked last");
    FWA_TRY(read_pending(d, true));
    return fetch_logits(d);
}

fwa_status fwa_decoder_step(fwa_decoder *d, const int32_t *tokens) {
    FWA_TRY(fwa_model_read(d->one, tokens));
    return fetch_logits(d);
}

fwa_status fwa_decoder_restart(fwa_decoder *d) {
    d->memory->position = 0;
    d->pending.count = 0;
    return fwa_memory_forget(d->memory);
}
