// The monotonic clock. Not collective.
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

#ifdef __cplusplus
}
#endif
#endif
