// Who started this process: read from the environment alone, before MPI is touched. Private to dist/.
#ifndef FWA_DIST_LAUNCHER_H
#define FWA_DIST_LAUNCHER_H

#include <stdbool.h>

#include "core/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct fwa_launcher {
    bool mpi;           // a launcher that MPI can talk to is there
    long tasks;         // as it says; 0: it does not say
    const char *source; // the variable that `tasks` comes from
} fwa_launcher;

// Not collective. FWA_USAGE where a batch script says by FWA_TASKS that there are to be other ranks; FWA_COMM inside an
// srun step of several tasks without PMI: MPI would start as many jobs of one rank.
FWA_MUST_CHECK fwa_status fwa_launcher_detect(fwa_launcher *out);

#ifdef __cplusplus
}
#endif
#endif
