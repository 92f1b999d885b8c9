// Logits of a fixed sequence.
#include "train/convert/export_logits.h"

#include <stdlib.h>
#include <string.h>

#include "core/bf16.h"
#include "core/rng.h"
#include "io/safetensors.h"
#include "train/eval/loaded.h"
#include "train/tasks/task.h"

#define MARK_EVERY 11 // tokens: where documents part, there are several

typedef struct answer {
    int32_t *tokens, *targets; // [count]
    int64_t *wide;             // [count] tokens, as they are written
    void *logits;              // [count,N] of the compute type
} answer;

static void release(answer *a) {
    free(a->tokens);
    free(a->targets);
    free(a->wide);
    free(a->logits);
}

static fwa_status make_tokens(answer *a, int64_t count, const fwa_model *model, fwa_dtype type) {
    a->tokens = malloc((size_t)count * sizeof *a->tokens);
    a->targets = malloc((size_t)count * sizeof *a->targets);
    a->wide = malloc((size_t)count * sizeof *a->wide);
    a->logits = malloc((size_t)(count * model->spec.N) * fwa_dtype_size(type));
    FWA_CHECK(a->tokens && a->targets && a->wide && a->logits, FWA_MEMORY, "no memory for logits of %lld tokens",
              (long long)count);
    for (int64_t i = 0; i < count; i++) {
        a->tokens[i] = (int32_t)fwa_rng_below(0, fwa_rng_hash("logits"), (uint64_t)i, (uint64_t)model->spec.vocab);
        if (model->spec.reset_documents && i % MARK_EVERY == MARK_EVERY / 2) a->tokens[i] = model->spec.document;
        a->wide[i] = a->tokens[i];
        a->targets[i] = FWA_NO_TARGET;
    }
    return FWA_OK;
}

// The head works on a piece of the rows at a time and leaves the last piece's logits.
static fwa_status run(const fwa_loaded *l, fwa_activations *acts, fwa_step_state *state, answer *a) {
    fwa_backend *backend = l->backend;
    FWA_TRY(fwa_activations_commit(acts));
    FWA_CHECK(acts->head.rows >= acts->ctx.T, FWA_CONFIG, "--logits: at most %lld tokens fit at once",
              (long long)acts->head.rows);
    FWA_TRY(backend->fill(backend, backend->stream, state, 0, sizeof *state));
    FWA_TRY(fwa_model_load(acts, a->tokens, a->targets));
    FWA_TRY(fwa_model_evaluate(acts, state));
    const fwa_tensor logits = fwa_tensor_slice(acts->head.logits, 0, 0, acts->ctx.T);
    FWA_TRY(backend->download(backend, backend->stream, a->logits, logits.data, fwa_tensor_bytes(logits)));
    return backend->stream_synchronize(backend, backend->stream);
}

static fwa_status compute(const fwa_loaded *l, int64_t count, answer *a) {
    fwa_activations *acts = NULL;
    void *state = NULL;
    fwa_status status;
    FWA_TRY_GOTO(make_tokens(a, count, l->model, l->backend->compute), done);
    FWA_TRY_GOTO(l->backend->alloc(l->backend, &state, sizeof(fwa_step_state)), done);
    FWA_TRY_GOTO(
        fwa_activations_create(&acts, l->model, l->backend, 1, count, false, (fwa_pieces){.sp = NULL, .heads = 0}),
        done);
    FWA_TRY_GOTO(run(l, acts, state, a), done);
done:
    fwa_activations_destroy(acts);
    if (state) l->backend->free(l->backend, state);
    return status;
}

// A row [vocab] of [count,N] in f32 or f64.
static fwa_status put_row(fwa_safetensors_writer *writer, const void *logits, fwa_dtype type, int64_t first,
                          int64_t vocab, float *row) {
    if (type != FWA_BF16)
        return fwa_safetensors_put(writer, (const char *)logits + (size_t)first * fwa_dtype_size(type),
                                   vocab * (int64_t)fwa_dtype_size(type));
    for (int64_t j = 0; j < vocab; j++) row[j] = fwa_bf16_to_float(((const uint16_t *)logits)[first + j]);
    return fwa_safetensors_put(writer, row, vocab * (int64_t)sizeof *row);
}

static fwa_status put_all(fwa_safetensors_writer *writer, const fwa_loaded *l, const answer *a, int64_t count) {
    const int64_t vocab = l->model->spec.vocab, N = l->model->spec.N;
    float *row = malloc((size_t)vocab * sizeof *row);
    FWA_CHECK(row, FWA_MEMORY, "no memory for a row of logits");
    fwa_status status = fwa_safetensors_put(writer, a->wide, count * (int64_t)sizeof *a->wide);
    for (int64_t i = 0; i < count && status == FWA_OK; i++)
        status = put_row(writer, a->logits, l->backend->compute, i * N, vocab, row);
    free(row);
    return status;
}

static fwa_status write_file(const fwa_loaded *l, const answer *a, int64_t count, const char *path) {
    const int64_t shape[2] = {count, l->model->spec.vocab};
    const fwa_dtype stored = l->backend->compute == FWA_F64 ? FWA_F64 : FWA_F32;
    const fwa_safetensor tensors[2] = {fwa_safetensor_about("tokens", FWA_I64, 1, shape),
                                       fwa_safetensor_about("logits", stored, 2, shape)};
    fwa_safetensors_writer *writer = NULL;
    FWA_TRY(fwa_safetensors_begin(&writer, path, tensors, 2));
    fwa_status status = put_all(writer, l, a, count), ended = fwa_safetensors_end(writer, status == FWA_OK);
    return status == FWA_OK ? ended : status;
}

fwa_status fwa_export_logits(fwa_world *world, const char *checkpoint, const fwa_arguments *arguments, int64_t count,
                             const char *path) {
    fwa_loaded loaded;
    answer a = {NULL, NULL, NULL, NULL};
    fwa_status status = fwa_loaded_open(&loaded, world, checkpoint, arguments->at + 2, arguments->count - 2);
    if (status == FWA_OK) status = compute(&loaded, count, &a);
    if (status == FWA_OK) status = write_file(&loaded, &a, count, path);
    release(&a);
    fwa_loaded_close(&loaded);
    return status;
}
