// The page of a report: one HTML file that needs nothing else, and no JavaScript.
#ifndef FWA_TRAIN_REPORT_PAGE_H
#define FWA_TRAIN_REPORT_PAGE_H

#include "train/report/runs.h"

#ifdef __cplusplus
extern "C" {
#endif

// Writes `path` as a whole. Not collective.
FWA_MUST_CHECK fwa_status fwa_report_page(const fwa_report *report, const char *title, const char *path);

#ifdef __cplusplus
}
#endif
#endif
