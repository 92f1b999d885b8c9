// SwiGLU.
#include "layers/mlp.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "layers/linear.h"

#define FWA_MLP_ALIGN 8 // elements

static fwa_status add(fwa_params *params, int *index, const char *prefix, const char *name, int bucket,
                      const int64_t shape[2], const int64_t storage[2], double deviation, bool packed) {
    fwa_param p;
    memset(&p, 0, sizeof p);
    snprintf(p.name, sizeof p.name, "%s.mlp.%s.weight", prefix, name);
    p.ndim = 2;
    memcpy(p.shape, shape, 2 * sizeof *shape);
    memcpy(p.storage, storage, 2 * sizeof *storage);
    p.init = (fwa_init){FWA_INIT_NORMAL, deviation};
    p.matrix = p.decay = p.width_scaled = true;
    p.packed = packed;
    p.bucket = bucket;
    return fwa_params_add(params, &p, index);
}

fwa_status fwa_mlp_plan(fwa_mlp *mlp, fwa_params *params, const fwa_model_spec *model, const char *prefix, int bucket) {
    mlp->D = model->D;
    mlp->F = fwa_round_up(model->F, FWA_MLP_ALIGN);
    const int64_t in[] = {model->F, model->D}, in_storage[] = {mlp->F, model->D};
    const int64_t down[] = {model->D, model->F}, down_storage[] = {model->D, mlp->F};
    double deviation = 0.5 / sqrt((double)model->D);
    FWA_TRY(add(params, &mlp->gate, prefix, "gate", bucket, in, in_storage, deviation, false));
    FWA_TRY(add(params, &mlp->up, prefix, "up", bucket, in, in_storage, deviation, true));
    return add(params, &mlp->down, prefix, "down", bucket, down, down_storage, deviation / sqrt((double)model->L),
               false);
}

fwa_status fwa_mlp_plan_acts(const fwa_mlp *mlp, const fwa_layer_context *ctx, fwa_arena *arena, fwa_mlp_acts *acts) {
    int64_t R = ctx->B * ctx->T;
    const int64_t wide[] = {R, 2 * mlp->F}, narrow[] = {R, mlp->F};
    FWA_TRY(fwa_arena_plan(arena, &acts->gate_up, ctx->backend->compute, 2, wide));
    return fwa_arena_plan(arena, &acts->hidden, ctx->backend->compute, 2, narrow);
}

fwa_status fwa_mlp_plan_scratch(const fwa_mlp *mlp, const fwa_layer_context *ctx, fwa_arena *arena,
                                fwa_mlp_scratch *scratch) {
    int64_t R = ctx->B * ctx->T;
    const int64_t wide[] = {R, 2 * mlp->F}, narrow[] = {R, mlp->F};
    FWA_TRY(fwa_arena_plan(arena, &scratch->dgate_up, ctx->backend->compute, 2, wide));
    return fwa_arena_plan(arena, &scratch->dhidden, ctx->backend->compute, 2, narrow);
}

fwa_status fwa_mlp_forward(const fwa_mlp *mlp, const fwa_layer_context *ctx, const fwa_mlp_acts *acts, fwa_tensor out,
                           fwa_tensor n, fwa_tensor x) {
    FWA_TRY(fwa_linear_forward(ctx, acts->gate_up, n, fwa_params_packed(ctx->params, mlp->gate, 2, FWA_PARAM_VALUE)));
    FWA_TRY(ctx->backend->ops->swiglu_forward(ctx->backend->stream, acts->hidden, acts->gate_up));
    return fwa_linear_residual(ctx, out, acts->hidden, fwa_value(ctx, mlp->down), x);
}

fwa_status fwa_mlp_backward(const fwa_mlp *mlp, const fwa_layer_context *ctx, const fwa_mlp_acts *acts,
                            const fwa_mlp_scratch *scratch, fwa_tensor dn, fwa_tensor dout, fwa_tensor n) {
    FWA_TRY(fwa_linear_backward(ctx, scratch->dhidden, fwa_grad(ctx, mlp->down), dout, acts->hidden,
                                fwa_value(ctx, mlp->down)));
    FWA_TRY(
        ctx->backend->ops->swiglu_backward(ctx->backend->stream, scratch->dgate_up, scratch->dhidden, acts->gate_up));
    return fwa_linear_backward(ctx, dn, fwa_params_packed(ctx->params, mlp->gate, 2, FWA_PARAM_GRAD), scratch->dgate_up,
                               n, fwa_params_packed(ctx->params, mlp->gate, 2, FWA_PARAM_VALUE));
}
