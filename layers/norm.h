// RMSNorm with a learned weight, y = x / sqrt(mean x^2 + eps) * w, as a parameter of the table.
#ifndef FWA_LAYERS_NORM_H
#define FWA_LAYERS_NORM_H

#include "layers/context.h"
#include "layers/spec.h"

#ifdef __cplusplus
extern "C" {
#endif

// Adds `name` [D], ones.
FWA_MUST_CHECK fwa_status fwa_norm_plan(int *index, const fwa_param_scope *scope, const char *name, int64_t D);
// y [R,D], rstd [R] from x [R,D].
FWA_MUST_CHECK fwa_status fwa_norm_forward(const fwa_layer_context *ctx, int index, fwa_tensor y, fwa_tensor rstd,
                                           fwa_tensor x);
// dx [R,D] += (accumulate) or = gradient of x; adds to the weight's gradient.
FWA_MUST_CHECK fwa_status fwa_norm_backward(const fwa_layer_context *ctx, int index, fwa_tensor dx, fwa_tensor dy,
                                            fwa_tensor x, fwa_tensor rstd, bool accumulate);

#ifdef __cplusplus
}
#endif
#endif
