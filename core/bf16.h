// bf16 as the upper half of a float.
#ifndef FWA_CORE_BF16_H
#define FWA_CORE_BF16_H

#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

static inline float fwa_bf16_to_float(uint16_t half) {
    const uint32_t bits = (uint32_t)half << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

// To the nearest, ties to even; a NaN stays a (quiet) NaN.
static inline uint16_t fwa_bf16_from_float(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    if (value != value) return (uint16_t)(bits >> 16 | 0x40u);
    return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

#ifdef __cplusplus
}
#endif
#endif
