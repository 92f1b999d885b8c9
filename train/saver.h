// Checkpoints written while training goes on.
//
// A save begins with a snapshot and has three phases, each the work of a thread of its own on the ranks that take part:
//
//   folder    rank 0 makes the temporary folder
//   shards    every rank that holds rows of its own writes them
//   publish   rank 0 joins the shards, writes the manifest, renames, removes old checkpoints
//
// With the sums of a step, ranks tell each other whether a thread is still at work (fwa_trainer.writers); when none is,
// all go on to the next phase together, at a step boundary. The thread calls HDF5 and no MPI; no other thread calls
// HDF5 while a save is under way.
#ifndef FWA_TRAIN_SAVER_H
#define FWA_TRAIN_SAVER_H

#include "train/run.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct fwa_saver fwa_saver;

// Not collective. Memory for snapshots, and the thread. `run` and `trainer` are borrowed.
FWA_MUST_CHECK fwa_status fwa_saver_create(fwa_saver **out, const fwa_run *run, fwa_trainer *trainer);
// Not collective. Waits for this rank's thread and gives up a save under way, unless it is being published.
void fwa_saver_destroy(fwa_saver *saver);

// Collective, while no step is under way. Takes the snapshot and starts a save; waits first for one before that is not
// over yet, with a warning. Has failed only where that one has.
FWA_MUST_CHECK fwa_status fwa_saver_start(fwa_saver *saver);
// Not collective. Whether this rank's thread is at work: to be told to the trainer before every step.
bool fwa_saver_works(fwa_saver *saver);
// Collective, behind every step. Goes to the next phase when no thread was at work. A save that failed on any rank, now
// or before, is everyone's failure; older checkpoints stay.
FWA_MUST_CHECK fwa_status fwa_saver_advance(fwa_saver *saver);
// Collective. Until no save is under way. However long the disk takes, a rank that does not answer is noticed within
// comm.timeout_s.
FWA_MUST_CHECK fwa_status fwa_saver_wait(fwa_saver *saver);

#ifdef __cplusplus
}
#endif
#endif
