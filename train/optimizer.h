// AdamW over the parameter table: one group a parameter (weight decay, width scaling), all of them by one call. Not
// collective.
#ifndef FWA_TRAIN_OPTIMIZER_H
#define FWA_TRAIN_OPTIMIZER_H

#include "io/config.h"
#include "layers/model.h"

#ifdef __cplusplus
extern "C" {
#endif

#define FWA_BASE_WIDTH 1024.0 // width scaling is relative to this d_model (docs/models.md §6)

typedef struct fwa_optimizer {
    fwa_backend *backend;   // borrowed
    const fwa_model *model; // borrowed
    fwa_tensor parts;       // fwa_adamw_part of every parameter with rows here, in the backend's memory
    int64_t elements;       // of all parts
    fwa_adamw_options options;
} fwa_optimizer;

// The model's memory must be there and stay. The caller owns *out.
FWA_MUST_CHECK fwa_status fwa_optimizer_create(fwa_optimizer **out, const fwa_model *model, fwa_backend *backend,
                                               const fwa_config *config);
void fwa_optimizer_destroy(fwa_optimizer *optimizer); // NULL is fine

// Adds the squares of all gradients to state->grad_square.
FWA_MUST_CHECK fwa_status fwa_optimizer_norm(const fwa_optimizer *optimizer, fwa_step_state *state);
// Updates masters, moments and values from the gradients, as *state (device memory) says: the rows held here.
FWA_MUST_CHECK fwa_status fwa_optimizer_update(const fwa_optimizer *optimizer, const fwa_step_state *state);

#ifdef __cplusplus
}
#endif
#endif
