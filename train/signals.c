// Requests to stop, as flags that the training loop reads.
#include "train/signals.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>

static atomic_int first_signal; // 0: none
static atomic_int end_requests; // SIGINT and SIGTERM so far

// Only what is safe in a handler: lock-free atomics, sigaction, raise. A raised signal is delivered when this returns.
static void on_signal(int number) {
    int none = 0;
    const int saved_errno = errno;
    atomic_compare_exchange_strong(&first_signal, &none, number);
    if ((number == SIGINT || number == SIGTERM) && atomic_fetch_add(&end_requests, 1) >= 1) {
        struct sigaction action;
        memset(&action, 0, sizeof action);
        action.sa_handler = SIG_DFL;
        sigaction(number, &action, NULL);
        raise(number);
    }
    errno = saved_errno;
}

fwa_status fwa_signals_install(bool under_mpirun) {
    static const int numbers[] = {SIGTERM, SIGUSR1, SIGUSR2, SIGINT};
    const size_t count = sizeof numbers / sizeof numbers[0] - (under_mpirun ? 1 : 0);
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = on_signal;
    action.sa_flags = SA_RESTART;
    sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < count; i++) sigaddset(&action.sa_mask, numbers[i]);
    atomic_store(&first_signal, 0);
    atomic_store(&end_requests, 0);
    for (size_t i = 0; i < count; i++) {
        FWA_CHECK(sigaction(numbers[i], &action, NULL) == 0, FWA_ERROR, "cannot handle signal %d (%s): %s", numbers[i],
                  strsignal(numbers[i]), strerror(errno));
    }
    return FWA_OK;
}

int fwa_signals_pending(void) {
    return atomic_load(&first_signal);
}
