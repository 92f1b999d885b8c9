// What a run reached, read from its metrics.jsonl.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

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

fwa_status fwa_metrics_last(const char *path, fwa_metrics_row *row, bool *found) {
    char *text = NULL;
    memset(row, 0, sizeof *row);
    row->val_loss = NAN;
    *found = false;
    if (!fwa_path_exists(path)) return FWA_OK;
    FWA_TRY(fwa_read_text(path, &text));
    for (const char *line = text, *end; *line; line = end + (*end == '\n')) {
        end = line + strcspn(line, "\n");
        json_t *json = json_loadb(line, (size_t)(end - line), 0, NULL);
        if (json_is_integer(json_object_get(json, "step"))) {
            take_row(json, row);
            *found = true;
        }
        json_decref(json);
    }
    free(text);
    return FWA_OK;
}
