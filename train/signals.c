// Requests to stop, as flags that the training loop reads.
#include "train/signals.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "core/clock.h"

static atomic_int first_signal;  // 0: none
static atomic_llong end_request; // fwa_clock_ns when SIGINT or SIGTERM came first, 0: not yet

// Only what is safe in a handler: lock-free atomics, clock_gettime, sigaction, raise. A raised signal is delivered when
// this returns.
static void on_signal(int number) {
    int none = 0;
    long long first = 0;
    const int saved_errno = errno;
    const long long now = fwa_clock_ns();
    atomic_compare_exchange_strong(&first_signal, &none, number);
    if ((number == SIGINT || number == SIGTERM) && !atomic_compare_exchange_strong(&end_request, &first, now) &&
        now - first > FWA_SIGNAL_ECHO_NS) {
        struct sigaction action;
        memset(&action, 0, sizeof action);
        action.sa_handler = SIG_DFL;
        sigaction(number, &action, NULL);
        raise(number);
    }
    errno = saved_errno;
}

static fwa_status set_action(int number, const struct sigaction *action) {
    FWA_CHECK(sigaction(number, action, NULL) == 0, FWA_ERROR, "cannot handle signal %d (%s): %s", number,
              strsignal(number), strerror(errno));
    return FWA_OK;
}

static bool is_ignored(int number) {
    struct sigaction action;
    return sigaction(number, NULL, &action) == 0 && action.sa_handler == SIG_IGN;
}

fwa_status fwa_signals_install(void) {
    static const int numbers[] = {SIGTERM, SIGUSR1, SIGUSR2, SIGINT, SIGHUP};
    const size_t count = sizeof numbers / sizeof numbers[0];
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = on_signal;
    action.sa_flags = SA_RESTART;
    sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < count; i++) sigaddset(&action.sa_mask, numbers[i]);
    atomic_store(&first_signal, 0);
    atomic_store(&end_request, 0);
    for (size_t i = 0; i < count; i++) {
        if (numbers[i] != SIGHUP || !is_ignored(SIGHUP)) FWA_TRY(set_action(numbers[i], &action));
    }
    action.sa_handler = SIG_IGN;
    return set_action(SIGPIPE, &action);
}

int fwa_signals_pending(void) {
    return atomic_load(&first_signal);
}

void fwa_signals_request(void) {
    int none = 0;
    atomic_compare_exchange_strong(&first_signal, &none, SIGUSR1);
}
