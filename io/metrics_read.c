// What a run reached, read from its metrics.jsonl.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "core/log.h"
#include "io/files.h"
#include "io/metrics.h"

static double real_of(const json_t *row, const char *name) {
    const json_t *value = json_object_get(row, name);
    return json_is_number(value) ? json_number_value(value) : NAN;
}

static int64_t integer_of(const json_t *row, const char *name) {
    return json_integer_value(json_object_get(row, name)); // 0 for anything else
}

static void take_row(const json_t *json, fwa_metrics_row *row) {
    const char *hash = json_string_value(json_object_get(json, "token_hash"));
    row->step = integer_of(json, "step");
    row->tokens = integer_of(json, "tokens");
    row->skipped = integer_of(json, "skipped");
    row->epoch = integer_of(json, "epoch");
    row->mem_bytes = integer_of(json, "mem_bytes");
    row->loss = real_of(json, "loss");
    row->val_loss = real_of(json, "val_loss");
    row->grad_norm = real_of(json, "grad_norm");
    row->lr = real_of(json, "lr");
    row->ms = real_of(json, "ms");
    row->tokens_per_s = real_of(json, "tokens_per_s");
    row->mfu = real_of(json, "mfu");
    row->time = real_of(json, "time");
    row->gamma_mean = real_of(json, "gamma_mean");
    row->eta_mean = real_of(json, "eta_mean");
    row->ridge_mean = real_of(json, "ridge_mean");
    row->clamp_share = real_of(json, "clamp_share");
    row->token_hash = hash ? strtoull(hash, NULL, 16) : 0;
}

bool fwa_metrics_parse(const char *line, size_t length, fwa_metrics_row *row) {
    json_t *json = json_loadb(line, length, 0, NULL);
    bool complete = json_is_integer(json_object_get(json, "step"));
    if (complete) take_row(json, row);
    json_decref(json);
    return complete;
}

// Lines of a text of known length: a crash of the machine may leave NULs in it.
typedef struct lines {
    const char *at, *end;
} lines;

// Reads the next line. False where it is no complete row.
static bool read_row(lines *text, fwa_metrics_row *row) {
    const char *line = text->at, *newline = memchr(line, '\n', (size_t)(text->end - line));
    const char *behind = newline ? newline : text->end;
    text->at = newline ? newline + 1 : text->end;
    return fwa_metrics_parse(line, (size_t)(behind - line), row);
}

fwa_status fwa_metrics_last(const char *path, fwa_metrics_row *row, bool *found) {
    char *text = NULL;
    size_t length = 0;
    double val_loss = NAN;
    memset(row, 0, sizeof *row);
    *found = false;
    if (fwa_path_exists(path)) FWA_TRY(fwa_read_bytes(path, &text, &length));
    for (lines l = {text, text + length}; l.at < l.end;) {
        if (!read_row(&l, row)) continue;
        if (!isnan(row->val_loss)) val_loss = row->val_loss;
        *found = true;
    }
    row->val_loss = val_loss;
    free(text);
    return FWA_OK;
}

static fwa_status read_rows(const char *path, lines text, fwa_metrics_row **rows, int64_t *count) {
    int64_t capacity = 0;
    for (int number = 1; text.at < text.end; number++) {
        if (*count == capacity) {
            capacity = capacity ? 2 * capacity : 256;
            fwa_metrics_row *more = realloc(*rows, (size_t)capacity * sizeof *more);
            FWA_CHECK(more, FWA_MEMORY, "no memory for %lld rows of %s", (long long)capacity, path);
            *rows = more;
        }
        if (read_row(&text, &(*rows)[*count]))
            ++*count;
        else if (text.at < text.end)
            fwa_log_warn("%s:%d: not a metrics row, left out", path, number);
    }
    return FWA_OK;
}

fwa_status fwa_metrics_read(const char *path, fwa_metrics_row **rows, int64_t *count) {
    char *text = NULL;
    size_t length = 0;
    *rows = NULL;
    *count = 0;
    if (!fwa_path_exists(path)) return FWA_OK;
    FWA_TRY(fwa_read_bytes(path, &text, &length));
    fwa_status status = read_rows(path, (lines){text, text + length}, rows, count);
    free(text);
    if (status == FWA_OK) return FWA_OK;
    free(*rows);
    *rows = NULL;
    return fwa_error_pass(status, __FILE__, __LINE__, __func__);
}
