// A program started and waited for: how `fwa sweep` trains its points. Not collective; from a process without MPI.
#ifndef FWA_TRAIN_CHILD_H
#define FWA_TRAIN_CHILD_H

#include <stdbool.h>

#include "core/status.h"

#ifdef __cplusplus
extern "C" {
#endif

// From here on SIGTERM, SIGINT, SIGUSR1 and SIGUSR2 wait to be seen by the functions below.
FWA_MUST_CHECK fwa_status fwa_child_hold_signals(void);
// Whether one of these signals has come, now or earlier.
bool fwa_child_stop_requested(void);
// Runs argv (the program is looked for in PATH) to its end, in a process group of its own, with an empty standard
// input. The first signal becomes SIGUSR1 to it, which trainings and mpirun understand as "save and leave", the second
// SIGTERM, further ones SIGKILL, echoes (train/signals.h) left out; if this process dies it gets SIGUSR1, too. *code is
// its exit code, 128 + signal where one ended it. FWA_ERROR where it cannot be started.
FWA_MUST_CHECK fwa_status fwa_child_run(char *const *argv, int *code);

#ifdef __cplusplus
}
#endif
#endif
