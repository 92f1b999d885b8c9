// Addition with several examples a sequence (docs/addition.md section 8): update n of E examples is examples n*E ..
// n*E+E-1, laid into its G sequences of T tokens by first-fit decreasing (packing.h). An example takes a place for each
// of its tokens but the end token, which is the target of the last one. Places behind the last example of a sequence
// hold pads. Not collective; callable from several threads.
#ifndef FWA_TRAIN_TASKS_ADDITION_PACKED_H
#define FWA_TRAIN_TASKS_ADDITION_PACKED_H

#include "train/tasks/addition.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct fwa_addition_packed {
    fwa_addition_draws draws[2]; // by split
    int64_t examples;            // of an update, E
    int64_t sequences, T;        // of an update, G, and tokens of each
} fwa_addition_packed;

// Whether updates 0 .. updates[split]-1 of both splits fit. FWA_CONFIG names the first that does not, and the smallest
// train.global_batch that holds all.
FWA_MUST_CHECK fwa_status fwa_addition_packed_check(const fwa_addition_packed *packed, const int64_t updates[2]);
// fwa_source's fill: sequence i is number i % G of update i / G. FWA_CONFIG where its update does not fit.
FWA_MUST_CHECK fwa_status fwa_addition_packed_fill(const fwa_addition_packed *packed, fwa_split split, int64_t first,
                                                   int64_t count, int32_t *tokens, int32_t *targets);

#ifdef __cplusplus
}
#endif
#endif
