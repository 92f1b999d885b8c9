// The letters used for sizes everywhere, in code, comments and messages, and the few sums done with them.
//
//   B batch (sequences)   T time (tokens of a sequence)   H heads   K key size of a head   V value size of a head
//   D model width         C chunk length                  F ffn     N vocabulary           L layers
//   R rows = B*T          W convolution width             P columns of a packed projection
#ifndef FWA_CORE_SHAPE_H
#define FWA_CORE_SHAPE_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

static inline int64_t fwa_ceil_div(int64_t a, int64_t b) {
    return (a + b - 1) / b;
}
static inline int64_t fwa_round_up(int64_t a, int64_t multiple) {
    return fwa_ceil_div(a, multiple) * multiple;
}
static inline int64_t fwa_min(int64_t a, int64_t b) {
    return a < b ? a : b;
}
static inline int64_t fwa_max(int64_t a, int64_t b) {
    return a > b ? a : b;
}

#ifdef __cplusplus
}
#endif
#endif
