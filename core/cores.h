// The processor cores that this process may run on. Not collective.
#ifndef FWA_CORE_CORES_H
#define FWA_CORE_CORES_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { FWA_CORES_WORDS = 128 }; // 8192 cores; others are not counted

// Bit c % 64 of words[c / 64]: core c. Plain data, so that ranks can send it.
typedef struct fwa_cores {
    uint64_t words[FWA_CORES_WORDS];
} fwa_cores;

void fwa_cores_usable(fwa_cores *cores);        // core 0 alone where the system does not tell
void fwa_cores_add(fwa_cores *cores, int core); // nothing where the number is none that is counted
int fwa_cores_count(const fwa_cores *cores);
int fwa_cores_granted(void); // how many usable ones may be busy all the time, at least 1 (core/cpu_quota.h)
bool fwa_cores_overlap(const fwa_cores *a, const fwa_cores *b);
// Piece number `part` of `parts` pieces of nearly one size, in the order of the cores; one core that others may have,
// too, where there are fewer cores than pieces.
void fwa_cores_piece(const fwa_cores *cores, int part, int parts, fwa_cores *piece);
void fwa_cores_keep(fwa_cores *cores, int most); // the first ones only, where there are more
bool fwa_cores_bind(const fwa_cores *cores);     // this thread, and what it starts; false: refused, errno says why

#ifdef __cplusplus
}
#endif
#endif
