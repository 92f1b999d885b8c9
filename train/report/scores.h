// Results of fwa eval that stand in a run folder. Not collective.
#ifndef FWA_TRAIN_REPORT_SCORES_H
#define FWA_TRAIN_REPORT_SCORES_H

#include "train/report/runs.h"

#ifdef __cplusplus
extern "C" {
#endif

// Fills run->scores, run->grid and run->results from the *.json files of its folder that fwa eval wrote: of several
// measurements of the same the one of the largest step, and of that the last by the file's name. Of the addition task
// the largest step's widths alone, from all of its files. Files that hold something else are passed over, and told of
// where they are no JSON.
FWA_MUST_CHECK fwa_status fwa_report_scores_read(fwa_report_run *run);
void fwa_report_scores_free(fwa_report_run *run);

// Exact match at a width; NaN where it was not measured, and the error too where no example differs from the others,
// which says nothing about the next ones.
fwa_report_estimate fwa_report_share_at(const fwa_report_run *run, bool exact, int64_t width);
// The mean over widths low .. high, all of which must have been measured.
fwa_report_estimate fwa_report_share_mean(const fwa_report_run *run, bool exact, int64_t low, int64_t high);
// The widths that were measured beyond `trained` ones, or where there are none all of them; false: no scores.
bool fwa_report_widths_beyond(const fwa_report_run *run, int64_t trained, int64_t *low, int64_t *high);

#ifdef __cplusplus
}
#endif
#endif
