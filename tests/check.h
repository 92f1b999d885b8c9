// Helpers for tests: tensors with random or poisoned contents, the error measure, finite differences.
//
// Elements are read and written as double at a logical row-major index, whatever the type and the row stride, so that
// one naive reference serves every precision. Memory is kept in a list and freed by check_release (a cmocka teardown).
#ifndef FWA_TESTS_CHECK_H
#define FWA_TESTS_CHECK_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "core/rng.h"
#include "core/status.h"
#include "core/tensor.h"

// Fails with the message and trace of the error unless `call` gives FWA_OK.
#define check_ok(call)                                                                                                 \
    do {                                                                                                               \
        if ((call) != FWA_OK) fail_msg("%s: %s\n%s", #call, fwa_error_message(), fwa_error_trace());                   \
    } while (0)

// Fails unless `call` gives `code`.
#define check_status(call, code) assert_int_equal((int)(call), (int)(code))

// Fails unless the error of `got` against `expected` is at most `limit`; NaN fails.
#define check_close(got, expected, limit)                                                                              \
    do {                                                                                                               \
        double check_error_ = check_error((got), (expected));                                                          \
        if (!(check_error_ <= (limit)))                                                                                \
            fail_msg("%s against %s: error %.3g, limit %.3g", #got, #expected, check_error_, (double)(limit));         \
    } while (0)

static void *check_blocks[4096];
static int check_block_count;

static inline void *check_alloc(size_t bytes) {
    void *block = malloc(bytes ? bytes : 1);
    if (!block || check_block_count == (int)(sizeof check_blocks / sizeof check_blocks[0]))
        fail_msg("test memory: %zu bytes, %d blocks", bytes, check_block_count);
    memset(block, 0xFF, bytes);
    check_blocks[check_block_count++] = block;
    return block;
}

// Frees everything that check_alloc and check_new gave.
static inline int check_release(void **state) {
    (void)state;
    while (check_block_count) free(check_blocks[--check_block_count]);
    return 0;
}

// Dense tensor of up to 4 sizes (0 ends the list, so no size may be 0), filled with 0xFF: NaN in every float type.
static inline fwa_tensor check_new(fwa_dtype dtype, int64_t n0, int64_t n1, int64_t n2, int64_t n3) {
    int64_t shape[4] = {n0, n1, n2, n3};
    int ndim = 0;
    while (ndim < 4 && shape[ndim]) ndim++;
    fwa_tensor t = fwa_tensor_nd(NULL, dtype, ndim, shape);
    t.data = check_alloc(fwa_tensor_bytes(t));
    return t;
}

// The same with `left` and `right` foreign elements around every row of the last dimension, as in a packed projection.
static inline fwa_tensor check_new_strided(fwa_dtype dtype, int64_t n0, int64_t n1, int64_t n2, int64_t left,
                                           int64_t right) {
    int64_t shape[4] = {n0, n1, n2, 0};
    int last = n2 ? 2 : 1;
    int64_t n = shape[last];
    shape[last] = left + n + right;
    fwa_tensor all = check_new(dtype, shape[0], shape[1], shape[2], 0);
    return fwa_tensor_slice(all, last, left, n);
}

// Offset in elements of logical element i. Divisions are slow, and most tensors are dense.
static inline int64_t check_offset(fwa_tensor t, int64_t i) {
    int64_t offset = 0, dense = 1;
    int d = t.ndim - 1;
    for (; d >= 0 && t.stride[d] == dense; d--) dense *= t.shape[d];
    if (d < 0) return i;
    for (d = t.ndim - 1; d >= 0; d--) {
        offset += i % t.shape[d] * t.stride[d];
        i /= t.shape[d];
    }
    return offset;
}

static inline double check_get(fwa_tensor t, int64_t i) {
    int64_t at = check_offset(t, i);
    uint32_t bits;
    float f;
    switch (t.dtype) {
    case FWA_F64:
        return ((const double *)t.data)[at];
    case FWA_F32:
        return (double)((const float *)t.data)[at];
    case FWA_BF16:
        bits = (uint32_t)((const uint16_t *)t.data)[at] << 16;
        memcpy(&f, &bits, sizeof f);
        return (double)f;
    case FWA_I32:
        return ((const int32_t *)t.data)[at];
    case FWA_I64:
        return (double)((const int64_t *)t.data)[at];
    case FWA_U8:
        return ((const uint8_t *)t.data)[at];
    default:
        return (double)NAN;
    }
}

// Not for bf16.
static inline void check_set(fwa_tensor t, int64_t i, double value) {
    int64_t at = check_offset(t, i);
    switch (t.dtype) {
    case FWA_F64:
        ((double *)t.data)[at] = value;
        break;
    case FWA_F32:
        ((float *)t.data)[at] = (float)value;
        break;
    case FWA_I32:
        ((int32_t *)t.data)[at] = (int32_t)value;
        break;
    case FWA_I64:
        ((int64_t *)t.data)[at] = (int64_t)value;
        break;
    case FWA_U8:
        ((uint8_t *)t.data)[at] = (uint8_t)value;
        break;
    default:
        fail_msg("check_set: type %s", fwa_dtype_name(t.dtype));
    }
}

static inline void check_fill_value(fwa_tensor t, double value) {
    for (int64_t i = 0, n = fwa_tensor_count(t); i < n; i++) check_set(t, i, value);
}

// scale * N(0,1); every `stream` is another sequence. The values are those of a float, so that an f32 and an f64 tensor
// filled with the same stream are equal.
static inline void check_fill_normal(fwa_tensor t, uint64_t stream, double scale) {
    for (int64_t i = 0, n = fwa_tensor_count(t); i < n; i++)
        check_set(t, i, (double)(float)(scale * fwa_rng_normal(1234, stream, (uint64_t)i)));
}

static inline void check_fill_uniform(fwa_tensor t, uint64_t stream, double low, double high) {
    for (int64_t i = 0, n = fwa_tensor_count(t); i < n; i++)
        check_set(t, i, (double)(float)(low + (high - low) * fwa_rng_uniform(1234, stream, (uint64_t)i)));
}

// Integers in [0, bound).
static inline void check_fill_below(fwa_tensor t, uint64_t stream, uint64_t bound) {
    for (int64_t i = 0, n = fwa_tensor_count(t); i < n; i++)
        check_set(t, i, (double)fwa_rng_below(1234, stream, (uint64_t)i, bound));
}

// NaN in every element of a float tensor; foreign elements between strided rows stay.
static inline void check_poison(fwa_tensor t) {
    check_fill_value(t, (double)NAN);
}

static inline void check_copy(fwa_tensor to, fwa_tensor from) {
    for (int64_t i = 0, n = fwa_tensor_count(to); i < n; i++) check_set(to, i, check_get(from, i));
}

// RMS(a-b)/RMS(b), or 0 where RMS(b) < 1e-12 and RMS(a-b) <= 1e-12 (1 where it is larger); NaN if either holds NaN.
static inline double check_error(fwa_tensor a, fwa_tensor b) {
    int64_t n = fwa_tensor_count(b);
    if (fwa_tensor_count(a) != n) return (double)INFINITY;
    double difference = 0, size = 0;
    for (int64_t i = 0; i < n; i++) {
        double x = check_get(a, i), y = check_get(b, i);
        difference += (x - y) * (x - y);
        size += y * y;
    }
    difference = sqrt(difference / (double)(n ? n : 1));
    size = sqrt(size / (double)(n ? n : 1));
    if (size < 1e-12) return difference <= 1e-12 ? 0 : isnan(difference) ? (double)NAN : 1;
    return difference / size;
}

// Number of elements whose values differ in any bit (NaN equals NaN).
static inline int64_t check_differences(fwa_tensor a, fwa_tensor b) {
    int64_t n = fwa_tensor_count(b), count = 0;
    size_t size = fwa_dtype_size(b.dtype);
    for (int64_t i = 0; i < n; i++)
        count += memcmp((const char *)a.data + (size_t)check_offset(a, i) * size,
                        (const char *)b.data + (size_t)check_offset(b, i) * size, size) != 0;
    return count;
}

// Fails if something was written into the foreign elements around the rows of a check_new_strided tensor.
static inline void check_margins(fwa_tensor t, int64_t left, int64_t right) {
    int64_t columns = t.shape[t.ndim - 1], rows = columns ? fwa_tensor_count(t) / columns : 0;
    int64_t size = (int64_t)fwa_dtype_size(t.dtype);
    for (int64_t r = 0; r < rows; r++) {
        const unsigned char *row = (const unsigned char *)t.data + check_offset(t, r * columns) * size;
        for (int64_t i = -left * size; i < 0; i++) assert_int_equal(row[i], 0xFF);
        for (int64_t i = columns * size; i < (columns + right) * size; i++) assert_int_equal(row[i], 0xFF);
    }
}

// sum_i a_i b_i: the random linear functional of an output.
static inline double check_dot(fwa_tensor a, fwa_tensor b) {
    double sum = 0;
    for (int64_t i = 0, n = fwa_tensor_count(a); i < n; i++) sum += check_get(a, i) * check_get(b, i);
    return sum;
}

// Central differences of `value(context)` by every element of the f64 tensor x into `gradient`.
static inline void check_differentiate(double (*value)(void *context), void *context, fwa_tensor x,
                                       fwa_tensor gradient) {
    const double h = 1e-5;
    for (int64_t i = 0, n = fwa_tensor_count(x); i < n; i++) {
        double keep = check_get(x, i);
        check_set(x, i, keep + h);
        double high = value(context);
        check_set(x, i, keep - h);
        double low = value(context);
        check_set(x, i, keep);
        check_set(gradient, i, (high - low) / (2 * h));
    }
}

#endif
