// What a sweep has reached: a list of points, a table with mean and spread over seeds, and CSV. Not collective.
#ifndef FWA_TRAIN_SWEEP_TABLE_H
#define FWA_TRAIN_SWEEP_TABLE_H

#include <stdio.h>

#include "train/sweep/runs.h"

#ifdef __cplusplus
extern "C" {
#endif

// One line a point: number, state, name.
void fwa_sweep_list(const fwa_sweep_runs *runs, FILE *out);
// One line a group of points that differ in the seed only: means of the finished ones ± their standard deviation
// (n - 1), which takes two of them; below it what is not finished.
FWA_MUST_CHECK fwa_status fwa_sweep_table(const fwa_sweep_runs *runs, FILE *out);
// One line a point (RFC 4180), written to `path` as a whole.
FWA_MUST_CHECK fwa_status fwa_sweep_csv(const fwa_sweep_runs *runs, const char *path);

// Mean and standard deviation of the values that are numbers; NaN for what there are too few for. Returns how many.
int fwa_sweep_mean(const double *values, int count, double *mean, double *spread);

#ifdef __cplusplus
}
#endif
#endif
