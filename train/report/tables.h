// Tables of a report: what the runs have reached, and how their configurations differ. Not collective.
#ifndef FWA_TRAIN_REPORT_TABLES_H
#define FWA_TRAIN_REPORT_TABLES_H

#include <stdio.h>

#include "train/report/runs.h"

#ifdef __cplusplus
extern "C" {
#endif

// One group: facts as a list. Several: a line each, with mean ± standard deviation where a group has several runs.
FWA_MUST_CHECK fwa_status fwa_report_summary(const fwa_report *report, FILE *out);
// Results of `fwa eval` that stand in run folders: a line a number, a column a group, with mean ± standard deviation
// over its runs, or of one run the standard error. Nothing where there are none.
FWA_MUST_CHECK fwa_status fwa_report_results(const fwa_report *report, FILE *out);
// Exact match of additions, a line a group: in distribution, beyond it in the mean and at both ends. Nothing where none
// was measured.
FWA_MUST_CHECK fwa_status fwa_report_addition(const fwa_report *report, FILE *out);
// Keys whose values are not the same in all groups. Of one group: keys that are not at their defaults, and all folded
// away.
FWA_MUST_CHECK fwa_status fwa_report_configuration(const fwa_report *report, FILE *out);

#ifdef __cplusplus
}
#endif
#endif
