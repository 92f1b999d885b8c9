// A copy in host memory of what a checkpoint holds of this rank: masters and moments of the rows that it updates.
// Taken while training goes on. Not collective.
#ifndef FWA_TRAIN_SNAPSHOT_H
#define FWA_TRAIN_SNAPSHOT_H

#include "io/checkpoint.h"
#include "layers/model.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct fwa_snapshot {
    fwa_backend *backend; // borrowed
    int count;            // of parameters
    fwa_named_tensor *named[FWA_PART_COUNT];
    struct {
        const void *from; // in the model's memory
        void *to;
        size_t bytes;
    } part[FWA_PART_COUNT];
    void *memory; // of host_alloc
    fwa_stream *stream;
    fwa_event *before, *copied;
} fwa_snapshot;

// Host memory of a snapshot, without the gaps between tensors; already from a plan.
size_t fwa_snapshot_bytes(const fwa_params *params);
// For a model with memory and moments.
FWA_MUST_CHECK fwa_status fwa_snapshot_create(fwa_snapshot **out, const fwa_model *model, fwa_backend *backend);
void fwa_snapshot_destroy(fwa_snapshot *snapshot);
// Copies what the main stream's work up to here leaves, beside what it does next. Until the event `copied` has come,
// masters and moments must not change: the main stream is to wait for it in front of the next update.
FWA_MUST_CHECK fwa_status fwa_snapshot_take(fwa_snapshot *snapshot);
// Waits for the copy; from any thread.
FWA_MUST_CHECK fwa_status fwa_snapshot_wait(fwa_snapshot *snapshot);
// FWA_NONFINITE naming the parameter if a value is not finite: a checkpoint of it could not be used.
FWA_MUST_CHECK fwa_status fwa_snapshot_check(const fwa_snapshot *snapshot);

#ifdef __cplusplus
}
#endif
#endif
