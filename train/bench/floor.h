// What a device can do at best, measured: the rate of a plain copy and of a large product. A piece of work that moves
// some bytes and computes some products takes at least the longer of the two times; its share of that floor says how
// much a better kernel could still win. Not collective.
#ifndef FWA_TRAIN_BENCH_FLOOR_H
#define FWA_TRAIN_BENCH_FLOOR_H

#include "core/backend.h"
#include "train/bench/op_meter.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct fwa_floor {
    double copy;    // bytes read and written a second, the best of some runs
    double product; // FLOP/s of a square product in the backend's precision
    int64_t size;   // of that product
} fwa_floor;

// Memory of the device that may be overwritten; {NULL, 0}: none.
typedef struct fwa_floor_room {
    void *memory;
    size_t bytes;
} fwa_floor_room;

// Waits for the device; takes up to a second and, where `room` is smaller, up to 510 MB of the device while it runs.
FWA_MUST_CHECK fwa_status fwa_floor_measure(fwa_backend *backend, fwa_floor_room room, fwa_floor *floor);
// Seconds that the work takes at least; share of it in `seconds`.
double fwa_floor_seconds(const fwa_floor *floor, fwa_cost cost);
double fwa_floor_share(const fwa_floor *floor, fwa_cost cost, double seconds);

// Median and least seconds of `repeats` calls of run(user), by the backend's timers, after at least `warm_up` ones and
// `warm_up_s` seconds of them: an idle GPU takes a while to its full clock.
#define FWA_TIMED_REPEATS 200 // at most
FWA_MUST_CHECK fwa_status fwa_floor_time(fwa_backend *backend, fwa_status (*run)(void *user), void *user, int warm_up,
                                         double warm_up_s, int repeats, double *median, double *least);

#ifdef __cplusplus
}
#endif
#endif
