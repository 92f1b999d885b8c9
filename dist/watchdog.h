// A thread that ends this process with code 4 when a step takes longer than allowed: the way out of a collective whose
// peer is stopped or gone. It prints and calls _exit(4); no MPI, no NCCL in it. What passes while the process itself is
// stopped (Ctrl-Z) is left out. Not collective.
#ifndef FWA_DIST_WATCHDOG_H
#define FWA_DIST_WATCHDOG_H

#include "core/status.h"

#ifdef __cplusplus
extern "C" {
#endif

FWA_MUST_CHECK fwa_status fwa_watchdog_start(void);
// From now on the process must call again within `seconds` (0: no limit, e.g. while saving); `what` is printed, of
// which 63 bytes are copied. Cheap: atomic stores, no lock.
void fwa_watchdog_expect(double seconds, const char *what);
void fwa_watchdog_stop(void);

#ifdef __cplusplus
}
#endif
#endif
