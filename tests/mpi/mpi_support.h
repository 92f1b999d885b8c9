// What tests under mpirun share: one verdict for all ranks, so that no rank is left behind in a collective, and values
// that every rank can compute for every other. Independent of the communicators under test.
#ifndef FWA_TESTS_MPI_SUPPORT_H
#define FWA_TESTS_MPI_SUPPORT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>
#include <mpi.h>

#include "core/status.h"

// Collective. True if `mine` holds on every rank.
static inline int all_hold(int mine, const char *what, int line) {
    int all = 0, rank = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (!mine) fprintf(stderr, "rank %d, line %d: not so: %s (%s)\n", rank, line, what, fwa_error_message());
    MPI_Allreduce(&mine, &all, 1, MPI_INT, MPI_LAND, MPI_COMM_WORLD);
    return all;
}

#define ASSERT_ALL(condition) assert_true(all_hold((condition) ? 1 : 0, #condition, __LINE__))

// Element i of rank r: magnitudes differ by 2^20, so that float sums depend on their order.
static inline double element(int rank, int64_t i) {
    uint64_t bits = ((uint64_t)rank * 1000003 + (uint64_t)i) * 0x9E3779B97F4A7C15ull;
    bits ^= bits >> 29;
    bits *= 0xBF58476D1CE4E5B9ull;
    bits ^= bits >> 32;
    double value = (double)(int64_t)(bits & 0xffffff) - 8388608.0;
    return value / (double)(1u << (bits >> 40 & 0xf));
}

#endif
