// Gradient buckets: contiguous ranges of the gradient memory, each all-reduced as soon as the backward pass has
// finished it, while the pass goes on with earlier layers.
#ifndef FWA_DIST_BUCKETS_H
#define FWA_DIST_BUCKETS_H

#include "core/comm.h"
#include "core/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct fwa_buckets fwa_buckets;

// Not collective. `tensors[i]` is bucket i (dense). `comm` is borrowed. Caller: fwa_buckets_destroy.
FWA_MUST_CHECK fwa_status fwa_buckets_create(fwa_buckets **out, fwa_comm *comm, const fwa_tensor *tensors, int count);
void fwa_buckets_destroy(fwa_buckets *buckets);
// Collective, same order on all ranks: starts the sum of bucket i over the group.
FWA_MUST_CHECK fwa_status fwa_buckets_start(fwa_buckets *buckets, fwa_stream *stream, int i);
// Collective: waits for every bucket started since the last call.
FWA_MUST_CHECK fwa_status fwa_buckets_wait(fwa_buckets *buckets, fwa_stream *stream);

#ifdef __cplusplus
}
#endif
#endif
