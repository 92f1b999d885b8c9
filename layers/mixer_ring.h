// A mixer layer over sequences that are cut into pieces (layers/sequence.h): what its rule and its convolutions need
// from the pieces before, and the gradients on their way back. Private to layers/mixer_*.c.
//
// Halos first, all ranks at once: the last W-1 rows of the projection for the convolutions; the last key (next_latent)
// and the last B-1 pairs of a window; of attention all earlier keys and values. Then the ring of a rule with a matrix
// state: rank r gets S (and z) at the end of piece r-1, runs its piece, and sends S on; in the backward pass dS goes
// the other way. Sequences and heads are cut into groups that follow each other through the ring, so that ranks work on
// different groups at the same time; kernels that hand states over in the middle of a call receive and send them there.
// Every group is the rule's own call on a part of the heads: on one rank as on several the same sums in the same order,
// where pieces are whole chunks, and whole segments of equal length where kernels cut them into such.
#ifndef FWA_LAYERS_MIXER_RING_H
#define FWA_LAYERS_MIXER_RING_H

#include "layers/mixer_layer.h"
#include "layers/sequence.h"

#ifdef __cplusplus
extern "C" {
#endif

// The number of steps in front of a piece whose document starts the layer asks for.
int64_t fwa_mixer_ring_reach(const fwa_mixer_layer *layer, const fwa_layer_context *ctx);
// Plans acts->cut and acts->saved; *scratch_bytes becomes the larger of itself and what these functions need. Other
// tensors of `acts` have been planned.
FWA_MUST_CHECK fwa_status fwa_mixer_ring_plan(const fwa_mixer_layer *layer, const fwa_layer_context *ctx, bool train,
                                              fwa_arena *arena, fwa_mixer_acts *acts, size_t *scratch_bytes);

// The gates of the steps of this piece (fwa_mixer_layer_gates).
FWA_MUST_CHECK fwa_status fwa_mixer_ring_gates(const fwa_mixer_layer *layer, const fwa_layer_context *ctx,
                                               const fwa_mixer_acts *acts, fwa_tensor scratch, fwa_gate_sums *sums);

// All below: Collective over ctx->sp.
// acts->cut.conv from the projection.
FWA_MUST_CHECK fwa_status fwa_mixer_ring_conv(const fwa_mixer_layer *layer, const fwa_layer_context *ctx,
                                              const fwa_mixer_acts *acts, fwa_tensor scratch);
// Where in d->bytes the gradient of cut.conv stands until the call below; absent with it.
fwa_tensor fwa_mixer_ring_dconv(const fwa_mixer_layer *layer, const fwa_layer_context *ctx, const fwa_mixer_scratch *d);
// Adds to d->dproj what the ranks behind have for it.
FWA_MUST_CHECK fwa_status fwa_mixer_ring_conv_backward(const fwa_mixer_layer *layer, const fwa_layer_context *ctx,
                                                       const fwa_mixer_scratch *d);
// The rule: acts->o.
FWA_MUST_CHECK fwa_status fwa_mixer_ring_forward(const fwa_mixer_layer *layer, const fwa_layer_context *ctx, bool train,
                                                 const fwa_mixer_acts *acts, fwa_tensor scratch);
// Gradients of its inputs given d->d_o.
FWA_MUST_CHECK fwa_status fwa_mixer_ring_backward(const fwa_mixer_layer *layer, const fwa_layer_context *ctx,
                                                  const fwa_mixer_acts *acts, const fwa_mixer_scratch *d);

#ifdef __cplusplus
}
#endif
#endif
