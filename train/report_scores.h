// Results of fwa eval that stand in a run folder. Not collective.
#ifndef FWA_TRAIN_REPORT_SCORES_H
#define FWA_TRAIN_REPORT_SCORES_H

#include "train/report_runs.h"

#ifdef __cplusplus
extern "C" {
#endif

// Fills run->scores from the *.json files of its folder that are results of the addition task: those of the largest
// step, and of that the last by name. Other files are passed over, and told of where they are no JSON.
FWA_MUST_CHECK fwa_status fwa_report_scores_read(fwa_report_run *run);

#ifdef __cplusplus
}
#endif
#endif
