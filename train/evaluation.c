// Evaluation of the addition task by operand width.
#include "train/evaluation.h"

#include <stdlib.h>
#include <string.h>

#include "core/rng.h"
#include "train/tasks/task.h"

typedef struct evaluator {
    fwa_world *world;
    fwa_model *model;
    fwa_backend *backend;
    const fwa_config *config;
    fwa_activations *acts;
    fwa_step_state *state;                   // device memory; the losses summed here are not reported
    int32_t *tokens, *targets, *predictions; // [batch,T]
    int64_t batch, T;
} evaluator;

static void close_evaluator(evaluator *e) {
    fwa_activations_destroy(e->acts);
    if (e->state) e->backend->free(e->backend, e->state);
    free(e->tokens);
    free(e->targets);
    free(e->predictions);
}

static fwa_status open_evaluator(evaluator *e, int64_t width) {
    e->T = fwa_addition_length((fwa_addition_format)e->config->task.format, width) - 1;
    size_t bytes = (size_t)(e->batch * e->T) * sizeof(int32_t);
    FWA_TRY(fwa_activations_create(&e->acts, e->model, e->backend, e->batch, e->T, false, (fwa_pieces){NULL, 0}));
    fwa_status status = fwa_activations_commit(e->acts);
    if (status == FWA_MEMORY)
        FWA_FAIL(FWA_MEMORY, "%s; lower --batch from %lld", fwa_error_message(), (long long)e->batch);
    FWA_TRY(status);
    FWA_TRY(e->backend->alloc(e->backend, (void **)&e->state, sizeof *e->state));
    FWA_TRY(e->backend->fill(e->backend, e->backend->stream, e->state, 0, sizeof *e->state));
    e->tokens = malloc(bytes);
    e->targets = malloc(bytes);
    e->predictions = malloc(bytes);
    FWA_CHECK(e->tokens && e->targets && e->predictions, FWA_MEMORY, "addition evaluation: out of memory");
    return FWA_OK;
}

static bool all_right(const int32_t *targets, const int32_t *predictions, int64_t T) {
    for (int64_t t = 0; t < T; t++)
        if (targets[t] != FWA_NO_TARGET && targets[t] != predictions[t]) return false;
    return true;
}

// Examples first .. first+count-1; the rest of the batch repeats the first one and is not counted.
static fwa_status run_batch(evaluator *e, fwa_addition_measure measure, int64_t width, int64_t first, int64_t count,
                            int64_t *right) {
    uint64_t key = fwa_rng_u64((uint64_t)e->config->run.seed, fwa_rng_hash("addition evaluation"),
                               (uint64_t)(2 * width + (int64_t)measure));
    for (int64_t i = 0; i < e->batch; i++)
        FWA_TRY(fwa_addition_example((fwa_addition_format)e->config->task.format, measure, 1, width, key,
                                     first + (i < count ? i : 0), e->T, e->tokens + i * e->T, e->targets + i * e->T));
    FWA_TRY(fwa_model_load(e->acts, e->tokens, e->targets));
    FWA_TRY(fwa_model_evaluate(e->model, e->acts, e->state));
    FWA_TRY(e->backend->download(e->backend, e->backend->stream, e->predictions, e->acts->head.prediction.data,
                                 fwa_tensor_bytes(e->acts->head.prediction)));
    FWA_TRY(e->backend->stream_synchronize(e->backend, e->backend->stream));
    for (int64_t i = 0; i < count; i++) *right += all_right(e->targets + i * e->T, e->predictions + i * e->T, e->T);
    return FWA_OK;
}

static fwa_status evaluate(evaluator *e, int64_t width, int64_t examples, fwa_addition_score *score) {
    const fwa_world *world = e->world;
    for (int measure = 0; measure < 2; measure++)
        for (int64_t first = 0; first < examples; first += e->batch * world->dp_size) {
            int64_t mine = first + e->batch * world->dp_rank;
            int64_t count = fwa_min(e->batch, examples - mine);
            if (count > 0)
                FWA_TRY(run_batch(e, (fwa_addition_measure)measure, width, mine, count, &score->right[measure]));
        }
    return FWA_OK;
}

fwa_status fwa_evaluate_addition(fwa_world *world, fwa_model *model, fwa_backend *backend, const fwa_config *config,
                                 int64_t width, int64_t examples, int64_t batch, fwa_addition_score *score) {
    fwa_status status = FWA_OK;
    evaluator e;
    memset(&e, 0, sizeof e);
    memset(score, 0, sizeof *score);
    e.world = world;
    e.model = model;
    e.backend = backend;
    e.config = config;
    e.batch = batch;
    score->width = width;
    score->examples = examples;
    status = open_evaluator(&e, width);
    if (status == FWA_OK) status = evaluate(&e, width, examples, score);
    FWA_TRY_GOTO(fwa_world_agree(world, status), done);
    FWA_TRY_GOTO(world->dp->all_reduce(world->dp, backend->stream, score->right, 2, FWA_I64, FWA_REDUCE_SUM), done);
done:
    close_evaluator(&e);
    return status;
}
