// Matrix products of a layer. Weights are [out, in] row-major, as in PyTorch; x [R,in], y [R,out]; rows may be strided.
#ifndef FWA_LAYERS_LINEAR_H
#define FWA_LAYERS_LINEAR_H

#include "layers/context.h"

#ifdef __cplusplus
extern "C" {
#endif

// y = x w^T
FWA_MUST_CHECK fwa_status fwa_linear_forward(const fwa_layer_context *ctx, fwa_tensor y, fwa_tensor x, fwa_tensor w);
// y = x w^T + residual
FWA_MUST_CHECK fwa_status fwa_linear_residual(const fwa_layer_context *ctx, fwa_tensor y, fwa_tensor x, fwa_tensor w,
                                              fwa_tensor residual);
// dx = dy w; dw += dy^T x, or = where ctx->fresh
FWA_MUST_CHECK fwa_status fwa_linear_backward(const fwa_layer_context *ctx, fwa_tensor dx, fwa_tensor dw, fwa_tensor dy,
                                              fwa_tensor x, fwa_tensor w);

#ifdef __cplusplus
}
#endif
#endif
