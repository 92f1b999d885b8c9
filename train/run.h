// The run folder run.dir/run.name (docs/architecture.md) and what resuming means.
//
//   config.yaml (resolved)  metrics.jsonl  gates.jsonl (of rules that have some)  log.txt  checkpoints/
//   FINISHED (number of steps)  gemm_algos.json  lock
//   started_from (a checkpoint of elsewhere: until the run has one of its own it goes on from there)
//
// Rank 0 touches the folder; every rank reads checkpoints. All functions are Collective.
#ifndef FWA_TRAIN_RUN_H
#define FWA_TRAIN_RUN_H

#include "io/checkpoint.h"
#include "io/metrics.h"
#include "train/trainer.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct fwa_run {
    fwa_world *world;     // borrowed
    fwa_config *config;   // borrowed
    char path[1024];      // run.dir/run.name
    char resume[2048];    // checkpoint to start from; "" none
    bool checked;         // rank 0: every byte of it was looked at
    bool finished;        // nothing left to do
    bool named;           // `resume` was named, now or at an earlier start: the folder may hold none of that step
    char *command;        // command line, for checkpoints; owned
    fwa_metrics *metrics; // rank 0
    fwa_metrics *gates;   // the same; NULL: no rule of the model has some
    int lock;             // rank 0: keeps other processes out of the folder; -1: not taken yet
} fwa_run;

// Looks at the folder and decides, on rank 0 for all: `resume` is "none" (refuses a folder with checkpoints), "auto"
// (newest sound checkpoint, or a fresh start that says so) or a checkpoint's path. Creates nothing yet.
FWA_MUST_CHECK fwa_status fwa_run_create(fwa_run **out, fwa_world *world, fwa_config *config, const char *resume,
                                         int argc, char **argv);
// Restores the trainer from run->resume if there is one (refusing a configuration that differs in what defines the run,
// or other data), then creates the folder, config.yaml, log.txt, and metrics.jsonl and gates.jsonl cut back to the
// resumed step.
FWA_MUST_CHECK fwa_status fwa_run_open(fwa_run *run, fwa_trainer *trainer);
// Writes gemm_algos.json: what rank 0 has chosen by measurement, after work of a new kind. Where it cannot be written,
// a warning: the next process of this run measures again.
void fwa_run_keep_choices(const fwa_run *run, const fwa_trainer *trainer);
// Not collective; rank 0. FWA_IO where the folder is no longer the one that the run was started in: removed, or made
// anew by another run, whose checkpoints are no place for this one's.
FWA_MUST_CHECK fwa_status fwa_run_check_folder(const fwa_run *run);
// Writes FINISHED.
FWA_MUST_CHECK fwa_status fwa_run_finish(fwa_run *run, const fwa_trainer *trainer);
void fwa_run_destroy(fwa_run *run);
// Not collective. Keeps other processes out of the run folder `folder`, which is there, until *lock is closed;
// FWA_CONFIG where another is in it.
FWA_MUST_CHECK fwa_status fwa_run_lock(const char *folder, int *lock);
// Not collective. The steps that the run folder `path` says are finished; -1: it says nothing.
int64_t fwa_run_finished_steps(const char *path);
// Not collective. What fwa_config_compare tells of the configuration in the run folder `path` and this one, into *lines
// (caller frees); a file that cannot be read differs, too. NULL: nothing differs, or there is no configuration.
FWA_MUST_CHECK fwa_status fwa_run_differences(const char *path, const fwa_config *config, char **lines);

// Not collective. A run folder's newest sound checkpoint, or the checkpoint itself, into path; FWA_CONFIG if neither.
FWA_MUST_CHECK fwa_status fwa_run_find_checkpoint(const char *run_or_checkpoint, char path[2048]);
typedef fwa_status (*fwa_run_reader)(void *user, fwa_checkpoint *checkpoint);
// Opens what fwa_run_find_checkpoint finds on rank 0, on all ranks, and has it read. Where a run that trains has
// removed it meanwhile, which a run does with old ones, `read` is called again with the newest one of then.
FWA_MUST_CHECK fwa_status fwa_run_read_checkpoint(fwa_world *world, const char *run_or_checkpoint, fwa_run_reader read,
                                                  void *user);
// FWA_CONFIG where a rank finds another checkpoint under this path than rank 0, or none within some seconds: on network
// storage a rank may see what is there later than rank 0 does.
FWA_MUST_CHECK fwa_status fwa_run_same_checkpoint(fwa_world *world, const char *path);

#ifdef __cplusplus
}
#endif
#endif
