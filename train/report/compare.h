// The runs of a report as one table: a line a configuration, a column a number. Not collective.
#ifndef FWA_TRAIN_REPORT_COMPARE_H
#define FWA_TRAIN_REPORT_COMPARE_H

#include <stdio.h>

#include "train/report/runs.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum fwa_compare_kind {
    FWA_COMPARE_SEEDS, // text
    FWA_COMPARE_UPDATES,
    FWA_COMPARE_TOKENS,
    FWA_COMPARE_HOURS, // of updates: no start, validation or checkpoint
    FWA_COMPARE_VAL_LOSS,
    FWA_COMPARE_PERPLEXITY,
    FWA_COMPARE_LOWEST,    // validation loss
    FWA_COMPARE_LOWEST_AT, // tokens it was reached after
    FWA_COMPARE_SHARE,     // exact match of additions, in per cent
    FWA_COMPARE_PAIRS,     // the same over pairs of widths
    FWA_COMPARE_RESULT     // of another task of fwa eval
} fwa_compare_kind;

typedef struct fwa_compare_column {
    fwa_compare_kind kind;
    char title[112];
    bool exact;                    // FWA_COMPARE_SHARE: the measure
    int64_t low, high;             // FWA_COMPARE_SHARE: of these widths
    const fwa_addition_grid *grid; // FWA_COMPARE_PAIRS: of its widths, pairs of this region
    fwa_addition_region region;
} fwa_compare_column;

// Mean and standard deviation (n - 1) over the runs of a group that have one; of one run its value and standard error.
// NaN: none.
typedef struct fwa_compare_cell {
    double value, spread;
    int runs;
} fwa_compare_cell;

typedef struct fwa_compare {
    const fwa_report *report; // borrowed
    fwa_compare_column *column;
    fwa_compare_cell *cell; // [group * columns + column]
    int columns;
} fwa_compare;

// Columns for which some run has a number. Caller: fwa_compare_free.
FWA_MUST_CHECK fwa_status fwa_compare_make(fwa_compare *table, const fwa_report *report);
void fwa_compare_free(fwa_compare *table);
bool fwa_compare_spreads(fwa_compare_kind kind); // whether its cells can have a spread
// "65.0 ± 1.5", "524 M", "0, 1, 2", or a dash.
void fwa_compare_print(const fwa_compare *table, int group, int column, FILE *out);
// What ± means in the columns of these kinds, as a sentence; nothing where none stands there.
void fwa_compare_meaning(const fwa_compare *table, fwa_compare_kind first, fwa_compare_kind last, FILE *out);

// The most digits that a run of the addition task was trained on; 0 where that is not known.
int64_t fwa_report_trained(const fwa_report_run *run);

#ifdef __cplusplus
}
#endif
#endif
