// Points of a sweep trained and evaluated, as many at once as there are places. Not collective.
#ifndef FWA_TRAIN_SWEEP_JOBS_H
#define FWA_TRAIN_SWEEP_JOBS_H

#include "train/sweep/evals.h"
#include "train/sweep/places.h"
#include "train/sweep/runs.h"
#include "train/sweep/word_list.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct fwa_sweep_jobs {
    fwa_sweep_runs *runs;
    const char *program;         // this one
    const fwa_word_list *launch; // words in front of it
    const fwa_sweep_evals *evals;
    const fwa_sweep_places *places;
} fwa_sweep_jobs;

typedef struct fwa_sweep_failures {
    int count; // points of which training or an evaluation failed
    int code;  // exit code of the first
} fwa_sweep_failures;

// Whether a point is to be trained or evaluated still, as far as is known.
bool fwa_sweep_jobs_due(const fwa_sweep_runs *runs, const fwa_sweep_evals *evals, int index);
// Does what is to be done for points first ... first + count - 1, in that order: the place that is free takes the next
// one, trains it if it is not finished, and makes the evaluations that it lacks. Points that another process trains are
// passed by, failures noted and counted. What children print goes where this process prints, or where there are
// several places into POINT.out beside the run folder. After fwa_child_hold_signals; after a signal all points under
// way save and it is FWA_PREEMPTED. Other failures are of the sweep itself, and end it in the same way. No child is
// left in any case.
FWA_MUST_CHECK fwa_status fwa_sweep_jobs_run(const fwa_sweep_jobs *jobs, int first, int count,
                                             fwa_sweep_failures *failures);

#ifdef __cplusplus
}
#endif
#endif
