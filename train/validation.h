// Loss over sequences that the ranks share out: the validation of training, and `fwa eval --task ppl`.
#ifndef FWA_TRAIN_VALIDATION_H
#define FWA_TRAIN_VALIDATION_H

#include "dist/world.h"
#include "layers/model.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct fwa_validation {
    fwa_world *world;
    fwa_activations *acts; // [m,T] of sequences, or of the pieces of this rank
    fwa_step_state *state; // device memory
    // Puts sequences first .. first+count-1 into acts, and sequences without loss behind them; count may be 0.
    fwa_status (*load)(void *user, int64_t first, int64_t count);
    void *user;
} fwa_validation;

// Collective. Sequences 0 .. total-1: *loss is the sum over their targets, *valid the number of these; the same on all
// ranks, and to rounding for every number of them.
FWA_MUST_CHECK fwa_status fwa_validate(const fwa_validation *validation, int64_t total, double *loss, double *valid);

#ifdef __cplusplus
}
#endif
#endif
