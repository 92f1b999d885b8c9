// SIGTERM, SIGINT, SIGHUP, SIGUSR1 and SIGUSR2 ask for a save at the next step boundary; a second SIGINT or SIGTERM
// ends the process at once. Handlers only set a flag. SIGHUP stays ignored where it was (nohup), and SIGPIPE is: a
// reader of the output that ends (head, tee) is no reason to end. Not collective.
//
// One request can arrive as two signals: timeout(1) signals its child and then the group that the child is in, mpirun
// hands on what a batch system has already sent to every process. Such an echo is no second request.
#ifndef FWA_TRAIN_SIGNALS_H
#define FWA_TRAIN_SIGNALS_H

#include "core/status.h"

#ifdef __cplusplus
extern "C" {
#endif

#define FWA_SIGNAL_ECHO_NS 1000000000LL // so long after a request others are taken for the same one

FWA_MUST_CHECK fwa_status fwa_signals_install(void);
int fwa_signals_pending(void);  // number of the first signal that came, 0: none
void fwa_signals_request(void); // as if SIGUSR1 had come

#ifdef __cplusplus
}
#endif
#endif
