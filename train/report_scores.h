// Results of fwa eval that stand in a run folder. Not collective.
#ifndef FWA_TRAIN_REPORT_SCORES_H
#define FWA_TRAIN_REPORT_SCORES_H

#include "train/report_runs.h"

#ifdef __cplusplus
extern "C" {
#endif

// Fills run->scores and run->results from the *.json files of its folder that fwa eval wrote: of several measurements
// of the same the one of the largest step, and of that the last by the file's name. Files that hold something else are
// passed over, and told of where they are no JSON.
FWA_MUST_CHECK fwa_status fwa_report_scores_read(fwa_report_run *run);

#ifdef __cplusplus
}
#endif
#endif
