// RMSNorm as a layer.
#include "layers/norm.h"

#include <stdio.h>
#include <string.h>

fwa_status fwa_norm_plan(int *index, fwa_params *params, const char *name, int64_t D, int bucket) {
    fwa_param p;
    memset(&p, 0, sizeof p);
    snprintf(p.name, sizeof p.name, "%s", name);
    p.ndim = 1;
    p.shape[0] = p.storage[0] = D;
    p.init = (fwa_init){FWA_INIT_CONSTANT, 1.0};
    p.bucket = bucket;
    return fwa_params_add(params, &p, index);
}

fwa_status fwa_norm_forward(const fwa_layer_context *ctx, int index, fwa_tensor y, fwa_tensor rstd, fwa_tensor x) {
    return ctx->backend->ops->rmsnorm_forward(ctx->backend->stream, y, rstd, x, fwa_value(ctx, index), FWA_NORM_EPS);
}

fwa_status fwa_norm_backward(const fwa_layer_context *ctx, int index, fwa_tensor dx, fwa_tensor dy, fwa_tensor x,
                             fwa_tensor rstd, bool accumulate) {
    return ctx->backend->ops->rmsnorm_backward(ctx->backend->stream, dx, fwa_grad(ctx, index), dy, x,
                                               fwa_value(ctx, index), rstd, accumulate);
}
