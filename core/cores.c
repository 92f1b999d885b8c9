// The process's affinity mask as plain words.
#include "core/cores.h"

#include <sched.h>
#include <string.h>

#include "core/cpu_quota.h"

// Kernels of machines with more cores than a fixed mask holds refuse it, so the mask is allocated larger and larger.
void fwa_cores_usable(fwa_cores *cores) {
    const int most = FWA_CORES_WORDS * 64;
    memset(cores, 0, sizeof *cores);
    for (int cpus = 1024; cpus <= most; cpus *= 2) {
        cpu_set_t *set = CPU_ALLOC((size_t)cpus);
        if (!set) break;
        const size_t bytes = CPU_ALLOC_SIZE((size_t)cpus);
        const bool told = sched_getaffinity(0, bytes, set) == 0;
        for (int c = 0; told && c < cpus; c++)
            if (CPU_ISSET_S((size_t)c, bytes, set)) fwa_cores_add(cores, c);
        CPU_FREE(set);
        if (told) break;
    }
    if (fwa_cores_count(cores) == 0) cores->words[0] = 1;
}

void fwa_cores_add(fwa_cores *cores, int core) {
    if (core >= 0 && core < FWA_CORES_WORDS * 64) cores->words[core / 64] |= (uint64_t)1 << (core % 64);
}

int fwa_cores_count(const fwa_cores *cores) {
    int count = 0;
    for (int w = 0; w < FWA_CORES_WORDS; w++) count += __builtin_popcountll(cores->words[w]);
    return count;
}

int fwa_cores_granted(void) {
    fwa_cores cores;
    fwa_cores_usable(&cores);
    const int count = fwa_cores_count(&cores), quota = fwa_cpu_quota(NULL, NULL);
    return quota < count ? quota : count;
}

bool fwa_cores_overlap(const fwa_cores *a, const fwa_cores *b) {
    for (int w = 0; w < FWA_CORES_WORDS; w++)
        if (a->words[w] & b->words[w]) return true;
    return false;
}

void fwa_cores_piece(const fwa_cores *cores, int part, int parts, fwa_cores *piece) {
    const long count = fwa_cores_count(cores);
    const long first = count * part / parts, end = count * (part + 1) / parts;
    long n = 0;
    memset(piece, 0, sizeof *piece);
    for (int c = 0; c < FWA_CORES_WORDS * 64; c++) {
        if (!(cores->words[c / 64] >> c % 64 & 1)) continue;
        if (n == first || (n > first && n < end)) piece->words[c / 64] |= (uint64_t)1 << c % 64;
        n++;
    }
}

void fwa_cores_keep(fwa_cores *cores, int most) {
    int n = 0;
    for (int c = 0; c < FWA_CORES_WORDS * 64; c++) {
        if (!(cores->words[c / 64] >> c % 64 & 1)) continue;
        if (n >= most) cores->words[c / 64] &= ~((uint64_t)1 << c % 64);
        n++;
    }
}

bool fwa_cores_bind(const fwa_cores *cores) {
    const int most = FWA_CORES_WORDS * 64;
    cpu_set_t *set = CPU_ALLOC((size_t)most);
    if (!set) return false;
    const size_t bytes = CPU_ALLOC_SIZE((size_t)most);
    CPU_ZERO_S(bytes, set);
    for (int c = 0; c < most; c++)
        if (cores->words[c / 64] >> c % 64 & 1) CPU_SET_S((size_t)c, bytes, set);
    const bool bound = sched_setaffinity(0, bytes, set) == 0;
    CPU_FREE(set);
    return bound;
}
