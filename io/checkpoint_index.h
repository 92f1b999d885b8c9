// Which shard holds which rows of which parameter. The HDF5 lock is held while building. Not collective.
#ifndef FWA_IO_CHECKPOINT_INDEX_H
#define FWA_IO_CHECKPOINT_INDEX_H

#include "io/checkpoint_layout.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct fwa_index_piece {
    int shard;
    int64_t row_start, rows;
} fwa_index_piece;

typedef struct fwa_index_entry {
    fwa_named_tensor about;                  // the whole tensor: no data
    fwa_index_piece *pieces[FWA_PART_COUNT]; // by row_start, without gaps or overlaps, empty ones left out
    int count[FWA_PART_COUNT];
    bool present[FWA_PART_COUNT];
} fwa_index_entry;

typedef struct fwa_index {
    fwa_index_entry *entries;  // in the order of their names in the first shard
    int count, capacity, next; // next: where the following name is likely to be
} fwa_index;

// Reads the shards 0 .. ranks-1 of a folder. FWA_FORMAT if shards contradict each other or rows are missing.
FWA_MUST_CHECK fwa_status fwa_index_build(fwa_index *index, const char *folder, int ranks);
void fwa_index_free(fwa_index *index);
fwa_index_entry *fwa_index_find(fwa_index *index, const char *name); // NULL: none

#ifdef __cplusplus
}
#endif
#endif
