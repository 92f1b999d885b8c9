// AdamW over the parameter table: one group a parameter (weight decay, width scaling). Not collective.
#ifndef FWA_TRAIN_OPTIMIZER_H
#define FWA_TRAIN_OPTIMIZER_H

#include "io/config.h"
#include "layers/model.h"

#ifdef __cplusplus
extern "C" {
#endif

#define FWA_BASE_WIDTH 1024.0 // width scaling is relative to this d_model (docs/models.md §6)

// Adds the squares of all gradients to state->grad_square.
FWA_MUST_CHECK fwa_status fwa_optimizer_norm(const fwa_model *model, fwa_backend *backend, fwa_step_state *state);
// Updates masters, moments and values from the gradients, as *state (device memory) says: the rows held here.
FWA_MUST_CHECK fwa_status fwa_optimizer_update(const fwa_model *model, fwa_backend *backend, const fwa_config *config,
                                               const fwa_step_state *state);

#ifdef __cplusplus
}
#endif
#endif
