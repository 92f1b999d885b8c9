// Parameters from checkpoints to a model's memory. Not collective.
#ifndef FWA_TRAIN_WEIGHTS_H
#define FWA_TRAIN_WEIGHTS_H

#include "io/checkpoint.h"
#include "layers/model.h"

#ifdef __cplusplus
extern "C" {
#endif

// Which memory a part of a checkpoint is of.
fwa_param_class fwa_weights_class(fwa_checkpoint_part part);

// Fills the rows held here from an open checkpoint: masters, with `moments` m and v too; values follow. FWA_CONFIG
// where the checkpoint holds parameters that the model lacks, FWA_FORMAT where one is missing there or has another
// shape.
FWA_MUST_CHECK fwa_status fwa_weights_read(fwa_model *model, fwa_backend *backend, fwa_checkpoint *checkpoint,
                                           bool moments);
// A hash of all master weights as f32: the same wherever and in whatever precision a model is loaded.
FWA_MUST_CHECK fwa_status fwa_weights_fingerprint(const fwa_model *model, fwa_backend *backend, uint64_t *hash);

#ifdef __cplusplus
}
#endif
#endif
