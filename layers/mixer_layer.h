// The token-mixing half of a block (docs/models.md §2, §3): packed projection of n to q, k, v, gate and scalars; short
// convolution, SiLU, norm and feature map; rotary where the spec wants it; the rule; norm and gate; output projection.
//
//   n [R,D] -> proj [R,P] -> q, k [B,T,Hq,K], v [B,T,H,V], beta [R,H] or per value channel [R,H*V], lambda,
//   log_decay [R,H] -> o [B,T,H,V] -> y [R,H*V] -> out = y Wo^T + x
//
// In a state-space block (FWA_SWITCH_STATE_SPACE) the features of the values are x, v = delta x, and x comes back
// around the memory in y.
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
    int weight;          // [columns,D]; -1: the layer has no such input, or none that the projection gives
    int conv;            // [columns,W]: q, k, v
    int up;              // [width,columns]: beta of low rank, a second projection behind the packed one
    int bias;            // [columns], behind a second projection [width]: beta, lambda, delta; alone it is all of
                         // beta or lambda, the same for every token
} fwa_mixer_part;

typedef struct fwa_mixer_layer {
    const fwa_mixer_spec *spec;
    const fwa_mixer *kernels;
    int index; // of the layer in its model
    int64_t D;
    fwa_mixer_shape shape;                             // of the rule; B, T are those of the activations
    fwa_mixer_part q, k, v, gate, beta, lambda, delta; // packed in this order; delta: the step behind log_decay
    int parts;                                         // that are there
    int64_t used, P;                                   // their columns together, and with the padding behind them
    int A_log, skip;                                   // [H]; -1: no delta, no state-space block
    double decay_factor;                               // 1 - l/L in layer l of L: of a constant decay
    int norm;                                          // [V], of a state-space block [H*V]; -1: none
    int out;                                           // [D,H*V]
} fwa_mixer_layer;

// What came from the pieces before where sequences are cut (layers/mixer_ring.h); absent where nothing did. Over a
// memory (layers/memory.h) conv is its own.
typedef struct fwa_mixer_cut {
    fwa_tensor conv;         // [B,W-1,columns of q, k, v] rows of the projection
    fwa_tensor keys, values; // [B,.,Hq,K], [B,.,H,V] mst, of attention act: the last rows, under next_latent one
                             // more key than pairs
    fwa_tensor states;       // [groups,.] mst: S and z
} fwa_mixer_cut;

// Activations of one layer for one shape; what a backward pass needs stays.
typedef struct fwa_mixer_acts {
    fwa_tensor proj; // [R,P], its padding zeros; so is its gradient
    fwa_tensor q, k, v, q_rstd, k_rstd, v_rstd, beta, lambda, delta, log_decay, o, o_rstd, y, saved;
    // q, k, v, and dq, dk, dv below: absent where they are columns of proj and dproj (mixer_passes.h).
    fwa_tensor x; // [B,T,H,V] of a state-space block
    fwa_mixer_cut cut;
    fwa_tensor wide; // [R,H*V] beta of low rank before bias and sigmoid; the backward pass puts its gradient there
} fwa_mixer_acts;

// Scratch shared by all layers; gradients used by the backward pass only.
typedef struct fwa_mixer_scratch {
    fwa_tensor bytes; // of the rule
    fwa_tensor dproj, dq, dk, dv, dx, dbeta, dlambda, ddelta, dlog_decay, d_o, dy;
} fwa_mixer_scratch;

// Adds the parameters of the mixer of layer `index` to the table. The spec is borrowed from `model`. FWA_CONFIG: it
// asks for what the rule does not have.
FWA_MUST_CHECK fwa_status fwa_mixer_layer_plan(fwa_mixer_layer *layer, const fwa_param_scope *scope,
                                               const fwa_model_spec *model, int index, const fwa_backend *backend);
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

// Whether the layer's rule has gates that fwa_mixer_layer_gates adds up.
static inline bool fwa_mixer_layer_has_gates(const fwa_mixer_layer *layer) {
    return (layer->spec->rule->inputs & FWA_INPUT_LAMBDA) != 0;
}
// Behind a forward pass that trains: adds the gates of all steps here to *sums (kernels/rule.h).
FWA_MUST_CHECK fwa_status fwa_mixer_layer_gates(const fwa_mixer_layer *layer, const fwa_layer_context *ctx,
                                                const fwa_mixer_acts *acts, fwa_tensor scratch, fwa_gate_sums *sums);

// Whether the part has columns in the projection.
static inline bool fwa_mixer_part_present(const fwa_mixer_part *part) {
    return part->weight >= 0;
}
// Whether the layer has beta or lambda, whatever gives it.
static inline bool fwa_mixer_scalar_present(const fwa_mixer_part *part) {
    return part->bias >= 0;
}

#ifdef __cplusplus
}
#endif
#endif
