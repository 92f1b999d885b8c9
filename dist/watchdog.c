// The watchdog's thread. Arming is a few atomic stores: the step takes no lock.
#include "dist/watchdog.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "core/clock.h"

enum { PERIOD_NS = 200000000, WHAT_WORDS = 8 };

static struct {
    pthread_t thread;
    bool running; // of the thread that starts and stops
    pthread_mutex_t mutex;
    pthread_cond_t wake;
    bool stop;                         // under the mutex
    _Atomic int64_t deadline_ns;       // 0: no limit
    _Atomic int64_t limit_ns;          // of the deadline, for the message
    _Atomic uint64_t what[WHAT_WORDS]; // text, readable while it is being replaced
    char host[64];
} dog = {.mutex = PTHREAD_MUTEX_INITIALIZER};

void fwa_watchdog_expect(double seconds, const char *what) {
    uint64_t words[WHAT_WORDS] = {0};
    snprintf((char *)words, sizeof words, "%s", what);
    atomic_store(&dog.deadline_ns, 0);
    if (!(seconds > 0) || seconds > 1e9) return;
    int64_t limit = (int64_t)(seconds * 1e9);
    for (int i = 0; i < WHAT_WORDS; i++) atomic_store_explicit(&dog.what[i], words[i], memory_order_relaxed);
    atomic_store(&dog.limit_ns, limit);
    atomic_store(&dog.deadline_ns, fwa_clock_ns() + limit);
}

// A stderr that nobody reads must not hold this thread: print only where there is room.
static void print_line(const char *line) {
    struct pollfd fd = {.fd = STDERR_FILENO, .events = POLLOUT};
    if (poll(&fd, 1, 500) != 1 || !(fd.revents & POLLOUT)) return;
    ssize_t written = write(STDERR_FILENO, line, strlen(line));
    (void)written;
}

static void check_deadline(void) {
    int64_t deadline = atomic_load(&dog.deadline_ns);
    if (deadline == 0 || fwa_clock_ns() <= deadline) return;
    uint64_t words[WHAT_WORDS];
    for (int i = 0; i < WHAT_WORDS; i++) words[i] = atomic_load_explicit(&dog.what[i], memory_order_relaxed);
    double seconds = (double)atomic_load(&dog.limit_ns) * 1e-9;
    if (atomic_load(&dog.deadline_ns) != deadline) return; // re-armed just now
    char line[640];
    snprintf(
        line, sizeof line,
        "fwa: watchdog on host %s, process %ld: %s took longer than %.1f s; a peer is stopped or gone, or this rank "
        "is stuck: leaving with code %d\n",
        dog.host, (long)getpid(), (const char *)words, seconds, fwa_status_exit_code(FWA_TIMEOUT));
    print_line(line);
    _exit(fwa_status_exit_code(FWA_TIMEOUT));
}

// While this thread was kept from running so was the process: that time is given back.
static void give_back(int64_t missed_ns) {
    int64_t deadline = atomic_load(&dog.deadline_ns);
    if (missed_ns <= FWA_STOPPED_NS || deadline == 0) return;
    atomic_compare_exchange_strong(&dog.deadline_ns, &deadline, deadline + missed_ns); // fails: re-armed just now
}

static void *watch(void *unused) {
    (void)unused;
    pthread_mutex_lock(&dog.mutex);
    while (!dog.stop) {
        int64_t until = fwa_clock_ns() + PERIOD_NS;
        struct timespec t = {.tv_sec = until / 1000000000, .tv_nsec = until % 1000000000};
        pthread_cond_timedwait(&dog.wake, &dog.mutex, &t);
        give_back(fwa_clock_ns() - until);
        check_deadline();
    }
    pthread_mutex_unlock(&dog.mutex);
    return NULL;
}

fwa_status fwa_watchdog_start(void) {
    FWA_CHECK(!dog.running, FWA_ERROR, "got a second start of the watchdog, expected fwa_watchdog_stop before it");
    gethostname(dog.host, sizeof dog.host - 1);
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&dog.wake, &attributes);
    pthread_condattr_destroy(&attributes);
    dog.stop = false;
    atomic_store(&dog.deadline_ns, 0);
    // Signals are for the thread that trains.
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int code = pthread_create(&dog.thread, NULL, watch, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    FWA_CHECK(code == 0, FWA_IO, "cannot start the watchdog's thread: %s", strerror(code));
    dog.running = true;
    return FWA_OK;
}

void fwa_watchdog_stop(void) {
    if (!dog.running) return;
    atomic_store(&dog.deadline_ns, 0);
    pthread_mutex_lock(&dog.mutex);
    dog.stop = true;
    pthread_cond_signal(&dog.wake);
    pthread_mutex_unlock(&dog.mutex);
    pthread_join(dog.thread, NULL);
    pthread_cond_destroy(&dog.wake);
    dog.running = false;
}
