// Where points of a sweep are trained at once: every place has GPUs and processor cores of its own. Not collective.
#ifndef FWA_TRAIN_SWEEP_PLACES_H
#define FWA_TRAIN_SWEEP_PLACES_H

#include "core/cores.h"
#include "core/status.h"
#include "train/sweep/child.h"

#ifdef __cplusplus
extern "C" {
#endif

// What there is to share.
typedef struct fwa_sweep_machine {
    const char *variable; // CUDA_VISIBLE_DEVICES; NULL: not set
    int devices;          // GPUs that CUDA sees; 0 also where this build cannot tell
    fwa_cores cores;
    int granted; // of the cores, how many may be busy all the time
} fwa_sweep_machine;

typedef struct fwa_sweep_request {
    const char *jobs; // how many places: a number, or "gpus", as many as the GPUs suffice for; NULL: 1
    int gpus;         // of a place; 0: not said, 1
    int points;       // that have something to do
    bool wants_gpus;  // some of them run on GPUs
    bool launches;    // behind a command, which may want several GPUs
} fwa_sweep_request;

typedef struct fwa_sweep_place {
    char *devices; // its value of CUDA_VISIBLE_DEVICES, "" for none; NULL: as it is
    fwa_cores cores;
} fwa_sweep_place;

typedef struct fwa_sweep_places {
    int count;  // 1 ... FWA_CHILDREN_MAX, and no more than points
    bool apart; // they share the machine; otherwise the only one has all of it
    fwa_sweep_place at[FWA_CHILDREN_MAX];
} fwa_sweep_places;

// Place i gets the i-th `gpus` of the GPUs that CUDA_VISIBLE_DEVICES names, or that CUDA sees where it is not set, and
// the i-th part of the cores, of which it keeps its part of those that are granted. Where the points want no GPU and
// there are not enough, no place has one. FWA_USAGE where they want more than there are.
FWA_MUST_CHECK fwa_status fwa_sweep_places_share(fwa_sweep_places *places, const fwa_sweep_request *request,
                                                 const fwa_sweep_machine *machine);
void fwa_sweep_places_free(fwa_sweep_places *places);

#ifdef __cplusplus
}
#endif
#endif
