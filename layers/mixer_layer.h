// The token-mixing half of a block (rules.md §4): packed projection of n to q, k, v, gate and per-head scalars; short
// convolution, SiLU, norm and feature map; rotary where the rule wants it; the rule; norm and gate; output projection.
//
//   n [R,D] -> proj [R,P] -> q, k, v [B,T,H,K], beta, lambda [R,H] -> o [B,T,H,V] -> y [R,H*V] -> out = y Wo^T + x
#ifndef FWA_LAYERS_MIXER_LAYER_H
#define FWA_LAYERS_MIXER_LAYER_H

#include "layers/context.h"
#include "layers/spec.h"

#ifdef __cplusplus
extern "C" {
#endif

// Parameters, by index into the table; -1: this layer has none.
typedef struct fwa_mixer_layer {
    const fwa_mixer_spec *spec;
    const fwa_mixer *kernels;
    int64_t D, H, K;
    int64_t P;                       // columns of the packed projection
    int q, k, v, gate, beta, lambda; // weights, packed in this order
    int packed_count;
    int beta_bias, lambda_bias, conv_q, conv_k, conv_v, norm, out;
    int64_t at_gate, at_beta, at_lambda; // first column in the projection
} fwa_mixer_layer;

// Activations of one layer for one shape; what a backward pass needs stays.
typedef struct fwa_mixer_acts {
    fwa_tensor proj, q, k, v, q_rstd, k_rstd, v_rstd, beta, lambda, o, o_rstd, y, saved;
} fwa_mixer_acts;

// Scratch shared by all layers; gradients used by the backward pass only.
typedef struct fwa_mixer_scratch {
    fwa_tensor bytes; // of the rule
    fwa_tensor dproj, dq, dk, dv, dbeta, dlambda, d_o, dy;
} fwa_mixer_scratch;

// Adds the parameters of layer `prefix` ("blocks.3") to the table. `spec` is borrowed.
FWA_MUST_CHECK fwa_status fwa_mixer_layer_plan(fwa_mixer_layer *layer, fwa_params *params, const fwa_model_spec *model,
                                               const fwa_mixer_spec *spec, const fwa_backend *backend,
                                               const char *prefix, int bucket);
// Plans activations for ctx->B, T; *scratch_bytes becomes the larger of itself and what the rule needs.
FWA_MUST_CHECK fwa_status fwa_mixer_layer_plan_acts(const fwa_mixer_layer *layer, const fwa_layer_context *ctx,
                                                    bool train, fwa_arena *arena, fwa_mixer_acts *acts,
                                                    size_t *scratch_bytes);
// Plans the scratch of the layer: the same views whichever layer uses them, so call it for every layer after a rewind.
FWA_MUST_CHECK fwa_status fwa_mixer_layer_plan_scratch(const fwa_mixer_layer *layer, const fwa_layer_context *ctx,
                                                       fwa_arena *arena, fwa_mixer_scratch *scratch);

// out [R,D] = mixer(n) + x
FWA_MUST_CHECK fwa_status fwa_mixer_layer_forward(const fwa_mixer_layer *layer, const fwa_layer_context *ctx,
                                                  bool train, const fwa_mixer_acts *acts, fwa_tensor scratch,
                                                  fwa_tensor out, fwa_tensor n, fwa_tensor x);
// dn [R,D] = gradient of n given dout; adds to the parameters' gradients.
FWA_MUST_CHECK fwa_status fwa_mixer_layer_backward(const fwa_mixer_layer *layer, const fwa_layer_context *ctx,
                                                   const fwa_mixer_acts *acts, const fwa_mixer_scratch *scratch,
                                                   fwa_tensor dn, fwa_tensor dout, fwa_tensor n);

#ifdef __cplusplus
}
#endif
#endif
