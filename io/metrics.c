// metrics.jsonl and gates.jsonl: cut back when a run resumes, then one write a line.
#include "io/metrics.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <jansson.h>

#include "core/log.h"
#include "io/files.h"

struct fwa_metrics {
    char path[FWA_PATH_MAX];
    int file;
    fwa_metrics_row last; // of those that were there when it was opened
    off_t last_start;     // offset of its line; -1: there was none, or another one follows
};

// Moves the lines that stay to the front of `text`, and remembers the last of them; returns their length.
static size_t keep_lines(char *text, size_t length, const char *path, int64_t keep_step, fwa_metrics *metrics) {
    char *to = text;
    size_t bytes;
    int number = 1;
    for (char *line = text, *end = text + length; line < end; line += bytes, number++) {
        char *newline = memchr(line, '\n', (size_t)(end - line));
        bytes = (size_t)((newline ? newline + 1 : end) - line);
        fwa_metrics_row row;
        bool complete = fwa_metrics_parse(line, bytes, &row);
        if (!complete && line + bytes < end) fwa_log_warn("%s:%d: not a metrics row, dropped", path, number);
        if (!complete || !newline || keep_step < 0 || row.step > keep_step) continue;
        memmove(to, line, bytes);
        metrics->last = row;
        metrics->last_start = to - text;
        to += bytes;
    }
    *to = '\0';
    return (size_t)(to - text);
}

static fwa_status cut_back(fwa_metrics *metrics, int64_t keep_step) {
    const char *path = metrics->path;
    char *text;
    size_t length;
    if (!fwa_path_exists(path)) return FWA_OK;
    FWA_TRY(fwa_read_bytes(path, &text, &length));
    size_t kept = keep_lines(text, length, path, keep_step, metrics);
    fwa_status status = kept == length ? FWA_OK : fwa_write_text(path, text);
    free(text);
    FWA_TRY(status);
    return FWA_OK;
}

fwa_status fwa_metrics_open(fwa_metrics **out, const char *path, int64_t keep_step) {
    *out = NULL;
    fwa_metrics *metrics = calloc(1, sizeof *metrics);
    FWA_CHECK(metrics, FWA_MEMORY, "no memory for %s", path);
    fwa_status status;
    metrics->last_start = -1;
    FWA_TRY_GOTO(fwa_path_format(metrics->path, "%s", path), failed);
    FWA_TRY_GOTO(cut_back(metrics, keep_step), failed);
    metrics->file = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    FWA_CHECK_GOTO(metrics->file >= 0, FWA_IO, failed, "cannot open %s: %s", path, strerror(errno));
    *out = metrics;
    return FWA_OK;
failed:
    free(metrics);
    return status;
}

// A line under construction; the fields are few and short, so it never fills up.
typedef struct row_text {
    char text[1024];
    size_t length;
} row_text;

static void FWA_PRINTF(2, 3) add(row_text *row, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(row->text + row->length, sizeof row->text - row->length, format, arguments);
    va_end(arguments);
    if (length > 0) row->length += (size_t)length;
}

static void add_int(row_text *row, const char *name, int64_t value) {
    add(row, "%c\"%s\":%" PRId64, row->length ? ',' : '{', name, value);
}

// The shortest text that reads back to the same double. JSON has no NaN and no infinity: the field is left out.
static void add_real(row_text *row, const char *name, double value) {
    if (!isfinite(value)) return;
    char number[32];
    for (int digits = 6; digits <= 17; digits++) {
        snprintf(number, sizeof number, "%.*g", digits, value);
        if (strtod(number, NULL) == value) break;
    }
    add(row, ",\"%s\":%s", name, number);
}

static fwa_status write_line(const fwa_metrics *metrics, const char *text, size_t length) {
    ssize_t written;
    do {
        written = write(metrics->file, text, length);
    } while (written < 0 && errno == EINTR);
    FWA_CHECK(written >= 0, FWA_IO, "cannot write %zu bytes to %s: %s", length, metrics->path, strerror(errno));
    FWA_CHECK((size_t)written == length, FWA_IO, "wrote %zd of %zu bytes to %s: is the disk full?", written, length,
              metrics->path);
    return FWA_OK;
}

fwa_status fwa_metrics_write(fwa_metrics *metrics, const fwa_metrics_row *row) {
    metrics->last_start = -1;
    row_text line = {.length = 0};
    add_int(&line, "step", row->step);
    add_int(&line, "tokens", row->tokens);
    add_real(&line, "loss", row->loss);
    add_real(&line, "val_loss", row->val_loss);
    add_real(&line, "grad_norm", row->grad_norm);
    add_real(&line, "lr", row->lr);
    add_real(&line, "ms", row->ms);
    add_real(&line, "tokens_per_s", row->tokens_per_s);
    add_real(&line, "mfu", row->mfu);
    add_int(&line, "mem_bytes", row->mem_bytes);
    add_int(&line, "skipped", row->skipped);
    add_int(&line, "epoch", row->epoch);
    add_real(&line, "gamma_mean", row->gamma_mean);
    add_real(&line, "eta_mean", row->eta_mean);
    add_real(&line, "ridge_mean", row->ridge_mean);
    add_real(&line, "clamp_share", row->clamp_share);
    if (row->token_hash) add(&line, ",\"token_hash\":\"%016" PRIx64 "\"", row->token_hash);
    add_real(&line, "time", row->time);
    add(&line, "}\n");
    return write_line(metrics, line.text, line.length);
}

// The means at `at` bytes of a layer's, of all layers.
static json_t *means_of(const fwa_layer_gates *layers, int64_t L, size_t at) {
    json_t *means = json_array();
    for (int64_t l = 0; l < L; l++) {
        double mean;
        memcpy(&mean, (const char *)&layers[l] + at, sizeof mean);
        json_array_append_new(means, isfinite(mean) ? json_real(mean) : json_null());
    }
    return means;
}

fwa_status fwa_metrics_write_gates(fwa_metrics *metrics, int64_t step, const fwa_layer_gates *layers, int64_t L) {
    json_t *row = json_pack("{s:I}", "step", (json_int_t)step);
    const struct {
        const char *name;
        size_t at;
    } means[] = {{"gamma_mean", offsetof(fwa_layer_gates, gamma_mean)},
                 {"eta_mean", offsetof(fwa_layer_gates, eta_mean)},
                 {"ridge_mean", offsetof(fwa_layer_gates, ridge_mean)},
                 {"clamp_share", offsetof(fwa_layer_gates, clamp_share)}};
    for (size_t i = 0; i < sizeof means / sizeof means[0]; i++)
        json_object_set_new(row, means[i].name, means_of(layers, L, means[i].at));
    char *text = row ? json_dumps(row, JSON_COMPACT | JSON_REAL_PRECISION(9)) : NULL;
    json_decref(row);
    FWA_CHECK(text, FWA_MEMORY, "no memory for a row of %s", metrics->path);
    size_t length = strlen(text);
    text[length++] = '\n'; // in place of the end
    fwa_status status = write_line(metrics, text, length);
    free(text);
    FWA_TRY(status);
    return FWA_OK;
}

bool fwa_metrics_lacks_validation(const fwa_metrics *metrics, int64_t step) {
    return metrics->last_start >= 0 && metrics->last.step == step && isnan(metrics->last.val_loss);
}

fwa_status fwa_metrics_amend(fwa_metrics *metrics, double val_loss) {
    FWA_CHECK(metrics->last_start >= 0, FWA_ERROR, "%s: got no last row to amend, expected one", metrics->path);
    fwa_metrics_row row = metrics->last;
    row.val_loss = val_loss;
    FWA_CHECK(ftruncate(metrics->file, metrics->last_start) == 0, FWA_IO, "cannot shorten %s: %s", metrics->path,
              strerror(errno));
    return fwa_metrics_write(metrics, &row);
}

void fwa_metrics_close(fwa_metrics *metrics) {
    if (!metrics) return;
    close(metrics->file);
    free(metrics);
}
