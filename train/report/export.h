// The table of a report for documents and spreadsheets. Not collective.
#ifndef FWA_TRAIN_REPORT_EXPORT_H
#define FWA_TRAIN_REPORT_EXPORT_H

#include <stdio.h>

#include "train/report/runs.h"

#ifdef __cplusplus
extern "C" {
#endif

// Markdown: a line a configuration, and of other results of `fwa eval` than additions a line a number; then what ± is.
FWA_MUST_CHECK fwa_status fwa_report_markdown(const fwa_report *report, FILE *out);
// All columns, a line a configuration; behind a number that can have one its deviation or error, titled "± ...".
FWA_MUST_CHECK fwa_status fwa_report_csv(const fwa_report *report, FILE *out);

#ifdef __cplusplus
}
#endif
#endif
