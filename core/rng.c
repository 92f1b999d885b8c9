// Philox4x32-10 and what is drawn from it.
#include "core/rng.h"

#include <math.h>

static void philox_round(uint32_t c[4], uint32_t k0, uint32_t k1) {
    uint64_t p0 = (uint64_t)0xD2511F53u * c[0], p1 = (uint64_t)0xCD9E8D57u * c[2];
    uint32_t c1 = c[1], c3 = c[3];
    c[0] = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
    c[1] = (uint32_t)p1;
    c[2] = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
    c[3] = (uint32_t)p0;
}

void fwa_philox(uint64_t key, uint64_t counter_high, uint64_t counter_low, uint32_t out[4]) {
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    uint32_t c[4] = {(uint32_t)counter_low, (uint32_t)(counter_low >> 32), (uint32_t)counter_high,
                     (uint32_t)(counter_high >> 32)};
    for (int i = 0; i < 10; i++) {
        philox_round(c, k0, k1);
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    for (int i = 0; i < 4; i++) out[i] = c[i];
}

// Two 64-bit words of one draw.
static void draw(uint64_t key, uint64_t stream, uint64_t index, uint64_t words[2]) {
    uint32_t out[4];
    fwa_philox(key, stream, index, out);
    words[0] = (uint64_t)out[1] << 32 | out[0];
    words[1] = (uint64_t)out[3] << 32 | out[2];
}

static double unit(uint64_t word) {
    return (double)(word >> 11) * 0x1p-53;
}

uint64_t fwa_rng_u64(uint64_t key, uint64_t stream, uint64_t index) {
    uint64_t words[2];
    draw(key, stream, index, words);
    return words[0];
}

double fwa_rng_uniform(uint64_t key, uint64_t stream, uint64_t index) {
    return unit(fwa_rng_u64(key, stream, index));
}

double fwa_rng_normal(uint64_t key, uint64_t stream, uint64_t index) {
    const double two_pi = 6.283185307179586476925;
    uint64_t words[2];
    draw(key, stream, index, words);
    double radius = sqrt(-2.0 * log(1.0 - unit(words[0]))); // 1 - u lies in (0, 1]
    return radius * cos(two_pi * unit(words[1]));
}

uint64_t fwa_rng_below(uint64_t key, uint64_t stream, uint64_t index, uint64_t bound) {
    __extension__ typedef unsigned __int128 wide;
    return (uint64_t)((wide)fwa_rng_u64(key, stream, index) * bound >> 64);
}

// The round function: a keyed hash of the other half, of the round and of n, so that permutations of different sizes
// have nothing in common. The key is altered, so that they have nothing in common with the draws above either.
static uint64_t feistel(uint64_t key, uint64_t n, uint64_t round, uint64_t half) {
    return fwa_rng_u64(key ^ 0x6A09E667F3BCC908u, n, round << 32 | half);
}

uint64_t fwa_rng_permute(uint64_t key, uint64_t n, uint64_t index) {
    const uint64_t rounds = 8;
    int bits = 0;
    while (bits < 64 && (uint64_t)1 << bits < n) bits++;
    int left_bits = bits / 2, right_bits = bits - left_bits;
    uint64_t left_mask = ((uint64_t)1 << left_bits) - 1, right_mask = ((uint64_t)1 << right_bits) - 1;
    index %= n;
    do { // the network permutes [0, 2^bits); walking its cycle until below n permutes [0, n)
        uint64_t left = index >> right_bits, right = index & right_mask;
        for (uint64_t round = 0; round < rounds; round += 2) {
            left ^= feistel(key, n, round, right) & left_mask;
            right ^= feistel(key, n, round + 1, left) & right_mask;
        }
        index = left << right_bits | right;
    } while (index >= n);
    return index;
}

uint64_t fwa_rng_hash(const char *text) {
    uint64_t h = 0xCBF29CE484222325u;
    for (const unsigned char *p = (const unsigned char *)text; *p; p++) h = (h ^ *p) * 0x100000001B3u;
    h = (h ^ h >> 30) * 0xBF58476D1CE4E5B9u;
    h = (h ^ h >> 27) * 0x94D049BB133111EBu;
    return h ^ h >> 31;
}
