// The monotonic clock, and waiting by it. Not collective.
#ifndef FWA_CORE_CLOCK_H
#define FWA_CORE_CLOCK_H

#include <stdint.h>
#include <time.h>

#ifdef __cplusplus
extern "C" {
#endif

static inline int64_t fwa_clock_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static inline double fwa_clock_seconds(void) {
    return 1e-9 * (double)fwa_clock_ns();
}

// How long something has been waited for. What passes between two looks while the process itself did not run (Ctrl-Z,
// SIGSTOP, a virtual machine that was paused) is left out: so long nothing could have come.
#define FWA_STOPPED_NS 1000000000LL // looks further apart than this: it did not run

typedef struct fwa_waiting {
    int64_t start, last;
} fwa_waiting;

static inline fwa_waiting fwa_waiting_begin(void) {
    const int64_t now = fwa_clock_ns();
    return (fwa_waiting){now, now};
}

static inline int64_t fwa_waiting_ns(fwa_waiting *waiting) {
    const int64_t now = fwa_clock_ns();
    if (now - waiting->last > FWA_STOPPED_NS) waiting->start += now - waiting->last;
    waiting->last = now;
    return now - waiting->start;
}

#ifdef __cplusplus
}
#endif
#endif
