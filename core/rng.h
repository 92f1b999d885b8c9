// Counter-based random numbers: Philox4x32-10 (Salmon et al., 2011). A draw is a pure function of (key, stream, index),
// so data, initial values and shuffles depend on no order of calls, no number of ranks and no stored state.
#ifndef FWA_CORE_RNG_H
#define FWA_CORE_RNG_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// Four words from a 64-bit key and a 128-bit counter.
void fwa_philox(uint64_t key, uint64_t counter_high, uint64_t counter_low, uint32_t out[4]);

// Draw number `index` of stream `stream` under `key`.
uint64_t fwa_rng_u64(uint64_t key, uint64_t stream, uint64_t index);
double fwa_rng_uniform(uint64_t key, uint64_t stream, uint64_t index);                 // [0, 1), 53 bits
double fwa_rng_normal(uint64_t key, uint64_t stream, uint64_t index);                  // N(0, 1), Box-Muller
uint64_t fwa_rng_below(uint64_t key, uint64_t stream, uint64_t index, uint64_t bound); // [0, bound), unbiased to 2^-64

// Image of `index` under a keyed permutation of [0, n): a Feistel network with cycle walking. No table.
// n >= 1, index < n.
uint64_t fwa_rng_permute(uint64_t key, uint64_t n, uint64_t index);

// Stable 64-bit hash of a text (FNV-1a, mixed): stream numbers from names.
uint64_t fwa_rng_hash(const char *text);

#ifdef __cplusplus
}
#endif
#endif
