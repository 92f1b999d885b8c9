// The trainer: everything a training step needs, and the step itself.
#ifndef FWA_TRAIN_TRAINER_H
#define FWA_TRAIN_TRAINER_H

#include "dist/buckets.h"
#include "dist/world.h"
#include "io/config.h"
#include "layers/model.h"
#include "train/optimizer.h"
#include "train/tasks/task.h"

#ifdef __cplusplus
extern "C" {
#endif

#define FWA_STEPS_SENT 2 // the most steps whose reports are not taken: one at work, one behind it

// What a step leaves for its report.
typedef struct fwa_step_sent {
    fwa_step_state *state; // memory of host_alloc, filled when `done` has come
    fwa_gate_sums *gates;  // [L], the same of this rank's, where has_gates; of all ranks once reported
    bool has_gates;
    fwa_event *done;
    int64_t tokens;
    uint64_t token_hash;
} fwa_step_sent;

typedef struct fwa_trainer {
    fwa_world *world;   // borrowed
    fwa_config *config; // borrowed
    fwa_backend *backend;
    fwa_source *source;
    fwa_model *model;
    fwa_activations *acts; // of a micro-batch [m,T]
    fwa_activations *eval; // NULL where eval.every is 0
    fwa_comm *comm;        // of all ranks, over the backend's memory: sums of gradients
    fwa_comm *sp;          // the same of the ranks that hold the pieces of this rank's sequences
    int64_t threads_most;  // of any rank
    bool sharded;          // each rank updates its piece of the parameters (layers/shard.h)
    fwa_buckets *buckets;
    fwa_optimizer *optimizer;
    fwa_step_state *state; // device memory
    fwa_step_state *eval_state;
    int32_t *tokens, *targets; // [m,T], host, of whole sequences
    int32_t *piece;            // 2 x [m,T/sp]: tokens and targets of the piece of this rank
    int64_t accumulation;      // micro-batches of this rank in a step
    int64_t step;              // steps given to the device
    int64_t reported;          // steps whose report was taken
    int64_t tokens_read;       // by all ranks together
    fwa_gate_sums *gates;      // [L], device memory: of the step under way; NULL: no rule of the model has some
    bool wants_gates;          // set before a step, the same on all ranks: its report is to have them
    bool stop;                 // a rank had got a signal when the last step was given, or in the last validation
    int ahead;                 // steps to give before waiting for a report, beyond it: 0 where calls run at once
    bool eager;                // run micro-steps call by call, as a measurement of parts of a step wants it
    bool no_overlap;           // sum gradients behind the backward pass, to measure what the overlap brings
    bool warm;                 // each kind of micro-step has run
    fwa_graph *graphs[2][2];   // micro-steps: [the first of a step][its last]; NULL: not recorded yet
    fwa_graph *update_graph;
    fwa_event *copied; // what the next update is to wait for: the copy of a snapshot; NULL: nothing. Borrowed
    bool writing;      // set before a step: this rank's thread is writing a checkpoint
    int64_t writers;   // ranks of which that was so when the last step was given
    fwa_step_sent sent[FWA_STEPS_SENT];
    double best_val_loss; // NaN: none yet
} fwa_trainer;

// Of the gates of all layers.
static inline size_t fwa_trainer_gate_bytes(const fwa_trainer *t) {
    return (size_t)t->model->spec.L * sizeof(fwa_gate_sums);
}

// What a step says about itself; the same on every rank.
typedef struct fwa_step_report {
    fwa_step_state state;
    fwa_gate_sums gates;         // of all tokens of the step, all layers together; 0: not asked for, or there are none
    const fwa_gate_sums *layers; // [L], the same of each layer, the trainer's until its next step; NULL: as above
    int64_t step;                // its number, from 1
    int64_t tokens;              // read by all ranks together up to its end
    uint64_t token_hash;         // of the global batch (tasks/task.h)
} fwa_step_report;

// Collective. Plans everything; allocates unless `plan_only` (then only sizes may be read). `source`: where sequences
// come from, taken over also on failure; NULL: what the configuration names.
FWA_MUST_CHECK fwa_status fwa_trainer_create(fwa_trainer **out, fwa_world *world, fwa_config *config,
                                             fwa_source *source, bool plan_only);
void fwa_trainer_destroy(fwa_trainer *trainer);
// Collective. Every rank gets the values that others have updated or loaded; nothing to do unless they are sharded.
FWA_MUST_CHECK fwa_status fwa_trainer_share(fwa_trainer *trainer);

// Not collective. Copies this rank's pieces of the sequences in trainer->tokens and targets into `acts`.
FWA_MUST_CHECK fwa_status fwa_trainer_load(fwa_trainer *trainer, fwa_activations *acts);

// Collective. Gives the device one step, on global batch number trainer->step, and counts it; the device is not waited
// for. Before more than FWA_STEPS_SENT steps in a row, reports must be taken.
FWA_MUST_CHECK fwa_status fwa_trainer_step(fwa_trainer *trainer);
// Collective. The report of the first step that has none, after a wait for the device; counts it. FWA_NONFINITE, with
// the report, where guard.max_skips steps in a row were skipped; steps given since then may have been applied.
FWA_MUST_CHECK fwa_status fwa_trainer_report(fwa_trainer *trainer, fwa_step_report *report);

// Collective; needs eval.every > 0. Mean loss a token over the first eval.batches global batches of the validation
// split (fewer if it is smaller), the same whatever the number of ranks; NaN, and trainer->stop, where a rank has got a
// signal. No step is under way.
FWA_MUST_CHECK fwa_status fwa_trainer_validate(fwa_trainer *trainer, double *loss);

#ifdef __cplusplus
}
#endif
#endif
