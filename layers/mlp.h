// SwiGLU: out = (silu(n Wg^T) * (n Wu^T)) Wd^T + x. Wg and Wu are packed into one product.
//
// The inner size is stored rounded up to FWA_ROW_ALIGN (2730 -> 2736); the extra rows are zero, and so are their
// activations and gradients.
#ifndef FWA_LAYERS_MLP_H
#define FWA_LAYERS_MLP_H

#include "layers/context.h"
#include "layers/spec.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct fwa_mlp {
    int64_t D, F; // F: as stored
    int gate, up, down;
} fwa_mlp;

typedef struct fwa_mlp_acts {
    fwa_tensor gate_up; // [R,2F]
    fwa_tensor hidden;  // [R,F]
} fwa_mlp_acts;

typedef struct fwa_mlp_scratch {
    fwa_tensor dgate_up, dhidden;
} fwa_mlp_scratch;

FWA_MUST_CHECK fwa_status fwa_mlp_plan(fwa_mlp *mlp, const fwa_param_scope *scope, const fwa_model_spec *model);
FWA_MUST_CHECK fwa_status fwa_mlp_plan_acts(const fwa_mlp *mlp, const fwa_layer_context *ctx, fwa_arena *arena,
                                            fwa_mlp_acts *acts);
FWA_MUST_CHECK fwa_status fwa_mlp_plan_scratch(const fwa_mlp *mlp, const fwa_layer_context *ctx, fwa_arena *arena,
                                               fwa_mlp_scratch *scratch);
// out [R,D] = mlp(n) + x
FWA_MUST_CHECK fwa_status fwa_mlp_forward(const fwa_mlp *mlp, const fwa_layer_context *ctx, const fwa_mlp_acts *acts,
                                          fwa_tensor out, fwa_tensor n, fwa_tensor x);
// dn [R,D] = gradient of n given dout; adds to the parameters' gradients.
FWA_MUST_CHECK fwa_status fwa_mlp_backward(const fwa_mlp *mlp, const fwa_layer_context *ctx, const fwa_mlp_acts *acts,
                                           const fwa_mlp_scratch *scratch, fwa_tensor dn, fwa_tensor dout,
                                           fwa_tensor n);

#ifdef __cplusplus
}
#endif
#endif
