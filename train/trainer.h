// The trainer: everything a training step needs, and the step itself.
#ifndef FWA_TRAIN_TRAINER_H
#define FWA_TRAIN_TRAINER_H

#include "dist/buckets.h"
#include "dist/world.h"
#include "io/config.h"
#include "layers/model.h"
#include "train/tasks/task.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct fwa_trainer {
    fwa_world *world;   // borrowed
    fwa_config *config; // borrowed
    fwa_backend *backend;
    fwa_source *source;
    fwa_model *model;
    fwa_activations *acts; // of a micro-batch [m,T]
    fwa_activations *eval; // NULL where eval.every is 0
    fwa_comm *comm;        // of the data ranks, over the backend's memory
    bool sharded;          // each data rank updates its piece of the parameters (layers/shard.h)
    fwa_buckets *buckets;
    fwa_step_state *state; // device memory
    fwa_step_state *eval_state;
    int32_t *tokens, *targets; // [m,T], host
    int64_t accumulation;      // micro-batches of this rank in a step
    int64_t step;              // steps done
    int64_t tokens_read;       // by all ranks together
    double best_val_loss;      // NaN: none yet
} fwa_trainer;

// What a step says about itself; the same on every rank.
typedef struct fwa_step_report {
    fwa_step_state state;
    uint64_t token_hash; // of the global batch (tasks/task.h)
    bool stop;           // a rank got a signal
} fwa_step_report;

// Collective. Plans everything; allocates unless `plan_only` (then only sizes may be read). `source`: where sequences
// come from, taken over also on failure; NULL: what the configuration names.
FWA_MUST_CHECK fwa_status fwa_trainer_create(fwa_trainer **out, fwa_world *world, fwa_config *config,
                                             fwa_source *source, bool plan_only);
void fwa_trainer_destroy(fwa_trainer *trainer);
// Collective. Every rank gets the values that others have updated or loaded; nothing to do unless they are sharded.
FWA_MUST_CHECK fwa_status fwa_trainer_share(fwa_trainer *trainer);

// Collective. One step on global batch number trainer->step; counts it.
FWA_MUST_CHECK fwa_status fwa_trainer_step(fwa_trainer *trainer, fwa_step_report *report);

// Collective; needs eval.every > 0. Mean loss a token over the first eval.batches global batches of the validation
// split (fewer if it is smaller), the same whatever the number of ranks.
FWA_MUST_CHECK fwa_status fwa_trainer_validate(fwa_trainer *trainer, double *loss);

#ifdef __cplusplus
}
#endif
#endif
