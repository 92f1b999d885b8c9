// The first loss of a bench's step.
#include "train/bench/guess.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/rng.h"
#include "train/bench/fill.h"

#define WORK      100000000 // products of the rows' logits
#define ROWS_MOST 1024

// Logits of one id for all rows; n [D,rows], e its embedding times logit_scale.
static void logits_of(double *logits, const double *n, const double *e, int64_t D) {
    for (int r = 0; r < FWA_GUESS_ROWS; r++) logits[r] = 0;
    for (int64_t d = 0; d < D; d++)
        for (int r = 0; r < FWA_GUESS_ROWS; r++) logits[r] += n[d * FWA_GUESS_ROWS + r] * e[d];
}

// Over the ids so far: largest logit, sum of e^{l - largest}, and sums of l and its square.
typedef struct row_sums {
    double largest, exponentials, sum, squares;
} row_sums;

static void add_logit(row_sums *s, double l) {
    if (l > s->largest) {
        s->exponentials *= exp(s->largest - l);
        s->largest = l;
    }
    s->exponentials += exp(l - s->largest);
    s->sum += l;
    s->squares += l * l;
}

static void add_row(fwa_bench_guess *out, const row_sums *row, double vocab) {
    const double mean = row->sum / vocab, loss = row->largest + log(row->exponentials) - mean;
    out->rows++;
    out->loss += loss;
    out->squares += loss * loss;
    out->spread += row->squares / vocab - mean * mean;
}

fwa_status fwa_bench_guess_add(fwa_bench_guess *out, const double *n, const void *E, fwa_dtype type,
                               const fwa_model_spec *model) {
    const int64_t D = model->D;
    double logits[FWA_GUESS_ROWS], *e = malloc((size_t)D * sizeof *e);
    row_sums sums[FWA_GUESS_ROWS];
    FWA_CHECK(e, FWA_MEMORY, "bench: out of memory");
    for (int r = 0; r < FWA_GUESS_ROWS; r++) sums[r] = (row_sums){-INFINITY, 0, 0, 0};
    for (int64_t id = 0; id < model->vocab; id++) {
        for (int64_t d = 0; d < D; d++) e[d] = model->logit_scale * fwa_bench_get(E, type, id * D + d);
        logits_of(logits, n, e, D);
        for (int r = 0; r < FWA_GUESS_ROWS; r++) add_logit(&sums[r], logits[r]);
    }
    for (int r = 0; r < FWA_GUESS_ROWS; r++) add_row(out, &sums[r], (double)model->vocab);
    free(e);
    return FWA_OK;
}

fwa_status fwa_bench_guess_embedding(const fwa_trainer *t, void **E) {
    fwa_backend *backend = t->backend;
    const fwa_tensor value = fwa_value(&t->acts->ctx, t->model->embedding);
    *E = malloc(fwa_tensor_bytes(value));
    FWA_CHECK(*E, FWA_MEMORY, "bench: out of memory for a copy of the embedding");
    FWA_TRY(backend->download(backend, backend->stream, *E, value.data, fwa_tensor_bytes(value)));
    return backend->stream_synchronize(backend, backend->stream);
}

// RMSNorm with weights of 1: column r of n [D,rows].
static void normalize(double *n, const void *row, fwa_dtype type, int64_t r, int64_t D) {
    double squares = 0;
    for (int64_t d = 0; d < D; d++) squares += pow(fwa_bench_get(row, type, d), 2);
    const double scale = 1 / sqrt(squares / (double)D + FWA_NORM_EPS);
    for (int64_t d = 0; d < D; d++) n[d * FWA_GUESS_ROWS + r] = scale * fwa_bench_get(row, type, d);
}

// Rows of what the last block leaves, at random places: those at equal distances may all start a sequence.
static fwa_status take_rows(const fwa_trainer *t, int64_t first, double *n) {
    fwa_backend *backend = t->backend;
    const fwa_tensor from = t->acts->x[t->acts->L];
    const int64_t R = from.shape[0], D = from.shape[1];
    const size_t bytes = (size_t)D * fwa_dtype_size(from.dtype);
    char *row = malloc(bytes);
    fwa_status status = FWA_OK;
    FWA_CHECK(row, FWA_MEMORY, "bench: out of memory");
    for (int64_t r = 0; r < FWA_GUESS_ROWS && status == FWA_OK; r++) {
        const uint64_t at = fwa_rng_below(2, (uint64_t)t->world->rank, (uint64_t)(first + r), (uint64_t)R);
        status = backend->download(backend, backend->stream, row, (const char *)from.data + at * bytes, bytes);
        if (status == FWA_OK) status = backend->stream_synchronize(backend, backend->stream);
        if (status == FWA_OK) normalize(n, row, from.dtype, r, D);
    }
    free(row);
    return status;
}

// Of a large vocabulary the fewest, which take half a second; of a small one, whose rows differ more, many.
static fwa_status guess_here(fwa_bench_guess *out, const fwa_trainer *t, const void *E) {
    const fwa_model_spec *model = &t->model->spec;
    const fwa_dtype type = fwa_value(&t->acts->ctx, t->model->embedding).dtype;
    const int64_t most = WORK / (model->vocab * model->D), rows = fwa_max(FWA_GUESS_ROWS, fwa_min(most, ROWS_MOST));
    double *n = malloc((size_t)(FWA_GUESS_ROWS * model->D) * sizeof *n);
    fwa_status status = FWA_OK;
    FWA_CHECK(n, FWA_MEMORY, "bench: out of memory");
    for (int64_t r = 0; r < rows && status == FWA_OK; r += FWA_GUESS_ROWS) {
        status = take_rows(t, r, n);
        if (status == FWA_OK) status = fwa_bench_guess_add(out, n, E, type, model);
    }
    free(n);
    return status;
}

fwa_status fwa_bench_guess_take(fwa_bench_guess *out, const fwa_trainer *t, const void *E) {
    fwa_comm *all = t->world->all;
    fwa_bench_guess here = {0};
    FWA_TRY(fwa_world_agree(t->world, guess_here(&here, t, E)));
    double sums[] = {here.rows, here.loss, here.squares, here.spread};
    FWA_TRY(all->all_reduce(all, NULL, sums, 4, FWA_F64, FWA_REDUCE_SUM));
    *out = (fwa_bench_guess){sums[0], sums[1], sums[2], sums[3]};
    return FWA_OK;
}

fwa_status fwa_bench_guess_check(const fwa_bench_guess *guess, double loss, double targets) {
    const double mean = guess->loss / guess->rows;
    const double among_rows = fmax(0, guess->squares / guess->rows - mean * mean) / guess->rows;
    const double among_targets = fmax(0, guess->spread) / guess->rows / targets;
    const double limit = 0.01 * mean + 5 * sqrt(among_rows + among_targets);
    FWA_CHECK(
        fabs(loss - mean) < limit, FWA_FAULTY,
        "bench step: check failed: first loss %.4f, where the initial weights give random targets %.4f +- %.4f; no "
        "time is reported",
        loss, mean, limit);
    return FWA_OK;
}
