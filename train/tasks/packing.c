// First-fit decreasing.
#include "train/tasks/packing.h"

#include <stdlib.h>
#include <string.h>

fwa_status fwa_packing_create(fwa_packing *p, int64_t count, int64_t longest, int64_t T) {
    const size_t n = (size_t)count;
    memset(p, 0, sizeof *p);
    FWA_CHECK(count >= 1 && longest >= 1 && longest <= T && T <= INT32_MAX, FWA_ERROR,
              "packing: got %lld pieces of up to %lld places in rows of %lld; expected pieces that a row can hold",
              (long long)count, (long long)longest, (long long)T);
    p->count = count;
    p->longest = longest;
    p->T = T;
    p->length = calloc(5 * n + (size_t)longest + 1, sizeof *p->length);
    FWA_CHECK(p->length, FWA_MEMORY, "packing: out of memory for %lld pieces", (long long)count);
    p->row = p->length + n;
    p->start = p->row + n;
    p->order = p->start + n;
    p->room = p->order + n;
    p->first = p->room + n;
    return FWA_OK;
}

void fwa_packing_destroy(fwa_packing *p) {
    free(p->length);
    memset(p, 0, sizeof *p);
}

// Pieces by length, the longest first, of equal ones the lower number first.
static void sort(fwa_packing *p) {
    int32_t before = 0;
    memset(p->first, 0, ((size_t)p->longest + 1) * sizeof *p->first);
    for (int64_t i = 0; i < p->count; i++) p->first[p->length[i]]++;
    for (int64_t n = p->longest; n >= 0; n--) {
        const int32_t alike = p->first[n];
        p->first[n] = before;
        before += alike;
    }
    for (int64_t i = 0; i < p->count; i++) p->order[p->first[p->length[i]]++] = (int32_t)i;
}

void fwa_packing_lay(fwa_packing *p) {
    int32_t row = 0, last = 0;
    sort(p);
    p->rows = 0;
    for (int64_t n = 0; n < p->count; n++) {
        const int32_t i = p->order[n], length = p->length[i];
        if (length != last) row = 0; // rows without room for one of the same length have none for this one either
        last = length;
        while (row < p->rows && p->room[row] < length) row++;
        if (row == p->rows) p->room[p->rows++] = (int32_t)p->T;
        p->row[i] = row;
        p->start[i] = (int32_t)p->T - p->room[row];
        p->room[row] -= length;
    }
}
