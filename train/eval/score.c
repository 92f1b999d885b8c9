// Log-probabilities of the ends of token sequences.
#include "train/eval/score.h"

#include <stdlib.h>
#include <string.h>

#include "train/eval/eval.h"
#include "train/tasks/task.h"

#define LENGTH_STEP 32 // sequences are padded to a multiple: few shapes for the activations

typedef struct scorer {
    const fwa_loaded *loaded;
    const fwa_score_request *requests;
    fwa_score *scores;
    fwa_step_state *state;                   // device memory; what is summed there is not read
    fwa_activations *acts;                   // of the shape at hand
    int32_t *tokens, *targets, *predictions; // [B,T]
    void *losses;                            // [B,T] mst
    fwa_rows *ranges;                        // [B]
    int64_t B, T;
} scorer;

static int64_t padded_length(const fwa_score_request *r) {
    return fwa_round_up(r->count - 1, LENGTH_STEP);
}

typedef struct place {
    int64_t length, index;
} place;

// Longest first, so that the largest batch is the first to fail; equals in their order.
static int compare(const void *a, const void *b) {
    const place *x = a, *y = b;
    if (x->length != y->length) return x->length < y->length ? 1 : -1;
    return x->index < y->index ? -1 : 1;
}

static fwa_status sort_by_length(const fwa_score_request *requests, int64_t count, place **out) {
    place *order = malloc((size_t)count * sizeof *order);
    FWA_CHECK(order, FWA_MEMORY, "no memory to sort %lld sequences", (long long)count);
    for (int64_t i = 0; i < count; i++) order[i] = (place){padded_length(&requests[i]), i};
    qsort(order, (size_t)count, sizeof *order, compare);
    *out = order;
    return FWA_OK;
}

static void close_shape(scorer *s) {
    fwa_activations_destroy(s->acts);
    free(s->tokens);
    free(s->targets);
    free(s->predictions);
    free(s->losses);
    free(s->ranges);
    s->acts = NULL;
    s->tokens = s->targets = s->predictions = NULL;
    s->losses = NULL;
    s->ranges = NULL;
}

static fwa_status open_shape(scorer *s, int64_t B, int64_t T) {
    fwa_backend *backend = s->loaded->backend;
    const size_t places = (size_t)(B * T);
    close_shape(s);
    s->B = B;
    s->T = T;
    FWA_TRY(fwa_activations_create(&s->acts, s->loaded->model, backend, B, T, false, (fwa_pieces){NULL, 0}));
    fwa_status status = fwa_activations_commit(s->acts);
    if (status == FWA_MEMORY) FWA_FAIL(FWA_MEMORY, "%s; lower --batch from %lld", fwa_error_message(), (long long)B);
    FWA_TRY(status);
    s->tokens = malloc(places * sizeof *s->tokens);
    s->targets = malloc(places * sizeof *s->targets);
    s->predictions = malloc(places * sizeof *s->predictions);
    s->losses = malloc(places * fwa_dtype_size(backend->master));
    s->ranges = malloc((size_t)B * sizeof *s->ranges);
    FWA_CHECK(s->tokens && s->targets && s->predictions && s->losses && s->ranges, FWA_MEMORY,
              "no memory for a batch of %lld sequences of %lld tokens", (long long)B, (long long)T);
    return FWA_OK;
}

// Row i of the batch; NULL: padding. Its scored places go behind the `used` targets.
static int64_t put_row(scorer *s, int64_t i, const fwa_score_request *r, int64_t used) {
    int32_t *tokens = s->tokens + i * s->T;
    for (int64_t t = 0; t < s->T; t++) tokens[t] = r && t < r->count - 1 ? r->tokens[t] : 0;
    if (!r) return used;
    s->ranges[i] = (fwa_rows){i * s->T + r->first - 1, r->count - r->first};
    memcpy(s->targets + used, r->tokens + r->first, (size_t)s->ranges[i].count * sizeof *s->targets);
    return used + s->ranges[i].count;
}

static void take_row(const scorer *s, int64_t from, int64_t count, fwa_score *score) {
    const bool f64 = s->loaded->backend->master == FWA_F64;
    *score = (fwa_score){0.0, 1.0};
    for (int64_t at = from; at < from + count; at++) {
        score->logprob -= f64 ? ((const double *)s->losses)[at] : (double)((const float *)s->losses)[at];
        if (s->predictions[at] != s->targets[at]) score->greedy = 0.0;
    }
}

static fwa_status run_batch(scorer *s, const place *rows, int64_t stride, int64_t count) {
    fwa_backend *backend = s->loaded->backend;
    int64_t used = 0;
    for (int64_t i = 0; i < s->B; i++)
        used = put_row(s, i, i < count ? &s->requests[rows[i * stride].index] : NULL, used);
    FWA_TRY(fwa_model_score(s->acts, s->tokens, s->targets, s->ranges, count, s->state));
    FWA_TRY(backend->download(backend, backend->stream, s->losses, s->acts->head.loss.data,
                              (size_t)used * fwa_dtype_size(backend->master)));
    FWA_TRY(backend->download(backend, backend->stream, s->predictions, s->acts->head.prediction.data,
                              (size_t)used * sizeof *s->predictions));
    FWA_TRY(backend->stream_synchronize(backend, backend->stream));
    for (int64_t i = 0, at = 0; i < count; at += s->ranges[i++].count)
        take_row(s, at, s->ranges[i].count, &s->scores[rows[i * stride].index]);
    return FWA_OK;
}

// Every dp_size-th sequence in the order of lengths is this rank's: all ranks have equally long ones.
static fwa_status run(scorer *s, const fwa_world *world, const place *order, int64_t all, int64_t batch) {
    const int64_t stride = world->dp_size;
    double said = 0.0;
    for (int64_t i = world->dp_rank; i < all;) {
        int64_t equal = 0; // of one length, from i on
        while (i + equal * stride < all && order[i + equal * stride].length == order[i].length) equal++;
        const int64_t B = fwa_ceil_div(equal, fwa_ceil_div(equal, batch));
        FWA_TRY(open_shape(s, B, order[i].length));
        for (int64_t done = 0; done < equal; done += B) {
            const int64_t count = fwa_min(B, equal - done);
            FWA_TRY(run_batch(s, order + i + done * stride, stride, count));
            fwa_eval_progress(world, &said, i + (done + count) * stride, all, "sequences");
        }
        i += equal * stride;
    }
    return FWA_OK;
}

static fwa_status score(scorer *s, const fwa_world *world, int64_t count, int64_t batch) {
    fwa_backend *backend = s->loaded->backend;
    place *order = NULL;
    FWA_TRY(sort_by_length(s->requests, count, &order));
    fwa_status status = backend->alloc(backend, (void **)&s->state, sizeof *s->state);
    if (status == FWA_OK) status = backend->fill(backend, backend->stream, s->state, 0, sizeof *s->state);
    if (status == FWA_OK) status = run(s, world, order, count, batch);
    free(order);
    return status;
}

fwa_status fwa_score_all(fwa_world *world, const fwa_loaded *loaded, const fwa_score_request *requests, int64_t count,
                         int64_t batch, fwa_score *scores) {
    scorer s = {.loaded = loaded, .requests = requests, .scores = scores};
    if (count == 0) return FWA_OK;
    memset(scores, 0, (size_t)count * sizeof *scores);
    fwa_status status = score(&s, world, count, batch);
    close_shape(&s);
    if (s.state) loaded->backend->free(loaded->backend, s.state);
    FWA_TRY(fwa_world_agree_late(world, status));
    // Others have zeros where this rank has its scores.
    return world->dp->all_reduce(world->dp, NULL, scores, 2 * count, FWA_F64, FWA_REDUCE_SUM);
}
