// Values of a bench's tensors: uniform random numbers that repeat after about a million, so that large tensors in
// device memory are filled by copies there and the host knows every element. Not collective; threads may share it after
// the first value.
#ifndef FWA_TRAIN_BENCH_FILL_H
#define FWA_TRAIN_BENCH_FILL_H

#include "core/backend.h"
#include "core/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct fwa_bench_range {
    double low, high; // values lie in [low, high)
    bool whole;       // whole numbers
} fwa_bench_range;

// Element i of tensor number `id`, rounded to `dtype`.
double fwa_bench_value(int id, int64_t i, fwa_bench_range range, fwa_dtype dtype);
// Fills a dense tensor in the backend's memory with these elements.
FWA_MUST_CHECK fwa_status fwa_bench_fill(fwa_backend *backend, fwa_tensor t, int id, fwa_bench_range range);

// Element i of an array of this type in host memory, and setting it.
double fwa_bench_get(const void *data, fwa_dtype dtype, int64_t i);
void fwa_bench_set(void *data, fwa_dtype dtype, int64_t i, double value);

#ifdef __cplusplus
}
#endif
#endif
