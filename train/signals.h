// SIGTERM, SIGUSR1, SIGUSR2 (and SIGINT without mpirun) ask for a save at the next step boundary; a second SIGINT or
// SIGTERM ends the process at once. Handlers only set a flag. Not collective.
#ifndef FWA_TRAIN_SIGNALS_H
#define FWA_TRAIN_SIGNALS_H

#include <stdbool.h>

#include "core/status.h"

#ifdef __cplusplus
extern "C" {
#endif

FWA_MUST_CHECK fwa_status fwa_signals_install(bool under_mpirun);
int fwa_signals_pending(void); // number of the first signal that came, 0: none

#ifdef __cplusplus
}
#endif
#endif
