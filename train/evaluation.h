// Evaluation of the addition task by operand width (docs/addition.md §3): exact match of the whole answer, in both
// measures.
#ifndef FWA_TRAIN_EVALUATION_H
#define FWA_TRAIN_EVALUATION_H

#include "dist/world.h"
#include "layers/model.h"
#include "train/tasks/addition.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct fwa_addition_score {
    int64_t width;
    int64_t examples;
    int64_t right[2]; // by fwa_addition_measure: examples with every answer token predicted, teacher-forced
} fwa_addition_score;

// Collective: examples are shared out over data ranks and counts added up. Operands up to score->width digits, measured
// over `examples` examples in batches of `batch`. Examples are a function of (seed, width, measure, number): the score
// does not depend on batch size or ranks. Greedy decoding gives the same exact match (a wrong token ends the match).
FWA_MUST_CHECK fwa_status fwa_evaluate_addition(fwa_world *world, fwa_model *model, fwa_backend *backend,
                                                const fwa_config *config, int64_t width, int64_t examples,
                                                int64_t batch, fwa_addition_score *score);

#ifdef __cplusplus
}
#endif
#endif
