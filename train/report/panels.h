// Which figures a report has: in its page, or each in a file. Not collective.
#ifndef FWA_TRAIN_REPORT_PANELS_H
#define FWA_TRAIN_REPORT_PANELS_H

#include <stdio.h>

#include "train/report/runs.h"

#ifdef __cplusplus
extern "C" {
#endif

// Final validation losses, or losses where a run has no validation, a row a group.
FWA_MUST_CHECK fwa_status fwa_report_ends(const fwa_report *report, bool alone, FILE *out);
FWA_MUST_CHECK fwa_status fwa_report_training(const fwa_report *report, FILE *out); // curves of metrics.jsonl
FWA_MUST_CHECK fwa_status fwa_report_widths(const fwa_report *report, FILE *out);   // exact match by width
// Exact match over pairs of widths, a map a group that has been measured so; the mean over its runs with the same
// widths. Nothing where there is none.
FWA_MUST_CHECK fwa_status fwa_report_grids(const fwa_report *report, bool alone, FILE *out);
// Every figure that shows something as FOLDER/NAME.svg, which needs no page around it; makes the folder. FWA_USAGE
// where such a file is there and is no SVG.
FWA_MUST_CHECK fwa_status fwa_report_figures(const fwa_report *report, const char *folder);
bool fwa_report_has_seeds(const fwa_report *report); // a group of several runs

#ifdef __cplusplus
}
#endif
#endif
