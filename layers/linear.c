// Matrix products of a layer.
#include "layers/linear.h"

fwa_status fwa_linear_forward(const fwa_layer_context *ctx, fwa_tensor y, fwa_tensor x, fwa_tensor w) {
    const fwa_backend *backend = ctx->backend;
    return backend->ops->gemm(backend->stream, y, x, false, w, true, fwa_tensor_absent(), 1.0, 0.0);
}

fwa_status fwa_linear_residual(const fwa_layer_context *ctx, fwa_tensor y, fwa_tensor x, fwa_tensor w,
                               fwa_tensor residual) {
    const fwa_backend *backend = ctx->backend;
    return backend->ops->gemm(backend->stream, y, x, false, w, true, residual, 1.0, 1.0);
}

fwa_status fwa_linear_backward(const fwa_layer_context *ctx, fwa_tensor dx, fwa_tensor dw, fwa_tensor dy, fwa_tensor x,
                               fwa_tensor w) {
    const fwa_backend *backend = ctx->backend;
    const double beta = ctx->fresh ? 0.0 : 1.0;
    FWA_TRY(backend->ops->gemm(backend->stream, dw, dy, true, x, false, fwa_tensor_absent(), 1.0, beta));
    return backend->ops->gemm(backend->stream, dx, dy, false, w, false, fwa_tensor_absent(), 1.0, 0.0);
}
