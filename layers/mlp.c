// SwiGLU.
#include "layers/mlp.h"

#include <math.h>

#include "layers/linear.h"

fwa_status fwa_mlp_plan(fwa_mlp *mlp, const fwa_param_scope *scope, const fwa_model_spec *model) {
    double deviation = 0.5 / sqrt((double)model->D);
    fwa_param gate = fwa_param_matrix(model->F, model->D, deviation);
    fwa_param down = fwa_param_matrix(model->D, model->F, deviation / sqrt((double)model->L));
    mlp->D = model->D;
    mlp->F = gate.storage[0] = down.storage[1] = fwa_round_up(model->F, FWA_ROW_ALIGN);
    fwa_param up = gate;
    up.packed = true;
    FWA_TRY(fwa_params_add(scope, "mlp.gate.weight", gate, &mlp->gate));
    FWA_TRY(fwa_params_add(scope, "mlp.up.weight", up, &mlp->up));
    return fwa_params_add(scope, "mlp.down.weight", down, &mlp->down);
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
