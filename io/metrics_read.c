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
    double val_loss = real_of(json, "val_loss");
    row->step = integer_of(json, "step");
    row->tokens = integer_of(json, "tokens");
    row->skipped = integer_of(json, "skipped");
    row->epoch = integer_of(json, "epoch");
    row->mem_bytes = integer_of(json, "mem_bytes");
    row->loss = real_of(json, "loss");
    row->grad_norm = real_of(json, "grad_norm");
    row->lr = real_of(json, "lr");
    row->ms = real_of(json, "ms");
    row->tokens_per_s = real_of(json, "tokens_per_s");
    row->mfu = real_of(json, "mfu");
    row->time = real_of(json, "time");
    if (!isnan(val_loss)) row->val_loss = val_loss;
}

// Reads the line at *at, and moves *at behind it. False where it is no complete row.
static bool read_row(const char **at, fwa_metrics_row *row) {
    const char *line = *at, *end = line + strcspn(line, "\n");
    *at = end + (*end == '\n');
    json_t *json = json_loadb(line, (size_t)(end - line), 0, NULL);
    const bool good = json_is_integer(json_object_get(json, "step"));
    if (good) take_row(json, row);
    json_decref(json);
    return good;
}

fwa_status fwa_metrics_last(const char *path, fwa_metrics_row *row, bool *found) {
    char *text = NULL;
    memset(row, 0, sizeof *row);
    row->val_loss = NAN;
    *found = false;
    if (!fwa_path_exists(path)) return FWA_OK;
    FWA_TRY(fwa_read_text(path, &text));
    for (const char *at = text; *at;) *found |= read_row(&at, row);
    free(text);
    return FWA_OK;
}

static fwa_status read_rows(const char *path, const char *text, fwa_metrics_row **rows, int64_t *count) {
    int64_t capacity = 0;
    int number = 1;
    for (const char *at = text; *at; number++) {
        if (*count == capacity) {
            capacity = capacity ? 2 * capacity : 256;
            fwa_metrics_row *more = realloc(*rows, (size_t)capacity * sizeof *more);
            FWA_CHECK(more, FWA_MEMORY, "no memory for %lld rows of %s", (long long)capacity, path);
            *rows = more;
        }
        (*rows)[*count] = (fwa_metrics_row){.val_loss = NAN};
        if (read_row(&at, &(*rows)[*count]))
            ++*count;
        else if (*at)
            fwa_log_warn("%s:%d: not a metrics row, left out", path, number);
    }
    return FWA_OK;
}

fwa_status fwa_metrics_read(const char *path, fwa_metrics_row **rows, int64_t *count) {
    char *text = NULL;
    *rows = NULL;
    *count = 0;
    if (!fwa_path_exists(path)) return FWA_OK;
    FWA_TRY(fwa_read_text(path, &text));
    fwa_status status = read_rows(path, text, rows, count);
    free(text);
    if (status == FWA_OK) return FWA_OK;
    free(*rows);
    *rows = NULL;
    return fwa_error_pass(status, __FILE__, __LINE__, __func__);
}
