// Pre-norm block: h = x + Mixer(RMSNorm(x)), out = h + SwiGLU(RMSNorm(h)) (docs/models.md §1); where the model has no
// ffn, out = h. All [R,D].
#ifndef FWA_LAYERS_BLOCK_H
#define FWA_LAYERS_BLOCK_H

#include "layers/mixer_layer.h"
#include "layers/mlp.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct fwa_block {
    int norm1, norm2; // norm2 -1: no MLP, mlp and its activations are empty
    fwa_mixer_layer mixer;
    fwa_mlp mlp;
} fwa_block;

typedef struct fwa_block_acts {
    fwa_tensor n1, rstd1, h, n2, rstd2;
    fwa_mixer_acts mixer;
    fwa_mlp_acts mlp;
} fwa_block_acts;

// Shared by all blocks.
typedef struct fwa_block_scratch {
    fwa_tensor dn;
    fwa_mixer_scratch mixer;
    fwa_mlp_scratch mlp;
} fwa_block_scratch;

FWA_MUST_CHECK fwa_status fwa_block_plan(fwa_block *block, fwa_params *params, const fwa_model_spec *model, int layer,
                                         const fwa_backend *backend, int bucket);
// *scratch_bytes becomes the larger of itself and what the block's rule needs.
FWA_MUST_CHECK fwa_status fwa_block_plan_acts(const fwa_block *block, const fwa_layer_context *ctx, bool train,
                                              fwa_arena *arena, fwa_block_acts *acts, size_t *scratch_bytes);
// scratch_bytes: of the rule, the largest of all blocks. `train` false: nothing else is needed.
FWA_MUST_CHECK fwa_status fwa_block_plan_scratch(const fwa_block *block, const fwa_layer_context *ctx, bool train,
                                                 fwa_arena *arena, fwa_block_scratch *scratch, size_t scratch_bytes);
FWA_MUST_CHECK fwa_status fwa_block_forward(const fwa_block *block, const fwa_layer_context *ctx, bool train,
                                            const fwa_block_acts *acts, const fwa_block_scratch *scratch,
                                            fwa_tensor out, fwa_tensor x);
// dx [R,D] holds the gradient of out and becomes that of x.
FWA_MUST_CHECK fwa_status fwa_block_backward(const fwa_block *block, const fwa_layer_context *ctx,
                                             const fwa_block_acts *acts, const fwa_block_scratch *scratch,
                                             fwa_tensor dx, fwa_tensor x);

#ifdef __cplusplus
}
#endif
#endif
