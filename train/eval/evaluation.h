// Evaluation of the addition task (docs/addition.md §3): exact match of the whole answer, at one operand width or over
// pairs of widths.
#ifndef FWA_TRAIN_EVAL_EVALUATION_H
#define FWA_TRAIN_EVAL_EVALUATION_H

#include "train/eval/addition_grid.h"
#include "train/eval/loaded.h"
#include "train/tasks/addition.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct fwa_addition_score {
    int64_t width, examples;
    int64_t right[2];  // by fwa_addition_measure: examples with every answer token predicted, teacher-forced
    int64_t greedy[2]; // the same where answers are decoded token by token
} fwa_addition_score;

// Collective: examples are shared out over data ranks and counts added up. Adds `measure` to *score, whose width and
// number of examples are set, in batches of `batch`; `greedy`: decoded token by token as well. Examples are a function
// of (seed, width, measure, number): the score does not depend on batch size or ranks. Greedy decoding gives the same
// exact match, as a wrong token ends the match, but for tokens that rounding decides.
FWA_MUST_CHECK fwa_status fwa_evaluate_addition(fwa_world *world, const fwa_loaded *loaded,
                                                fwa_addition_measure measure, int64_t batch, bool greedy,
                                                fwa_addition_score *score);

// Collective: the same over the pairs of grid->width, grid->examples of each, into grid->cell, teacher-forced. Pairs
// whose examples are equally long share batches, at most `batch` examples each; ranks take every n-th batch. Examples
// are a function of (seed, both widths, number); those of a pair of equal widths are those of FWA_ADDITION_EXACT.
// Not for the paper's format, whose operands are equally long.
FWA_MUST_CHECK fwa_status fwa_evaluate_grid(fwa_world *world, const fwa_loaded *loaded, int64_t batch,
                                            fwa_addition_grid *grid);

#ifdef __cplusplus
}
#endif
#endif
