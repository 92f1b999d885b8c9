// `fwa bench`: what the measured things share.
#ifndef FWA_TRAIN_BENCH_BENCH_H
#define FWA_TRAIN_BENCH_BENCH_H

#include "dist/world.h"

#ifdef __cplusplus
extern "C" {
#endif

// Collective. argv[0] is "step", "op", "comm" or "io".
FWA_MUST_CHECK fwa_status fwa_bench_step(fwa_world *world, int argc, char **argv);
FWA_MUST_CHECK fwa_status fwa_bench_op(fwa_world *world, int argc, char **argv);
FWA_MUST_CHECK fwa_status fwa_bench_comm(fwa_world *world, int argc, char **argv);
FWA_MUST_CHECK fwa_status fwa_bench_io(fwa_world *world, int argc, char **argv);

double fwa_bench_now(void); // seconds of a monotonic clock
// Sorts `seconds` and returns the median.
double fwa_bench_median(double *seconds, int count);

#ifdef __cplusplus
}
#endif
#endif
