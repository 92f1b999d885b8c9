// The operator table: what a backend offers besides the mixing rules (those: rule.h). The list is ops.def.
//
// Operators check types and shapes once at entry and return FWA_ERROR naming the argument. Not collective. They
// allocate nothing, own nothing, and enqueue on `stream`. On the CPU, float and double come from one source
// (cpu/real.h).
#ifndef FWA_KERNELS_OPS_H
#define FWA_KERNELS_OPS_H

#include "core/backend.h"
#include "core/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

// What stands between a projection and a mixing rule (docs/models.md §2): depthwise causal convolution of width W
// without bias, y_t = sum_i w[:,i] x_{t-W+1+i}; then SiLU; then a norm without weight over each head; then the feature
// map phi. rms: u / sqrt(mean u^2 + eps); l2: u / sqrt(sum u^2 + 1e-12).
typedef struct fwa_feature_options {
    int64_t width; // W; 0: no convolution
    bool silu;
    fwa_norm norm;
    fwa_phi phi;
    double eps; // of the rms norm
} fwa_feature_options;

// One training step's scalars; lives in device memory, so that a step never waits for the host. Sums are over the whole
// global batch once reduced; grad tensors hold the gradient of the summed loss, so dividing by `valid` happens in
// grad_scale. Fields from `accepted` on survive in checkpoints.
typedef struct fwa_step_state {
    double loss_sum;    // sum of token losses          (cleared before the first micro-batch)
    double valid;       // number of tokens with a loss (cleared before the first micro-batch)
    double grad_square; // sum of squares of the summed gradient
    double lr;          // this step's learning rate, set by the host before the step
    double loss;        // loss_sum / valid
    double grad_norm;   // sqrt(grad_square) / valid
    double grad_scale;  // what AdamW multiplies a gradient with: min(1, clip / grad_norm) / valid
    int64_t skip;       // 1: this step must not change anything
    int64_t accepted;   // updates applied so far, this one included: Adam's bias correction
    int64_t skipped;    // steps skipped so far
    int64_t skipped_in_a_row;
    double norm_mean; // running mean of accepted gradient norms over about `guard_window` steps
} fwa_step_state;

typedef struct fwa_step_options {
    double clip;          // largest gradient norm; 0: no clipping
    double spike_factor;  // skip where grad_norm > spike_factor * norm_mean; 0: only non-finite steps are skipped
    int64_t guard_window; // the spike test starts after this many accepted updates
} fwa_step_options;

// m = b1 m + (1-b1) g; v = b2 v + (1-b2) g^2; p -= lr lr_scale (mhat / (sqrt(vhat) + eps) + decay p)
typedef struct fwa_adamw_options {
    double lr_scale; // of this parameter group (width scaling)
    double beta1, beta2, eps;
    double decay; // 0 for norms, biases, convolutions
} fwa_adamw_options;

#define FWA_ADAMW_PIECE 4096 // elements that kernels update at a time

// One tensor of a list that is updated by one call (adamw_parts).
typedef struct fwa_adamw_part {
    void *master, *copy, *m, *v; // copy: NULL for none
    const void *grad;
    int64_t count;          // elements
    int64_t first;          // pieces of FWA_ADAMW_PIECE elements, begun ones too, in the parts before
    double lr_scale, decay; // factors of those of the call's options
    fwa_dtype copy_type;
} fwa_adamw_part;

typedef struct fwa_ops {
// NOLINTNEXTLINE(bugprone-macro-parentheses): a name and a list of parameters
#define FWA_OP(backends, name, parameters, arguments) fwa_status(*name) parameters;
#include "kernels/ops.def"
#undef FWA_OP
} fwa_ops;

// Fills in *part, with both factors 1, from dense tensors of one count in a precision: master, grad, m, v in its
// masters' type, copy in that type or `compute`; absent, or the master itself: none. `before`: the part in front of it,
// NULL for the first one of a list.
FWA_MUST_CHECK fwa_status fwa_adamw_part_make(fwa_adamw_part *part, const fwa_adamw_part *before, fwa_dtype compute,
                                              fwa_tensor master, fwa_tensor copy, fwa_tensor grad, fwa_tensor m,
                                              fwa_tensor v);

// FWA_UNSUPPORTED: "the cuda backend has no operator 'rotary' in bf16". What absent entries of a table end in.
FWA_MUST_CHECK fwa_status fwa_op_missing(const char *backend, fwa_dtype precision, const char *op);

#ifdef __cplusplus
}
#endif
#endif
