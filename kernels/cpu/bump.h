// Cuts one piece of memory into arrays. Without memory it only counts, so that one layout function gives both the size
// and the pointers.
#ifndef FWA_KERNELS_CPU_BUMP_H
#define FWA_KERNELS_CPU_BUMP_H

#include <stddef.h>
#include <stdint.h>

typedef struct fwa_bump {
    char *base; // NULL: count only
    size_t used;
} fwa_bump;

// `count` elements of `size` bytes; every array starts on a multiple of 64 bytes from the base.
static inline void *fwa_bump_take(fwa_bump *bump, int64_t count, size_t size) {
    void *at = bump->base ? bump->base + bump->used : NULL;
    bump->used += ((size_t)count * size + 63) / 64 * 64;
    return at;
}

#define FWA_TAKE(bump, type, count) ((type *)fwa_bump_take((bump), (count), sizeof(type)))

#endif
