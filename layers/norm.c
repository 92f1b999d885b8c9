// RMSNorm as a layer.
#include "layers/norm.h"

fwa_status fwa_norm_plan(int *index, const fwa_param_scope *scope, const char *name, int64_t D) {
    return fwa_params_add(scope, name, fwa_param_plain(D, 0, (fwa_init){FWA_INIT_CONSTANT, 1, 0}), index);
}

fwa_status fwa_norm_forward(const fwa_layer_context *ctx, int index, fwa_tensor y, fwa_tensor rstd, fwa_tensor x) {
    FWA_TRY_RANGE(
        ctx->backend, "norm forward",
        ctx->backend->ops->rmsnorm_forward(ctx->backend->stream, y, rstd, x, fwa_value(ctx, index), FWA_NORM_EPS));
    return FWA_OK;
}

fwa_status fwa_norm_backward(const fwa_layer_context *ctx, int index, fwa_tensor dx, fwa_tensor dy, fwa_tensor x,
                             fwa_tensor rstd, bool accumulate) {
    FWA_TRY_RANGE(ctx->backend, "norm backward",
                  ctx->backend->ops->rmsnorm_backward(ctx->backend->stream, dx, fwa_grad(ctx, index), dy, x,
                                                      fwa_value(ctx, index), rstd, accumulate));
    return FWA_OK;
}
