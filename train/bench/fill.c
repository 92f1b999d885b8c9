// Filling large tensors with numbers that the host knows.
#include "train/bench/fill.h"

#include <math.h>
#include <stdlib.h>

#include "core/bf16.h"
#include "core/rng.h"
#include "core/shape.h"

enum { PERIOD = 1048573, STRIDE = 7919 }; // primes: rows of usual lengths do not repeat soon; tensors start apart

static double uniform(int64_t i) {
    static double *numbers;
    if (!numbers) {
        numbers = malloc(PERIOD * sizeof *numbers);
        for (uint64_t n = 0; numbers && n < PERIOD; n++) numbers[n] = fwa_rng_uniform(7, 1, n);
    }
    return numbers ? numbers[i % PERIOD] : fwa_rng_uniform(7, 1, (uint64_t)(i % PERIOD));
}

double fwa_bench_get(const void *data, fwa_dtype dtype, int64_t i) {
    switch (dtype) {
    case FWA_F64:
        return ((const double *)data)[i];
    case FWA_F32:
        return (double)((const float *)data)[i];
    case FWA_BF16:
        return (double)fwa_bf16_to_float(((const uint16_t *)data)[i]);
    case FWA_I32:
        return (double)((const int32_t *)data)[i];
    default:
        return (double)((const uint8_t *)data)[i];
    }
}

void fwa_bench_set(void *data, fwa_dtype dtype, int64_t i, double value) {
    switch (dtype) {
    case FWA_F64:
        ((double *)data)[i] = value;
        break;
    case FWA_F32:
        ((float *)data)[i] = (float)value;
        break;
    case FWA_BF16:
        ((uint16_t *)data)[i] = fwa_bf16_from_float((float)value);
        break;
    case FWA_I32:
        ((int32_t *)data)[i] = (int32_t)value;
        break;
    default:
        ((uint8_t *)data)[i] = (uint8_t)value;
    }
}

double fwa_bench_value(int id, int64_t i, fwa_bench_range range, fwa_dtype dtype) {
    const double value = range.low + (range.high - range.low) * uniform(i + (int64_t)id * STRIDE);
    double rounded; // room for any type
    fwa_bench_set(&rounded, dtype, 0, range.whole ? floor(value) : value);
    return fwa_bench_get(&rounded, dtype, 0);
}

// The first period comes from the host; what is filled doubles from there on.
static fwa_status spread(fwa_backend *backend, fwa_tensor t, void *image, int id, fwa_bench_range range) {
    const size_t bytes = fwa_tensor_bytes(t), size = fwa_dtype_size(t.dtype);
    const int64_t first = fwa_min(fwa_tensor_count(t), PERIOD);
    for (int64_t i = 0; i < first; i++) fwa_bench_set(image, t.dtype, i, fwa_bench_value(id, i, range, t.dtype));
    FWA_TRY(backend->upload(backend, backend->stream, t.data, image, (size_t)first * size));
    for (size_t filled = (size_t)first * size; filled < bytes; filled *= 2) {
        const size_t more = filled < bytes - filled ? filled : bytes - filled;
        FWA_TRY(backend->copy(backend, backend->stream, (char *)t.data + filled, t.data, more));
    }
    return FWA_OK;
}

fwa_status fwa_bench_fill(fwa_backend *backend, fwa_tensor t, int id, fwa_bench_range range) {
    void *image = malloc((size_t)fwa_min(fwa_tensor_count(t), PERIOD) * fwa_dtype_size(t.dtype) + 1);
    FWA_CHECK(image, FWA_MEMORY, "bench: no memory for %d values", PERIOD);
    fwa_status status = spread(backend, t, image, id, range);
    free(image);
    FWA_TRY(status);
    return FWA_OK;
}
