// Programs started and waited for, several at once: how `fwa sweep` trains its points. Not collective; from a process
// without MPI.
#ifndef FWA_TRAIN_SWEEP_CHILD_H
#define FWA_TRAIN_SWEEP_CHILD_H

#include <stdbool.h>

#include "core/cores.h"
#include "core/status.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { FWA_CHILDREN_MAX = 64 };

typedef struct fwa_child {
    char *const *argv;              // NULL behind the last word; the program is looked for in PATH
    const char *const *environment; // "NAME=value", over this process's own; NULL behind the last, or for none
    const fwa_cores *cores;         // that it may run on; NULL: those of this process
    const char *output;             // file that what it prints is appended to; NULL: where this process prints
} fwa_child;

// Before threads are started, which must not take signals either. From here on SIGTERM, SIGINT, SIGUSR1, SIGUSR2 and,
// unless it is ignored (nohup), SIGHUP wait to be seen by the functions below. The first becomes SIGUSR1 to every
// child, which trainings and mpirun understand as "save and leave", the second SIGTERM, further ones SIGKILL, echoes
// (train/signals.h) left out. SIGPIPE is ignored, by children too.
FWA_MUST_CHECK fwa_status fwa_child_hold_signals(void);
// Whether one of these signals has come, now or earlier.
bool fwa_child_stop_requested(void);
// Starts a program in a process group of its own, with an empty standard input, as child number `slot`, 0 <= slot <
// FWA_CHILDREN_MAX, which must be free. If this process dies the child gets SIGUSR1. FWA_IO where it cannot be
// started, or its output not be written.
FWA_MUST_CHECK fwa_status fwa_child_start(int slot, const fwa_child *child);
// Waits until a child ends, signals being handed on meanwhile. *slot is free then, *code the exit code, 128 + signal
// where one ended it. One child at least must be under way.
FWA_MUST_CHECK fwa_status fwa_child_wait(int *slot, int *code);
// Has every child save and leave, as the first signal does; they are still to be waited for.
void fwa_child_stop_all(void);

#ifdef __cplusplus
}
#endif
#endif
