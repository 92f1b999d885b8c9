// What a layer needs to run: backend, parameters, the shape at hand, and the group of ranks that share its sequences.
#ifndef FWA_LAYERS_CONTEXT_H
#define FWA_LAYERS_CONTEXT_H

#include "core/comm.h"
#include "core/range.h"
#include "core/shape.h"
#include "layers/param.h"

#ifdef __cplusplus
extern "C" {
#endif

struct fwa_memory; // layers/memory.h

typedef struct fwa_layer_context {
    fwa_backend *backend;
    const fwa_params *params;
    fwa_comm *sp;  // ranks that hold the other pieces of these sequences, over the backend's memory, in order; NULL:
                   // whole sequences are here
    int64_t heads; // fewest that a rank works on at a time while states go round (layers/mixer_ring.h); the same on
                   // all ranks of sp
    struct fwa_memory *memory; // what these tokens continue, and what they leave; NULL: sequences start here
    int64_t B, T;              // sequences and tokens of a sequence here
    bool fresh;                // the backward pass overwrites gradients of matrices instead of adding to them
    int64_t position;          // of the first token here in its sequence
    fwa_tensor reset; // u8 [B,T], 1 at a document's first token: nothing is carried into it; absent: one document
    fwa_tensor reset_before; // u8 [B,.]: the same of the tokens in front of a piece, as far back as layers look
} fwa_layer_context;

// Parts of a step (core/range.h) that a listener may want to know apart: a block, numbered, and the rule in it.
#define FWA_RANGE_BLOCK         "block"
#define FWA_RANGE_RULE_FORWARD  "rule forward"
#define FWA_RANGE_RULE_BACKWARD "rule backward"

// Value or gradient of parameter `index`.
static inline fwa_tensor fwa_value(const fwa_layer_context *ctx, int index) {
    return ctx->params->at[index].tensor[FWA_PARAM_VALUE];
}
static inline fwa_tensor fwa_grad(const fwa_layer_context *ctx, int index) {
    return ctx->params->at[index].tensor[FWA_PARAM_GRAD];
}

#ifdef __cplusplus
}
#endif
#endif
