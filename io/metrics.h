// metrics.jsonl and gates.jsonl of a run: one object a line, appended, flushed line by line. Rank 0 only; not
// collective.
#ifndef FWA_IO_METRICS_H
#define FWA_IO_METRICS_H

#include <stdbool.h>

#include "core/status.h"
#include "core/types.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct fwa_metrics fwa_metrics;

// One line. NaN fields are left out, so is val_loss on steps without evaluation.
typedef struct fwa_metrics_row {
    int64_t step, tokens, skipped, epoch;
    double loss, val_loss, grad_norm, lr, ms, tokens_per_s, mfu, time; // time: seconds since 1970
    int64_t mem_bytes;
    // Of the Falcon rate (docs/math/README.md §6): means of gamma, eta and alpha/eta over the steps of all heads,
    // columns and layers with eta > 0, and the share of these whose alpha the clamp cut. NaN where no rule has them,
    // and on a last row that a signal asked for.
    double gamma_mean, eta_mean, ridge_mean, clamp_share;
    uint64_t token_hash; // of the step's global batch: same data on any number of ranks; 0: left out
} fwa_metrics_row;

// Means of a layer's gates, as in the row: NaN where its rule has none.
typedef struct fwa_layer_gates {
    double gamma_mean, eta_mean, ridge_mean, clamp_share;
} fwa_layer_gates;

// Opens RUN/metrics.jsonl or RUN/gates.jsonl for appending after cutting every line whose step is > keep_step
// (keep_step < 0: all lines go). An incomplete last line is cut as well; other lines that are no rows, also those with
// NULs that a crash of the machine leaves, are dropped with a warning.
FWA_MUST_CHECK fwa_status fwa_metrics_open(fwa_metrics **out, const char *path, int64_t keep_step);
FWA_MUST_CHECK fwa_status fwa_metrics_write(fwa_metrics *metrics, const fwa_metrics_row *row);
// A line of gates.jsonl: the step, and arrays of the means of layers [L], null where a layer has none.
FWA_MUST_CHECK fwa_status fwa_metrics_write_gates(fwa_metrics *metrics, int64_t step, const fwa_layer_gates *layers,
                                                  int64_t L);
// Whether the last row is of `step` and has no val_loss.
bool fwa_metrics_lacks_validation(const fwa_metrics *metrics, int64_t step);
// Writes the last row again, with a val_loss.
FWA_MUST_CHECK fwa_status fwa_metrics_amend(fwa_metrics *metrics, double val_loss);
void fwa_metrics_close(fwa_metrics *metrics);
// The row that a line holds, NaN and 0 for what is not there; false if it is no complete row.
bool fwa_metrics_parse(const char *line, size_t length, fwa_metrics_row *row);
// The last complete row of a run's metrics.jsonl, with the val_loss of the last row that has one; NaN and 0 for what is
// not there. *found is false where there is no file or no row.
FWA_MUST_CHECK fwa_status fwa_metrics_last(const char *path, fwa_metrics_row *row, bool *found);
// Every row of a metrics.jsonl in the order of the file, NaN and 0 for what is not there; the caller frees *rows. Lines
// that are no rows are left out, with a warning for all but an incomplete last one. No file: no rows.
FWA_MUST_CHECK fwa_status fwa_metrics_read(const char *path, fwa_metrics_row **rows, int64_t *count);

#ifdef __cplusplus
}
#endif
#endif
