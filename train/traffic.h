// What ranks move between each other in a training step: as it was given to the communicators, and, of sequences that
// are cut into pieces, as arithmetic says (docs/sequence_parallel.md).
#ifndef FWA_TRAIN_TRAFFIC_H
#define FWA_TRAIN_TRAFFIC_H

#include "train/trainer.h"

#ifdef __cplusplus
extern "C" {
#endif

// Bytes.
typedef struct fwa_traffic {
    int64_t reduced;   // by sums over all ranks: the buffers of one rank
    int64_t shared;    // of values that ranks have updated for all (parallel.zero 1): of all ranks together
    int64_t exchanged; // between the pieces of sequences: of all ranks together
} fwa_traffic;

// Not collective. What this rank has given to the trainer's communicators since they were made, where steps run call by
// call. On a CPU `reduced` also holds the 24 bytes of a step that ranks tell each other on the host.
fwa_traffic fwa_traffic_of(const fwa_trainer *t);

// Not collective. The bytes that all ranks send each other for the pieces of the sequences of one step, forward and
// backward; 0 where sequences are not cut.
int64_t fwa_traffic_expected(const fwa_trainer *t);

#ifdef __cplusplus
}
#endif
#endif
