// Named parts of a step, nested, for whoever listens: a tool that draws a timeline, or debug.profile. Marked by layers
// and by the step around what they give to the main stream. Nothing happens, and nothing is paid but a branch, where
// nobody listens; a step that is recorded as a graph marks its parts while it is recorded. After a failure parts may
// stay open. Not collective.
#ifndef FWA_CORE_RANGE_H
#define FWA_CORE_RANGE_H

#include "core/backend.h"

#ifdef __cplusplus
extern "C" {
#endif

// A listener, as fwa_backend.ranges has it. Names live as long as the program; number < 0: the name has none.
struct fwa_ranges {
    void (*begin)(fwa_ranges *ranges, const char *name, int number);
    void (*end)(fwa_ranges *ranges);
};

static inline void fwa_range_begin(const fwa_backend *backend, const char *name) {
    if (backend->ranges) backend->ranges->begin(backend->ranges, name, -1);
}
static inline void fwa_range_begin_numbered(const fwa_backend *backend, const char *name, int number) {
    if (backend->ranges) backend->ranges->begin(backend->ranges, name, number);
}
static inline void fwa_range_end(const fwa_backend *backend) {
    if (backend->ranges) backend->ranges->end(backend->ranges);
}

// Returns the status of `call`, which is one part, where it fails.
#define FWA_TRY_RANGE(backend, name, call)                                                                             \
    do {                                                                                                               \
        fwa_range_begin((backend), (name));                                                                            \
        FWA_TRY(call);                                                                                                 \
        fwa_range_end(backend);                                                                                        \
    } while (0)

#ifdef __cplusplus
}
#endif
#endif
