// Parameters between a model's memory and checkpoints. Not collective.
#ifndef FWA_TRAIN_WEIGHTS_H
#define FWA_TRAIN_WEIGHTS_H

#include "io/checkpoint.h"
#include "layers/model.h"

#ifdef __cplusplus
extern "C" {
#endif

// Host views of masters and, with three parts, moments: the memory itself on the CPU, a copy elsewhere. Of the rows
// that this rank updates.
typedef struct fwa_weights {
    fwa_backend *backend; // borrowed
    int count, parts;
    fwa_named_tensor *named[FWA_PART_COUNT]; // [count]
} fwa_weights;

FWA_MUST_CHECK fwa_status fwa_weights_view(fwa_weights *weights, const fwa_model *model, fwa_backend *backend,
                                           int parts);
FWA_MUST_CHECK fwa_status fwa_weights_fetch(fwa_weights *weights, const fwa_model *model); // device -> views
FWA_MUST_CHECK fwa_status fwa_weights_store(fwa_weights *weights, const fwa_model *model); // views -> device
// FWA_NONFINITE naming the parameter if a value of the views is not finite: a checkpoint of them could not be used.
FWA_MUST_CHECK fwa_status fwa_weights_check(const fwa_weights *weights);
void fwa_weights_release(fwa_weights *weights);

// Fills the rows held here from an open checkpoint: masters, with `moments` m and v too; values follow. FWA_CONFIG
// where the checkpoint holds parameters that the model lacks, FWA_FORMAT where one is missing there or has another
// shape.
FWA_MUST_CHECK fwa_status fwa_weights_read(fwa_model *model, fwa_backend *backend, fwa_checkpoint *checkpoint,
                                           bool moments);

#ifdef __cplusplus
}
#endif
#endif
