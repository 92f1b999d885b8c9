// Sharding of what the optimizer owns (parallel.zero: 1): of n ranks each holds the masters and moments of an n-th of
// the parameters and updates it; every rank holds all values and gradients.
//
// The table's elements, in order, are cut into n pieces of about the same size, at whole rows of a parameter (elements
// of a vector). A rank's piece of the values is contiguous memory, so that values are shared in place. Where values are
// the masters themselves (one type) that class stays whole, of which a rank updates its piece, and only moments shrink.
#ifndef FWA_LAYERS_SHARD_H
#define FWA_LAYERS_SHARD_H

#include "core/comm.h"
#include "layers/param.h"

#ifdef __cplusplus
extern "C" {
#endif

// Not collective. Between fwa_params_plan and fwa_params_commit: sets row_start and rows of every parameter and plans
// the sharded classes anew.
FWA_MUST_CHECK fwa_status fwa_params_shard(fwa_params *params, int rank, int size);

// Not collective. The values that rank `rank` of `size` updates, as bytes; absent if it has none. After commit.
fwa_tensor fwa_params_piece(const fwa_params *params, int rank, int size);

// Collective over `comm`, whose ranks are those of fwa_params_shard: every rank gets all values.
FWA_MUST_CHECK fwa_status fwa_params_gather(const fwa_params *params, fwa_comm *comm, fwa_stream *stream);

#ifdef __cplusplus
}
#endif
#endif
