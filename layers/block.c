// Pre-norm block.
#include "layers/block.h"

#include <stdio.h>
#include <string.h>

#include "layers/norm.h"

fwa_status fwa_block_plan(fwa_block *block, fwa_params *params, const fwa_model_spec *model, int layer,
                          const fwa_backend *backend, int bucket) {
    char prefix[32];
    const fwa_param_scope scope = {.params = params, .prefix = prefix, .bucket = bucket};
    snprintf(prefix, sizeof prefix, "blocks.%d", layer);
    FWA_TRY(fwa_norm_plan(&block->norm1, &scope, "norm1.weight", model->D));
    FWA_TRY(fwa_mixer_layer_plan(&block->mixer, &scope, model, layer, backend));
    block->norm2 = -1;
    if (model->F == 0) return FWA_OK;
    FWA_TRY(fwa_norm_plan(&block->norm2, &scope, "norm2.weight", model->D));
    return fwa_mlp_plan(&block->mlp, &scope, model);
}

fwa_status fwa_block_plan_acts(const fwa_block *block, const fwa_layer_context *ctx, bool train, fwa_arena *arena,
                               fwa_block_acts *acts, size_t *scratch_bytes) {
    int64_t R = ctx->B * ctx->T;
    const int64_t rows[] = {R}, stream[] = {R, block->mixer.D};
    fwa_dtype act = ctx->backend->compute, mst = ctx->backend->master;
    FWA_TRY(fwa_arena_plan(arena, &acts->n1, act, 2, stream));
    FWA_TRY(fwa_arena_plan(arena, &acts->rstd1, mst, 1, rows));
    FWA_TRY(fwa_mixer_layer_plan_acts(&block->mixer, ctx, train, arena, &acts->mixer, scratch_bytes));
    if (block->norm2 < 0) return FWA_OK;
    FWA_TRY(fwa_arena_plan(arena, &acts->h, act, 2, stream));
    FWA_TRY(fwa_arena_plan(arena, &acts->n2, act, 2, stream));
    FWA_TRY(fwa_arena_plan(arena, &acts->rstd2, mst, 1, rows));
    return fwa_mlp_plan_acts(&block->mlp, ctx, arena, &acts->mlp);
}

fwa_status fwa_block_plan_scratch(const fwa_block *block, const fwa_layer_context *ctx, bool train, fwa_arena *arena,
                                  fwa_block_scratch *scratch, size_t scratch_bytes) {
    const int64_t stream[] = {ctx->B * ctx->T, block->mixer.D};
    memset(scratch, 0, sizeof *scratch);
    if (train) {
        FWA_TRY(fwa_arena_plan(arena, &scratch->dn, ctx->backend->compute, 2, stream));
        FWA_TRY(fwa_mixer_layer_plan_scratch(&block->mixer, ctx, arena, &scratch->mixer));
        if (block->norm2 >= 0) FWA_TRY(fwa_mlp_plan_scratch(&block->mlp, ctx, arena, &scratch->mlp));
    }
    return scratch_bytes ? fwa_arena_plan_bytes(arena, &scratch->mixer.bytes, scratch_bytes) : FWA_OK;
}

fwa_status fwa_block_forward(const fwa_block *block, const fwa_layer_context *ctx, bool train,
                             const fwa_block_acts *acts, const fwa_block_scratch *scratch, fwa_tensor out,
                             fwa_tensor x) {
    FWA_TRY(fwa_norm_forward(ctx, block->norm1, acts->n1, acts->rstd1, x));
    fwa_tensor h = block->norm2 < 0 ? out : acts->h;
    FWA_TRY(fwa_mixer_layer_forward(&block->mixer, ctx, train, &acts->mixer, scratch->mixer.bytes, h, acts->n1, x));
    if (block->norm2 < 0) return FWA_OK;
    FWA_TRY(fwa_norm_forward(ctx, block->norm2, acts->n2, acts->rstd2, acts->h));
    FWA_TRY_RANGE(ctx->backend, "mlp forward", fwa_mlp_forward(&block->mlp, ctx, &acts->mlp, out, acts->n2, acts->h));
    return FWA_OK;
}

fwa_status fwa_block_backward(const fwa_block *block, const fwa_layer_context *ctx, const fwa_block_acts *acts,
                              const fwa_block_scratch *scratch, fwa_tensor dx, fwa_tensor x) {
    if (block->norm2 >= 0) {
        FWA_TRY_RANGE(ctx->backend, "mlp backward",
                      fwa_mlp_backward(&block->mlp, ctx, &acts->mlp, &scratch->mlp, scratch->dn, dx, acts->n2));
        FWA_TRY(fwa_norm_backward(ctx, block->norm2, dx, scratch->dn, acts->h, acts->rstd2, true));
    }
    FWA_TRY(fwa_mixer_layer_backward(&block->mixer, ctx, &acts->mixer, &scratch->mixer, scratch->dn, dx, acts->n1));
    return fwa_norm_backward(ctx, block->norm1, dx, scratch->dn, x, acts->rstd1, true);
}
