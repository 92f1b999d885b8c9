// Curves of a report: what groups of runs measured, thinned to as many points as a figure can show.
#ifndef FWA_TRAIN_REPORT_CURVE_H
#define FWA_TRAIN_REPORT_CURVE_H

#include "train/report/runs.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum fwa_report_measure {
    FWA_REPORT_LOSS,
    FWA_REPORT_VAL_LOSS,
    FWA_REPORT_PERPLEXITY, // e^val_loss
    FWA_REPORT_LR,
    FWA_REPORT_GRAD_NORM,
    FWA_REPORT_SPEED, // tokens a second
    FWA_REPORT_UPTO,  // of addition, by width, in per cent
    FWA_REPORT_EXACT
} fwa_report_measure;

typedef struct fwa_curve_point {
    double x, y, low, high;
} fwa_curve_point;

typedef struct fwa_curve {
    fwa_curve_point *at; // by x; owned
    int count;
} fwa_curve;

// The curve of a group by tokens or updates, as the report says, accuracies by width, at most `points` long: means over
// equal stretches of x. low and high are the range within a stretch of a single run, of accuracies - and + its standard
// error; over several runs mean - and + standard deviation (n - 1). Values that are no finite numbers are left out.
FWA_MUST_CHECK fwa_status fwa_report_curve(fwa_curve *curve, const fwa_report *report, int group,
                                           fwa_report_measure measure, int points);
void fwa_curve_free(fwa_curve *curve);

// The last value of a measure of one run; NaN where there is none.
double fwa_report_end(const fwa_report_run *run, fwa_report_measure measure);

#ifdef __cplusplus
}
#endif
#endif
