// Exact match of the addition task over pairs of operand widths (docs/addition.md §3): the counts, what they say of
// trained and longer operands, and how they stand in a file. Not collective.
#ifndef FWA_TRAIN_EVAL_ADDITION_GRID_H
#define FWA_TRAIN_EVAL_ADDITION_GRID_H

#include <jansson.h>
#include <stdio.h>

#include "core/status.h"
#include "core/types.h"

#ifdef __cplusplus
extern "C" {
#endif

#define FWA_ADDITION_GRID_WIDTHS   64      // of an operand, at most
#define FWA_ADDITION_GRID_EXAMPLES 1000000 // of a pair, at most

// Examples of a pair of widths: right ones, and of the wrong ones those
typedef struct fwa_addition_cell {
    int64_t right;
    int64_t beyond; // whose first wrong token stands behind the digits that both operands have
    int64_t length; // whose first wrong token is a digit where the sum ends, or no digit where it goes on
} fwa_addition_cell;

typedef struct fwa_addition_grid {
    int count;                                                                   // of widths, of either operand
    int64_t width[FWA_ADDITION_GRID_WIDTHS];                                     // ascending
    int64_t examples;                                                            // of each pair
    int64_t trained[2];                                                          // widths of training, from .. to
    fwa_addition_cell cell[FWA_ADDITION_GRID_WIDTHS * FWA_ADDITION_GRID_WIDTHS]; // [count,count], first operand's row
} fwa_addition_grid;

// Pairs of widths by how many of the two are no trained ones.
typedef enum fwa_addition_region {
    FWA_ADDITION_BOTH_TRAINED,
    FWA_ADDITION_ONE_BEYOND,
    FWA_ADDITION_BOTH_BEYOND,
    FWA_ADDITION_REGIONS
} fwa_addition_region;

typedef struct fwa_addition_sum {
    int64_t cells, examples;
    fwa_addition_cell counts;
    double share, error; // mean of right ones; its standard error. NaN: no cells; no two examples differ in a cell
} fwa_addition_sum;

// Widths low, low + step, ... below high, and high. FWA_USAGE unless 1 <= low <= high <= FWA_ADDITION_MAX_WIDTH and
// step >= 1, or where there are more than FWA_ADDITION_GRID_WIDTHS.
FWA_MUST_CHECK fwa_status fwa_addition_grid_widths(fwa_addition_grid *grid, int64_t low, int64_t high, int64_t step);
// Counts an example in brackets, whose shorter operand has `shorter` digits: targets, predictions [T].
void fwa_addition_cell_count(fwa_addition_cell *cell, int64_t shorter, int64_t T, const int32_t *targets,
                             const int32_t *predictions);

bool fwa_addition_grid_same_widths(const fwa_addition_grid *a, const fwa_addition_grid *b);
bool fwa_addition_grid_trained(const fwa_addition_grid *grid, int i); // whether width[i] is one
fwa_addition_sum fwa_addition_grid_sum(const fwa_addition_grid *grid, fwa_addition_region region);

// The counts as a JSON object, and back; false where `object` is none of a grid, which is then undefined.
void fwa_addition_grid_write(const fwa_addition_grid *grid, FILE *out);
bool fwa_addition_grid_read(fwa_addition_grid *grid, const json_t *object);

#ifdef __cplusplus
}
#endif
#endif
