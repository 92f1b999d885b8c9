// How CPU operators share work between threads. Results never depend on the number of threads: a thread owns whole
// rows, whole columns or fixed blocks, and every sum has one order.
#ifndef FWA_KERNELS_CPU_PARALLEL_H
#define FWA_KERNELS_CPU_PARALLEL_H

#include <omp.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/shape.h"

// Work is counted in elements of a loop without exponentials, about 0.2 ns each; waking a waiting thread costs 10 us,
// and a tenth of the work is the most it may cost.
#define FWA_PARALLEL_WORK 500000

static inline bool fwa_parallel(int64_t work) {
    return work >= FWA_PARALLEL_WORK;
}

// The columns of n that the calling thread of a parallel region owns, in multiples of 16 (a cache line of floats).
static inline void fwa_own_columns(int64_t n, int64_t *begin, int64_t *end) {
    int64_t share = fwa_round_up(fwa_ceil_div(n, omp_get_num_threads()), 16);
    *begin = fwa_min(n, share * omp_get_thread_num());
    *end = fwa_min(n, *begin + share);
}

#endif
