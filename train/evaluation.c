// Evaluation of the addition task at one operand width.
#include "train/evaluation.h"

#include <stdlib.h>
#include <string.h>

#include "core/rng.h"
#include "train/decoder.h"
#include "train/tasks/task.h"

typedef struct evaluator {
    const fwa_loaded *loaded;
    fwa_addition_measure measure;
    int64_t width, batch, T;
    fwa_activations *acts;
    fwa_decoder *decoder;                    // NULL: answers are not decoded
    fwa_step_state *state;                   // device memory; the losses summed here are not reported
    int32_t *tokens, *targets, *predictions; // [batch,T]
} evaluator;

static void close_evaluator(evaluator *e) {
    fwa_backend *backend = e->loaded->backend;
    fwa_activations_destroy(e->acts);
    fwa_decoder_destroy(e->decoder);
    if (e->state) backend->free(backend, e->state);
    free(e->tokens);
    free(e->targets);
    free(e->predictions);
}

static fwa_status open_evaluator(evaluator *e, bool greedy) {
    const fwa_loaded *l = e->loaded;
    fwa_backend *backend = l->backend;
    e->T = fwa_addition_length((fwa_addition_format)l->config->task.format, e->width) - 1;
    size_t bytes = (size_t)(e->batch * e->T) * sizeof(int32_t);
    FWA_TRY(fwa_activations_create(&e->acts, l->model, backend, e->batch, e->T, false, (fwa_pieces){NULL, 0}));
    fwa_status status = fwa_activations_commit(e->acts);
    if (status == FWA_MEMORY)
        FWA_FAIL(FWA_MEMORY, "%s; lower --batch from %lld", fwa_error_message(), (long long)e->batch);
    FWA_TRY(status);
    FWA_TRY(backend->alloc(backend, (void **)&e->state, sizeof *e->state));
    FWA_TRY(backend->fill(backend, backend->stream, e->state, 0, sizeof *e->state));
    e->tokens = malloc(bytes);
    e->targets = malloc(bytes);
    e->predictions = malloc(bytes);
    FWA_CHECK(e->tokens && e->targets && e->predictions, FWA_MEMORY, "addition evaluation: out of memory");
    return greedy ? fwa_decoder_create(&e->decoder, l, e->batch, e->T) : FWA_OK;
}

static bool all_right(const int32_t *targets, const int32_t *predictions, int64_t T) {
    for (int64_t t = 0; t < T; t++)
        if (targets[t] != FWA_NO_TARGET && targets[t] != predictions[t]) return false;
    return true;
}

// Examples first .. first+count-1; the rest of the batch repeats the first one and is not counted.
static fwa_status draw(evaluator *e, int64_t first, int64_t count) {
    const fwa_config *config = e->loaded->config;
    const uint64_t key = fwa_rng_u64((uint64_t)config->run.seed, fwa_rng_hash("addition evaluation"),
                                     (uint64_t)(2 * e->width + (int64_t)e->measure));
    for (int64_t i = 0; i < e->batch; i++)
        FWA_TRY(fwa_addition_example((fwa_addition_format)config->task.format, e->measure, 1, e->width, key,
                                     first + (i < count ? i : 0), e->T, e->tokens + i * e->T, e->targets + i * e->T));
    return FWA_OK;
}

static fwa_status predict(evaluator *e) {
    fwa_backend *backend = e->loaded->backend;
    FWA_TRY(fwa_model_load(e->acts, e->tokens, e->targets));
    FWA_TRY(fwa_model_evaluate(e->loaded->model, e->acts, e->state));
    FWA_TRY(backend->download(backend, backend->stream, e->predictions, e->acts->head.prediction.data,
                              fwa_tensor_bytes(e->acts->head.prediction)));
    return backend->stream_synchronize(backend, backend->stream);
}

// The largest of the first n logits; the first of equals.
static int32_t most_probable(const double *logits, int64_t n) {
    int32_t best = 0;
    for (int32_t i = 1; i < n; i++)
        if (logits[i] > logits[best]) best = i;
    return best;
}

// The same with every token of the answer read as it was predicted: token t is one where t - 1 has a target.
static fwa_status decode(evaluator *e) {
    const fwa_model_spec *spec = &e->loaded->model->spec;
    int32_t *input = malloc((size_t)e->batch * sizeof *input);
    FWA_CHECK(input, FWA_MEMORY, "addition evaluation: out of memory");
    fwa_status status = fwa_decoder_restart(e->decoder);
    for (int64_t t = 0; t < e->T && status == FWA_OK; t++) {
        for (int64_t i = 0; i < e->batch; i++) {
            const int64_t at = i * e->T + t;
            const bool answer = t > 0 && e->targets[at - 1] != FWA_NO_TARGET;
            input[i] = answer ? e->predictions[at - 1] : e->tokens[at];
        }
        status = fwa_decoder_step(e->decoder, input);
        for (int64_t i = 0; i < e->batch && status == FWA_OK; i++)
            e->predictions[i * e->T + t] = most_probable(e->decoder->logits + i * spec->N, spec->vocab);
    }
    free(input);
    return status;
}

static void count_right(const evaluator *e, int64_t count, int64_t *right) {
    for (int64_t i = 0; i < count; i++) *right += all_right(e->targets + i * e->T, e->predictions + i * e->T, e->T);
}

static fwa_status evaluate(evaluator *e, const fwa_world *world, int64_t examples, bool greedy, int64_t right[2]) {
    FWA_TRY(open_evaluator(e, greedy));
    for (int64_t first = e->batch * world->dp_rank; first < examples; first += e->batch * world->dp_size) {
        const int64_t count = fwa_min(e->batch, examples - first);
        FWA_TRY(draw(e, first, count));
        FWA_TRY(predict(e));
        count_right(e, count, &right[0]);
        if (!greedy) continue;
        FWA_TRY(decode(e));
        count_right(e, count, &right[1]);
    }
    return FWA_OK;
}

fwa_status fwa_evaluate_addition(fwa_world *world, const fwa_loaded *loaded, fwa_addition_measure measure,
                                 int64_t batch, bool greedy, fwa_addition_score *score) {
    evaluator e = {.loaded = loaded, .measure = measure, .width = score->width, .batch = batch};
    int64_t right[2] = {0, 0};
    fwa_status status = evaluate(&e, world, score->examples, greedy, right);
    close_evaluator(&e);
    FWA_TRY(fwa_world_agree(world, status));
    FWA_TRY(world->dp->all_reduce(world->dp, NULL, right, 2, FWA_I64, FWA_REDUCE_SUM));
    score->right[measure] = right[0];
    score->greedy[measure] = right[1];
    return FWA_OK;
}
