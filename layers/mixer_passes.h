// The halves of a mixer layer's passes, before and behind its rule. Private to layers/mixer_*.c.
#ifndef FWA_LAYERS_MIXER_PASSES_H
#define FWA_LAYERS_MIXER_PASSES_H

#include "layers/mixer_layer.h"

#ifdef __cplusplus
extern "C" {
#endif

// The part's columns [R,columns] of the projection or its gradient; absent where the part is.
static inline fwa_tensor fwa_mixer_part_of(fwa_tensor proj, const fwa_mixer_part *part) {
    return fwa_mixer_part_present(part) ? fwa_tensor_slice(proj, 1, part->at, part->columns) : fwa_tensor_absent();
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
