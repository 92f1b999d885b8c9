// Pieces of known lengths laid into rows of T places: first-fit decreasing. The longest goes first, of equal ones that
// with the lower number, each into the first row that has room for it. Where a piece lies is a function of the lengths
// and T alone.
#ifndef FWA_TRAIN_TASKS_PACKING_H
#define FWA_TRAIN_TASKS_PACKING_H

#include <stdint.h>

#include "core/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct fwa_packing {
    int64_t count, longest, T;
    int64_t rows;                  // that fwa_packing_lay took
    int32_t *length;               // [count], of 1 to `longest`: the caller's
    int32_t *row, *start;          // [count]: where each piece lies
    int32_t *order, *room, *first; // scratch: pieces by length, places left by row, pieces longer than a length
} fwa_packing;

// For `count` pieces of at most `longest` <= T places. The caller: fwa_packing_destroy.
FWA_MUST_CHECK fwa_status fwa_packing_create(fwa_packing *packing, int64_t count, int64_t longest, int64_t T);
void fwa_packing_destroy(fwa_packing *packing);
// Lays out pieces of the lengths in `length`; O(count + rows x different lengths).
void fwa_packing_lay(fwa_packing *packing);

#ifdef __cplusplus
}
#endif
#endif
