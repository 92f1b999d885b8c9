// The memory that a rank plans, by class, and whether its device has it. Not collective.
#ifndef FWA_TRAIN_MEMORY_H
#define FWA_TRAIN_MEMORY_H

#include "train/trainer.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum fwa_memory_class {
    FWA_MEMORY_PARAMETERS,  // masters and values
    FWA_MEMORY_GRADIENTS,   // of the parameters
    FWA_MEMORY_OPTIMIZER,   // moments
    FWA_MEMORY_ACTIVATIONS, // what a backward pass reads
    FWA_MEMORY_SCRATCH,     // gradients of activations, logits, and what the mixing rules need
    FWA_MEMORY_EVALUATION,  // activations and scratch of validation
    FWA_MEMORY_CLASS_COUNT
} fwa_memory_class;

typedef struct fwa_memory_plan {
    size_t bytes[FWA_MEMORY_CLASS_COUNT];
    size_t total; // SIZE_MAX where the sum does not fit
} fwa_memory_plan;

fwa_memory_plan fwa_memory_planned(const fwa_trainer *trainer);
// "parameters 1.2 GB, gradients ..." of the classes that have any.
const char *fwa_memory_text(const fwa_memory_plan *plan, char text[256]);

// What a device holds in all, and what others, or this process, hold of it already.
typedef struct fwa_memory_room {
    size_t used, total;
    int sharing; // ranks that plan the same on it
} fwa_memory_room;

// Before anything is allocated. FWA_CONFIG, with the keys to change, where the plan exceeds the device; FWA_MEMORY
// where a GPU has the room but others use it.
FWA_MUST_CHECK fwa_status fwa_memory_check(const fwa_trainer *trainer);
FWA_MUST_CHECK fwa_status fwa_memory_fits(const fwa_trainer *trainer, const fwa_memory_plan *plan,
                                          const fwa_memory_room *room);
// After an allocation failed all the same: this thread's error again, with the plan and the keys to change.
fwa_status fwa_memory_explain(const fwa_trainer *trainer);

#ifdef __cplusplus
}
#endif
#endif
