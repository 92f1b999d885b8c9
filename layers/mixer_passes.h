// The halves of a mixer layer's passes, before and behind its rule. Private to layers/mixer_*.c.
#ifndef FWA_LAYERS_MIXER_PASSES_H
#define FWA_LAYERS_MIXER_PASSES_H

#include <string.h>

#include "layers/mixer_layer.h"

#ifdef __cplusplus
extern "C" {
#endif

// The part's columns [R,columns] of the projection or its gradient; absent where the part is.
static inline fwa_tensor fwa_mixer_part_of(fwa_tensor proj, const fwa_mixer_part *part) {
    return fwa_mixer_part_present(part) ? fwa_tensor_slice(proj, 1, part->at, part->columns) : fwa_tensor_absent();
}

// Whether q, k and v are columns of the projection themselves, q and k rotated where they are, and so their gradients:
// sequences that no memory keeps, whole or of a rule that works on all heads at once, and features that would be
// copies.
bool fwa_mixer_in_place(const fwa_mixer_layer *layer, const fwa_layer_context *ctx);

// q, k or v [B,T,heads,K] as the rule sees it, or its gradient: `own`, or in place the part's columns of `proj`.
static inline fwa_tensor fwa_mixer_input_of(const fwa_mixer_layer *layer, const fwa_layer_context *ctx, fwa_tensor own,
                                            fwa_tensor proj, const fwa_mixer_part *part, int64_t size) {
    if (!fwa_mixer_in_place(layer, ctx)) return own;
    return fwa_tensor_as_4d(fwa_mixer_part_of(proj, part), ctx->B, ctx->T, part->columns / size, size);
}

// Gradients of a call of all heads, without those of states.
static inline fwa_mixer_grads fwa_mixer_layer_grads(const fwa_mixer_layer *layer, const fwa_layer_context *ctx,
                                                    const fwa_mixer_scratch *d) {
    fwa_mixer_grads grads;
    memset(&grads, 0, sizeof grads);
    grads.d_o = d->d_o;
    grads.dq = fwa_mixer_input_of(layer, ctx, d->dq, d->dproj, &layer->q, layer->shape.K);
    grads.dk = fwa_mixer_input_of(layer, ctx, d->dk, d->dproj, &layer->k, layer->shape.K);
    grads.dv = fwa_mixer_input_of(layer, ctx, d->dv, d->dproj, &layer->v, layer->shape.V);
    grads.dbeta = d->dbeta;
    grads.dlambda = d->dlambda;
    grads.dlog_decay = d->dlog_decay;
    return grads;
}

// The rule's inputs from the projection.
FWA_MUST_CHECK fwa_status fwa_mixer_inputs_forward(const fwa_mixer_layer *layer, const fwa_layer_context *ctx,
                                                   const fwa_mixer_acts *acts);
// Their part of dproj from the gradients of the rule's inputs, which it rotates back in place; d->dx holds what reached
// x around the memory.
FWA_MUST_CHECK fwa_status fwa_mixer_inputs_backward(const fwa_mixer_layer *layer, const fwa_layer_context *ctx,
                                                    const fwa_mixer_acts *acts, const fwa_mixer_scratch *d);
// out [R,D] = Wo y + x, with y the normed and gated o, or o itself where the layer has no norm.
FWA_MUST_CHECK fwa_status fwa_mixer_output_forward(const fwa_mixer_layer *layer, const fwa_layer_context *ctx,
                                                   const fwa_mixer_acts *acts, fwa_tensor out, fwa_tensor x);
// d_o, in a state-space block dx, and the gate's columns of dproj given dout [R,D]; adds to the parameters' gradients.
FWA_MUST_CHECK fwa_status fwa_mixer_output_backward(const fwa_mixer_layer *layer, const fwa_layer_context *ctx,
                                                    const fwa_mixer_acts *acts, const fwa_mixer_scratch *d,
                                                    fwa_tensor dout);

#ifdef __cplusplus
}
#endif
#endif
