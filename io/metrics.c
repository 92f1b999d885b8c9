// metrics.jsonl: cut back when a run resumes, then one write a line.
#include "io/metrics.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <jansson.h>

#include "core/log.h"
#include "io/files.h"

struct fwa_metrics {
    char path[FWA_PATH_MAX];
    int file;
};

// Step of one line; false if it is no complete object with a step.
static bool line_step(const char *line, size_t length, int64_t *step) {
    json_t *row = json_loadb(line, length, 0, NULL);
    const json_t *value = json_object_get(row, "step");
    bool complete = json_is_integer(value);
    if (complete) *step = json_integer_value(value);
    json_decref(row);
    return complete;
}

// Moves the lines that stay to the front of `text`; returns their length.
static size_t keep_lines(char *text, const char *path, int64_t keep_step) {
    char *to = text, *end;
    int number = 1;
    for (char *line = text; *line; line = end, number++) {
        char *newline = strchr(line, '\n');
        size_t length = newline ? (size_t)(newline - line) : strlen(line);
        end = line + length + (newline != NULL);
        int64_t step = 0;
        bool complete = line_step(line, length, &step);
        if (!complete && *end) fwa_log_warn("%s:%d: not a metrics row, dropped", path, number);
        if (!complete || !newline || keep_step < 0 || step > keep_step) continue;
        memmove(to, line, length + 1);
        to += length + 1;
    }
    *to = '\0';
    return (size_t)(to - text);
}

static fwa_status cut_back(const char *path, int64_t keep_step) {
    if (!fwa_path_exists(path)) return FWA_OK;
    char *text;
    FWA_TRY(fwa_read_text(path, &text));
    size_t kept = keep_lines(text, path, keep_step);
    struct stat info;
    bool same = stat(path, &info) == 0 && (size_t)info.st_size == kept;
    fwa_status status = same ? FWA_OK : fwa_write_text(path, text);
    free(text);
    FWA_TRY(status);
    return FWA_OK;
}

fwa_status fwa_metrics_open(fwa_metrics **out, const char *path, int64_t keep_step) {
    *out = NULL;
    FWA_TRY(cut_back(path, keep_step));
    fwa_metrics *metrics = calloc(1, sizeof *metrics);
    FWA_CHECK(metrics, FWA_MEMORY, "no memory for %s", path);
    fwa_status status;
    FWA_TRY_GOTO(fwa_path_format(metrics->path, "%s", path), failed);
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

fwa_status fwa_metrics_write(fwa_metrics *metrics, const fwa_metrics_row *row) {
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
    if (row->token_hash) add(&line, ",\"token_hash\":\"%016" PRIx64 "\"", row->token_hash);
    add_real(&line, "time", row->time);
    add(&line, "}\n");
    ssize_t written;
    do {
        written = write(metrics->file, line.text, line.length);
    } while (written < 0 && errno == EINTR);
    FWA_CHECK(written >= 0, FWA_IO, "cannot write %zu bytes to %s: %s", line.length, metrics->path, strerror(errno));
    FWA_CHECK((size_t)written == line.length, FWA_IO, "wrote %zd of %zu bytes to %s: is the disk full?", written,
              line.length, metrics->path);
    return FWA_OK;
}

void fwa_metrics_close(fwa_metrics *metrics) {
    if (!metrics) return;
    close(metrics->file);
    free(metrics);
}
