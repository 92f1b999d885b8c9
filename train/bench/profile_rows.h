// The rows of a profile: a part of a step, and in it an operator, with what it took and what it needs. Not collective.
#ifndef FWA_TRAIN_BENCH_PROFILE_ROWS_H
#define FWA_TRAIN_BENCH_PROFILE_ROWS_H

#include "train/bench/floor.h"
#include "train/bench/profile.h"

#ifdef __cplusplus
extern "C" {
#endif

#define FWA_PROFILE_BETWEEN "between parts"
enum { FWA_PROFILE_REST = -1, FWA_PROFILE_ROWS = 256 };

typedef struct fwa_profile_row {
    const char *part;
    int op;        // kernels/registry.h; FWA_PROFILE_REST: the part without its operators
    int64_t calls; // of the operator; of the part where it is the rest
    double seconds;
    fwa_cost cost;
    double floor_seconds; // the sum of the calls' own
} fwa_profile_row;

// Sums over `steps` steps.
typedef struct fwa_profile_rows {
    const fwa_backend *backend;
    fwa_floor floor;
    int64_t steps;
    int count;
    fwa_profile_row at[FWA_PROFILE_ROWS];
} fwa_profile_rows;

// The row of these, made where there is none; a table that is full gives its last row.
int fwa_profile_row_find(fwa_profile_rows *rows, const char *part, int op);
void fwa_profile_row_add(fwa_profile_rows *rows, int row, fwa_cost cost); // of one call
char *fwa_profile_rows_table(const fwa_profile_rows *rows);               // as fwa_profile_table
char *fwa_profile_rows_json(const fwa_profile_rows *rows);

#ifdef __cplusplus
}
#endif
#endif
