// Output head with tied embedding: logits = logit_scale * n E^T, masked cross-entropy, and their gradients in one pass
// over pieces of the rows, so that the [R,N] logits never stand in memory at once.
#ifndef FWA_LAYERS_HEAD_H
#define FWA_LAYERS_HEAD_H

#include "layers/context.h"
#include "layers/spec.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct fwa_head_acts {
    int64_t rows;          // of a piece; fewer than planned may be set
    fwa_tensor logits;     // [rows,N]
    fwa_tensor loss;       // [R] mst
    fwa_tensor prediction; // i32 [R]
} fwa_head_acts;

// The logits of a piece lie in `scratch`, of which what is free may be taken without making it larger; losses and
// predictions in `kept`.
FWA_MUST_CHECK fwa_status fwa_head_plan_acts(const fwa_layer_context *ctx, const fwa_model_spec *model,
                                             fwa_arena *scratch, fwa_arena *kept, fwa_head_acts *acts);
// Loss and predictions of n [R,D] for targets i32 [R], R at most what was planned, added to *state; with `dn` present
// also dn [R,D] = d loss / d n and the embedding's gradient +=, or = where ctx->fresh.
FWA_MUST_CHECK fwa_status fwa_head_run(const fwa_layer_context *ctx, const fwa_model_spec *model, int embedding,
                                       const fwa_head_acts *acts, fwa_tensor dn, fwa_tensor n, fwa_tensor targets,
                                       fwa_step_state *state);

#ifdef __cplusplus
}
#endif
#endif
