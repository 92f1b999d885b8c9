// Evaluation of the addition task: batches of examples of equal length are drawn, read and counted.
#include "train/eval/evaluation.h"

#include <stdlib.h>
#include <string.h>

#include "core/rng.h"
#include "train/eval/decoder.h"
#include "train/eval/eval.h"
#include "train/tasks/task.h"

typedef struct evaluator {
    const fwa_loaded *loaded;
    int64_t batch, T;
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

static fwa_addition_format format_of(const evaluator *e) {
    return (fwa_addition_format)e->loaded->config->task.format;
}

static uint64_t key_of(const evaluator *e, const char *examples, int64_t number) {
    return fwa_rng_u64((uint64_t)e->loaded->config->run.seed, fwa_rng_hash(examples), (uint64_t)number);
}

static uint64_t key_at(const evaluator *e, fwa_addition_measure measure, int64_t width) {
    return key_of(e, "addition evaluation", 2 * width + (int64_t)measure);
}

// Examples first .. first+count-1 at a width; the rest of the batch repeats the first one and is not counted.
static fwa_status draw(evaluator *e, fwa_addition_measure measure, int64_t width, int64_t first, int64_t count) {
    const uint64_t key = key_at(e, measure, width);
    for (int64_t i = 0; i < e->batch; i++)
        FWA_TRY(fwa_addition_example(format_of(e), measure, 1, width, key, first + (i < count ? i : 0), e->T,
                                     e->tokens + i * e->T, e->targets + i * e->T));
    return FWA_OK;
}

static fwa_status predict(evaluator *e) {
    fwa_backend *backend = e->loaded->backend;
    FWA_TRY(fwa_model_load(e->acts, e->tokens, e->targets));
    FWA_TRY(fwa_model_evaluate(e->acts, e->state));
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

static fwa_status evaluate(evaluator *e, const fwa_world *world, fwa_addition_measure measure,
                           const fwa_addition_score *score, bool greedy, int64_t right[2]) {
    FWA_TRY(open_evaluator(e, greedy));
    for (int64_t first = e->batch * world->dp_rank; first < score->examples; first += e->batch * world->dp_size) {
        const int64_t count = fwa_min(e->batch, score->examples - first);
        FWA_TRY(draw(e, measure, score->width, first, count));
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
    evaluator e = {.loaded = loaded, .batch = batch};
    int64_t right[2] = {0, 0};
    e.T = fwa_addition_length(format_of(&e), score->width) - 1;
    fwa_status status = evaluate(&e, world, measure, score, greedy, right);
    close_evaluator(&e);
    FWA_TRY(fwa_world_agree(world, status));
    FWA_TRY(world->dp->all_reduce(world->dp, NULL, right, 2, FWA_I64, FWA_REDUCE_SUM));
    score->right[measure] = right[0];
    score->greedy[measure] = right[1];
    return FWA_OK;
}

// Pairs of a grid whose examples are equally long, T places: their examples are numbered through.
typedef struct peers {
    const fwa_addition_grid *grid;
    int pair[FWA_ADDITION_GRID_WIDTHS * FWA_ADDITION_GRID_WIDTHS], pairs; // row * widths + column
} peers;

static void widths_of(const fwa_addition_grid *grid, int pair, int64_t width[2]) {
    width[0] = grid->width[pair / grid->count];
    width[1] = grid->width[pair % grid->count];
}

static void find_peers(peers *p, int64_t T) {
    int64_t width[2];
    p->pairs = 0;
    for (int i = 0; i < p->grid->count * p->grid->count; i++) {
        widths_of(p->grid, i, width);
        if (fwa_addition_pair_length(FWA_ADDITION_BRACKET, width) - 1 == T) p->pair[p->pairs++] = i;
    }
}

// Examples first .. first+count-1 of the peers, the rest as in `draw`.
static fwa_status draw_peers(evaluator *e, const peers *p, int64_t first, int64_t count) {
    for (int64_t i = 0; i < e->batch; i++) {
        const int64_t number = first + (i < count ? i : 0);
        int64_t width[2];
        widths_of(p->grid, p->pair[number / p->grid->examples], width);
        const uint64_t key = width[0] == width[1]
                                 ? key_at(e, FWA_ADDITION_EXACT, width[0])
                                 : key_of(e, "addition pairs", width[0] * (FWA_ADDITION_MAX_WIDTH + 1) + width[1]);
        FWA_TRY(fwa_addition_pair(FWA_ADDITION_BRACKET, width, key, number % p->grid->examples, e->T,
                                  e->tokens + i * e->T, e->targets + i * e->T));
    }
    return FWA_OK;
}

static void count_peers(const evaluator *e, const peers *p, int64_t first, int64_t count, fwa_addition_cell *cells) {
    for (int64_t i = 0; i < count; i++) {
        const int pair = p->pair[(first + i) / p->grid->examples];
        int64_t width[2];
        widths_of(p->grid, pair, width);
        fwa_addition_cell_count(&cells[pair], fwa_min(width[0], width[1]), e->T, e->targets + i * e->T,
                                e->predictions + i * e->T);
    }
}

// The batches of the peers that are this rank's; *turn is the number of the first of them among those of the grid.
static fwa_status evaluate_peers(evaluator *e, const fwa_world *world, const peers *p, int64_t *turn,
                                 fwa_addition_cell *cells) {
    const int64_t examples = p->pairs * p->grid->examples;
    for (int64_t first = 0; first < examples; first += e->batch, (*turn)++) {
        if (*turn % world->dp_size != world->dp_rank) continue;
        const int64_t count = fwa_min(e->batch, examples - first);
        if (!e->tokens) FWA_TRY(open_evaluator(e, false));
        FWA_TRY(draw_peers(e, p, first, count));
        FWA_TRY(predict(e));
        count_peers(e, p, first, count, cells);
    }
    return FWA_OK;
}

// The longest first: what does not fit into memory is told at once.
static fwa_status evaluate_lengths(const fwa_world *world, const fwa_loaded *loaded, int64_t batch,
                                   fwa_addition_grid *grid) {
    const int64_t longest = fwa_addition_length(FWA_ADDITION_BRACKET, grid->width[grid->count - 1]) - 1;
    int64_t turn = 0, done = 0;
    double said = 0.0;
    for (int64_t T = longest; T > 0; T--) {
        peers p = {.grid = grid};
        find_peers(&p, T);
        evaluator e = {.loaded = loaded, .batch = fwa_min(batch, p.pairs * grid->examples), .T = T};
        fwa_status status = evaluate_peers(&e, world, &p, &turn, grid->cell);
        close_evaluator(&e);
        FWA_TRY(status);
        done += p.pairs;
        fwa_eval_progress(world, &said, done, grid->count * grid->count, "pairs of widths");
    }
    return FWA_OK;
}

fwa_status fwa_evaluate_grid(fwa_world *world, const fwa_loaded *loaded, int64_t batch, fwa_addition_grid *grid) {
    memset(grid->cell, 0, sizeof grid->cell);
    FWA_TRY(fwa_world_agree_late(world, evaluate_lengths(world, loaded, batch, grid)));
    return world->dp->all_reduce(world->dp, NULL, grid->cell,
                                 grid->count * grid->count * (int64_t)(sizeof *grid->cell / sizeof(int64_t)), FWA_I64,
                                 FWA_REDUCE_SUM);
}
