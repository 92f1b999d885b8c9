// exp and the sigmoid in a form that compilers turn into vector code: no branches, no calls, for float; libm for
// double.
//
// exp(x) = 2^n e^r, n = round(x / ln 2), |r| <= ln 2 / 2, e^r by its Taylor series to r^7 (relative error 5e-9). Two
// ulp at most over the whole range; overflow gives inf, underflow goes through the subnormals to 0, NaN stays NaN.
#ifndef FWA_KERNELS_CPU_VEXP_H
#define FWA_KERNELS_CPU_VEXP_H

#include <string.h>

#include "kernels/cpu/real.h"

static inline float fwa_exp_float(float x) {
    const float round = 0x1.8p23f;          // adding it leaves the nearest integer in the low bits
    const float ln2_high = 0x1.63p-1f;      // 9 bits, so that n ln2_high is exact
    const float ln2_low = -0x1.bd0106p-13f; // ln 2 - ln2_high
    x = x < -104.0f ? -104.0f : x;          // e^-104 rounds to 0
    x = x > 89.0f ? 89.0f : x;              // e^89 is inf
    float shifted = x * 0x1.715476p+0f + round;
    float n = shifted - round;
    float r = x - n * ln2_high - n * ln2_low;
    float p = 1.0f / 5040;
    p = p * r + 1.0f / 720;
    p = p * r + 1.0f / 120;
    p = p * r + 1.0f / 24;
    p = p * r + 1.0f / 6;
    p = p * r + 0.5f;
    p = p * (r * r) + r + 1.0f;
    // 2^n as a product of two normal numbers: n runs from -150 to 128. Unsigned, since a NaN leaves any bits here.
    uint32_t bits;
    memcpy(&bits, &shifted, sizeof bits);
    bits -= 0x4b400000u; // bits of `round`: n in two's complement
    uint32_t half = (bits >> 1) | (bits & 0x80000000u);
    uint32_t high = (half + 127u) << 23, low = (bits - half + 127u) << 23;
    float scale_high, scale_low;
    memcpy(&scale_high, &high, sizeof high);
    memcpy(&scale_low, &low, sizeof low);
    return p * scale_high * scale_low;
}

static inline real fwa_exp(real x) {
#if FWA_REAL_BITS == 32
    return fwa_exp_float(x);
#else
    return exp(x);
#endif
}

static inline real fwa_sigmoid(real x) {
    return (real)1 / ((real)1 + fwa_exp(-x));
}

// d/dx of x sigmoid(x), given s = sigmoid(x).
static inline real fwa_silu_slope(real x, real s) {
    return s * ((real)1 + x * ((real)1 - s));
}

#endif
