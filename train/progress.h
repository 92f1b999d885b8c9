// What a person sees while training: a table at the start, a line a log interval, a live line on a terminal.
// Rank 0 only.
#ifndef FWA_TRAIN_PROGRESS_H
#define FWA_TRAIN_PROGRESS_H

#include <stdbool.h>

#include "core/status.h"
#include "core/types.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct fwa_progress {
    int64_t step, steps;   // done, of all
    double loss, val_loss; // val_loss NaN: not evaluated at this step
    double grad_norm, lr, ms, tokens_per_s;
    double mfu; // share of the device's dense bf16 peak; NaN: n/a
    int64_t mem_bytes, skipped;
    double eta_s; // seconds to the last step
} fwa_progress;

// One line without line end, cut to `size` bytes; val and skipped stand in it where there is something to say:
// step   250/1000  loss 0.3214  val 0.3301  norm 0.87  lr 7.00e-03  28.3 ms  61.2k tok/s  mfu n/a  mem 92 MB  eta 21 s
const char *fwa_progress_text(const fwa_progress *progress, char *text, size_t size);
// Logs that line (fwa_log_info).
void fwa_progress_log(const fwa_progress *progress);
// The live line, redrawn in place at most ten times a second; nothing where stderr is no terminal.
void fwa_progress_live(const fwa_progress *progress);
void fwa_progress_live_text(const char *text); // the same with any line
// Ends the live line so that other output starts on a line of its own.
void fwa_progress_clear(void);

// Human-readable numbers into text[32]: "123,587,328", "1.53 GB" (powers of 1000), "2 h 13 min". Seconds that are not
// finite or below 0: "n/a".
const char *fwa_text_count(int64_t count, char text[32]);
const char *fwa_text_bytes(int64_t bytes, char text[32]);
const char *fwa_text_seconds(double seconds, char text[32]);

#ifdef __cplusplus
}
#endif
#endif
