// fwa checkpoint diff: what two checkpoints hold, tensor by tensor, whatever the layouts that wrote them.
#ifndef FWA_TRAIN_CHECKPOINT_DIFF_H
#define FWA_TRAIN_CHECKPOINT_DIFF_H

#include <stdio.h>

#include "io/checkpoint.h"

#ifdef __cplusplus
extern "C" {
#endif

// Prints every difference to `out`, and what is equal in one line. *same: no tensor differs by more than `tolerance`
// (RMS of the difference over RMS of the second; 0: bit for bit), none is missing, and what belongs to the state of the
// run is equal. Not collective.
FWA_MUST_CHECK fwa_status fwa_checkpoint_diff(fwa_checkpoint *a, fwa_checkpoint *b, double tolerance, FILE *out,
                                              bool *same);

#ifdef __cplusplus
}
#endif
#endif
