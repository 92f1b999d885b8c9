// The token-mixing half of a block (rules.md §4): packed projection of n to q, k, v, gate and per-head scalars; short
// convolution, SiLU, norm and feature map; rotary where the rule wants it; the rule; norm and gate; output projection.
//
//   n [R,D] -> proj [R,P] -> q, k, v [B,T,H,K], beta [R,H] or per value channel [R,H*V], lambda [R,H]
//   -> o [B,T,H,V] -> y [R,H*V] -> out = y Wo^T + x
#ifndef FWA_LAYERS_MIXER_LAYER_H
#define FWA_LAYERS_MIXER_LAYER_H

#include "layers/context.h"
#include "layers/spec.h"

#ifdef __cplusplus
extern "C" {
#endif

// Columns of the packed projection that become one input of the layer, and the parameters on their way. Indices into
// the table; -1: none.
typedef struct fwa_mixer_part {
    int64_t at, columns; // first column and their number
    int weight;          // [columns,D]; -1: the layer has no such input
    int conv;            // [columns,W]: q, k, v
    int up;              // [width,columns]: beta of low rank, a second projection behind the packed one
    int bias;            // [columns], behind a second projection [width]: beta, lambda
} fwa_mixer_part;

typedef struct fwa_mixer_layer {
    const fwa_mixer_spec *spec;
    const fwa_mixer *kernels;
    int64_t D, H, K;
    fwa_mixer_part q, k, v, gate, beta, lambda; // packed in this order
    int parts;                                  // that are there
    int64_t P;                                  // their columns together
    int norm, out;
} fwa_mixer_layer;

// Activations of one layer for one shape; what a backward pass needs stays.
typedef struct fwa_mixer_acts {
    fwa_tensor proj; // [R,P], rows FWA_ROW_ALIGN apart; so is its gradient
    fwa_tensor q, k, v, q_rstd, k_rstd, v_rstd, beta, lambda, o, o_rstd, y, saved;
    fwa_tensor wide; // [R,H*V] beta of low rank before bias and sigmoid; the backward pass puts its gradient there
} fwa_mixer_acts;

// Scratch shared by all layers; gradients used by the backward pass only.
typedef struct fwa_mixer_scratch {
    fwa_tensor bytes; // of the rule
    fwa_tensor dproj, dq, dk, dv, dbeta, dlambda, d_o, dy;
} fwa_mixer_scratch;

// Adds the layer's parameters to the table. `spec` is borrowed. FWA_UNSUPPORTED: the rule wants an input that this
// layer does not make; FWA_CONFIG: the spec asks for what the rule does not have.
FWA_MUST_CHECK fwa_status fwa_mixer_layer_plan(fwa_mixer_layer *layer, const fwa_param_scope *scope,
                                               const fwa_model_spec *model, const fwa_mixer_spec *spec,
                                               const fwa_backend *backend);
// Plans activations for ctx->B, T; *scratch_bytes becomes the larger of itself and what the rule needs.
FWA_MUST_CHECK fwa_status fwa_mixer_layer_plan_acts(const fwa_mixer_layer *layer, const fwa_layer_context *ctx,
                                                    bool train, fwa_arena *arena, fwa_mixer_acts *acts,
                                                    size_t *scratch_bytes);
// Plans the scratch of the layer: the same views whichever layer uses them, so call it for every layer after a rewind.
FWA_MUST_CHECK fwa_status fwa_mixer_layer_plan_scratch(const fwa_mixer_layer *layer, const fwa_layer_context *ctx,
                                                       fwa_arena *arena, fwa_mixer_scratch *scratch);
// The rule's call on these activations; before their commit it serves for sizes only.
fwa_mixer_call fwa_mixer_layer_call(const fwa_mixer_layer *layer, const fwa_layer_context *ctx, bool train,
                                    const fwa_mixer_acts *acts, fwa_tensor scratch);

// out [R,D] = mixer(n) + x
FWA_MUST_CHECK fwa_status fwa_mixer_layer_forward(const fwa_mixer_layer *layer, const fwa_layer_context *ctx,
                                                  bool train, const fwa_mixer_acts *acts, fwa_tensor scratch,
                                                  fwa_tensor out, fwa_tensor n, fwa_tensor x);
// dn [R,D] = gradient of n given dout; adds to the parameters' gradients.
FWA_MUST_CHECK fwa_status fwa_mixer_layer_backward(const fwa_mixer_layer *layer, const fwa_layer_context *ctx,
                                                   const fwa_mixer_acts *acts, const fwa_mixer_scratch *scratch,
                                                   fwa_tensor dn, fwa_tensor dout, fwa_tensor n);

static inline bool fwa_mixer_part_present(const fwa_mixer_part *part) {
    return part->weight >= 0;
}

#ifdef __cplusplus
}
#endif
#endif
