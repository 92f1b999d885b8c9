// Sequences cut into pieces: what the ranks of ctx->sp exchange so that a piece [B,T] of a sequence is computed as if
// the whole stood here. Rank r of n holds tokens r*T .. r*T+T-1; ctx->position is r*T.
//
// Two things travel. *Halos*: the last rows of the pieces before this one, which only depend on what those ranks have
// computed themselves: inputs of the short convolutions, keys and values of the last window, all keys and values of
// attention, document starts. All ranks exchange at once; a halo longer than a piece comes from several ranks. And the
// *states* of a rule, each of which depends on the one before (layers/mixer_ring.h).
//
// Collective over ctx->sp, on the backend's main stream; buffers are memory of the backend, and the host waits for
// nothing that the communicator does not wait for.
#ifndef FWA_LAYERS_SEQUENCE_H
#define FWA_LAYERS_SEQUENCE_H

#include "layers/context.h"

#ifdef __cplusplus
extern "C" {
#endif

// Whether other ranks hold other pieces of the sequences.
static inline bool fwa_sequence_cut(const fwa_layer_context *ctx) {
    return ctx->sp && ctx->sp->size > 1;
}

// Rows in front of this piece, `wanted` at most.
static inline int64_t fwa_halo_rows(const fwa_layer_context *ctx, int64_t wanted) {
    return fwa_min(wanted, ctx->position);
}

// Bytes of scratch that an exchange of `wanted` rows of `row_bytes` bytes a sequence needs, either way.
size_t fwa_halo_scratch(const fwa_layer_context *ctx, int64_t wanted, size_t row_bytes);

// Collective. halo [B,N,C] = the rows of x [B,T,C] in front of this piece: the last fwa_halo_rows(wanted) rows of it,
// zeros before; absent where N is 0. x may have strided rows, halo not; any type.
FWA_MUST_CHECK fwa_status fwa_halo_forward(const fwa_layer_context *ctx, fwa_tensor halo, fwa_tensor x, int64_t wanted,
                                           fwa_tensor scratch);
// Collective. dx [B,T,C] += the gradients that the ranks behind this one have for their halos; dhalo as halo above.
FWA_MUST_CHECK fwa_status fwa_halo_backward(const fwa_layer_context *ctx, fwa_tensor dx, fwa_tensor dhalo,
                                            int64_t wanted, fwa_tensor scratch);

#ifdef __cplusplus
}
#endif
#endif
