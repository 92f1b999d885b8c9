// The operators of ops.def as cases of `fwa bench op`, at the sizes of a model: arguments in the order of ops.def.
#include <string.h>

#include "core/shape.h"
#include "layers/spec.h"
#include "train/bench/case.h"

#define IN(name, shape, type, low, high)                                                                               \
    { name, shape, FWA_BENCH_IN, FWA_BENCH_##type, false, low, high }
#define OUT(name, shape, type)                                                                                         \
    { name, shape, FWA_BENCH_OUT, FWA_BENCH_##type, false, 0, 0 }
#define SUM(name, shape, type)                                                                                         \
    { name, shape, FWA_BENCH_SUM, FWA_BENCH_##type, false, -1, 1 }
#define BACK_IN(name, shape, type)                                                                                     \
    { name, shape, FWA_BENCH_IN, FWA_BENCH_##type, true, -1, 1 }
#define BACK_OUT(name, shape, type)                                                                                    \
    { name, shape, FWA_BENCH_OUT, FWA_BENCH_##type, true, 0, 0 }
#define BACK_SUM(name, shape, type)                                                                                    \
    { name, shape, FWA_BENCH_SUM, FWA_BENCH_##type, true, -1, 1 }
#define STATE                                                                                                          \
    { "state", "", FWA_BENCH_SUM, FWA_BENCH_STATE, false, 0, 0 }

#define T(i) (c->t[i])
// A pass: one call of an operator on the tensors of `c`.
#define PASS(function, op, ...)                                                                                        \
    static fwa_status function(const fwa_bench_call *c) {                                                              \
        return c->backend->ops->op(c->backend->stream, __VA_ARGS__);                                                   \
    }

static fwa_step_state *state_of(fwa_tensor t) {
    return t.data;
}

static fwa_tensor heads(const fwa_bench_call *c, int i) { // [R,H V] as [R,H,V]
    return fwa_tensor_as_3d(c->t[i], c->t[i].shape[0], c->sizes.H, c->sizes.V);
}

static const fwa_feature_options feature_options = {
    .width = FWA_BENCH_CONVOLUTION, .silu = true, .norm = FWA_NORM_RMS, .phi = FWA_PHI_IDENTITY, .eps = FWA_NORM_EPS};
static const fwa_step_options step_options = {.clip = 1, .spike_factor = 10, .guard_window = 100};
static const fwa_adamw_options adamw_options = {.lr_scale = 1, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .decay = 0.1};

PASS(product_nt, gemm, T(0), T(1), false, T(2), true, fwa_tensor_absent(), 1.0, 0.0)
PASS(product_nn, gemm, T(0), T(1), false, T(2), false, fwa_tensor_absent(), 1.0, 0.0)
PASS(product_tn, gemm, T(0), T(1), true, T(2), false, fwa_tensor_absent(), 1.0, 1.0)
PASS(product_residual, gemm, T(0), T(1), false, T(2), true, T(3), 1.0, 1.0)
PASS(embedding_forward, embedding_forward, T(0), T(1), T(2))
PASS(embedding_backward, embedding_backward, T(3), T(4), T(2))
PASS(document_starts, document_starts, T(0), T(1), 3)
PASS(halo_mask, halo_mask, T(0), T(1))
PASS(rmsnorm_forward, rmsnorm_forward, T(0), T(1), T(2), T(3), FWA_NORM_EPS)
PASS(rmsnorm_backward, rmsnorm_backward, T(4), T(5), T(6), T(2), T(3), T(1), true)
PASS(features_forward, features_forward, T(0), T(1), T(2), T(3), fwa_tensor_absent(), fwa_tensor_absent(),
     &feature_options)
PASS(features_backward, features_backward, T(4), T(5), fwa_tensor_absent(), T(6), T(1), T(2), T(3), fwa_tensor_absent(),
     fwa_tensor_absent(), &feature_options)
PASS(head_norm_gate_forward, head_norm_gate_forward, T(0), T(1), T(2), T(3), T(4), FWA_NORM_EPS)
PASS(head_norm_gate_backward, head_norm_gate_backward, T(5), T(6), T(7), T(8), T(2), T(1), T(3), T(4))
PASS(sigmoid_gate_forward, sigmoid_gate_forward, T(0), T(1), T(2), 2.0)
PASS(sigmoid_gate_backward, sigmoid_gate_backward, T(3), T(4), T(5), T(0), 2.0)
PASS(decay_fill, decay_fill, T(0), FWA_DECAY_RETNET, 1.0)
PASS(decay_gate_forward, decay_gate_forward, T(0), T(1), T(2), T(3), T(4))
PASS(decay_gate_backward, decay_gate_backward, T(5), T(6), T(7), T(8), fwa_tensor_absent(), T(1), T(3))
PASS(value_scale_forward, value_scale_forward, heads(c, 0), heads(c, 1), T(2))
PASS(value_scale_backward, value_scale_backward, heads(c, 3), T(4), heads(c, 5), heads(c, 1), T(2))
PASS(skip_gate_norm_forward, skip_gate_norm_forward, T(0), T(1), heads(c, 2), heads(c, 3), T(4), T(5), T(6),
     FWA_NORM_EPS)
PASS(skip_gate_norm_backward, skip_gate_norm_backward, heads(c, 7), heads(c, 8), T(9), T(10), T(11), T(12), heads(c, 2),
     heads(c, 3), T(4), T(1), T(5), T(6))
PASS(rotary_forward, rotary, T(0), T(1), 0, FWA_ROTARY_BASE, false)
PASS(swiglu_forward, swiglu_forward, T(0), T(1))
PASS(swiglu_backward, swiglu_backward, T(2), T(3), T(1))
PASS(cross_entropy, cross_entropy, T(0), T(1), T(2), T(3), c->sizes.N, true)
PASS(loss_accumulate, loss_accumulate, state_of(T(0)), T(1), T(2))
PASS(cast, cast, T(0), T(1))
PASS(add, add, T(0), T(1))
PASS(square_accumulate, square_accumulate, state_of(T(0)), T(1))
PASS(step_finish, step_finish, state_of(T(0)), &step_options)
PASS(adamw, adamw, T(0), T(1), T(2), T(3), T(4), &adamw_options, state_of(T(5)))

// The tensors as two parts, a row and the rest, described anew for every call: a few microseconds of what is timed.
static fwa_status adamw_parts(const fwa_bench_call *c) {
    fwa_adamw_part parts[2];
    const int64_t rows = T(0).shape[0], first[] = {0, 1, rows};
    for (int i = 0; i < 2; i++) {
        fwa_tensor t[5];
        for (int j = 0; j < 5; j++) t[j] = fwa_tensor_slice(T(j), 0, first[i], first[i + 1] - first[i]);
        FWA_TRY(
            fwa_adamw_part_make(&parts[i], i > 0 ? parts : NULL, c->backend->compute, t[0], t[1], t[2], t[3], t[4]));
    }
    FWA_CHECK(fwa_tensor_bytes(T(6)) >= sizeof parts, FWA_USAGE, "got 4 D F = %zu, expected at least %zu",
              fwa_tensor_bytes(T(6)), sizeof parts);
    FWA_TRY(c->backend->upload(c->backend, c->backend->stream, T(6).data, parts, sizeof parts));
    return c->backend->ops->adamw_parts(c->backend->stream, fwa_tensor_1d(T(6).data, FWA_U8, sizeof parts),
                                        fwa_tensor_count(T(0)), &adamw_options, state_of(T(5)));
}

static const fwa_bench_case operators[] = {
    {"gemm_qkvg",
     {OUT("d", "R 4HK", ACT), IN("a", "R D", ACT, -1, 1), IN("b", "4HK D", ACT, -1, 1)},
     {product_nt, NULL},
     NULL},
    {"gemm_residual",
     {OUT("d", "R D", ACT), IN("a", "R HV", ACT, -1, 1), IN("b", "D HV", ACT, -1, 1), IN("c", "R D", ACT, -1, 1)},
     {product_residual, NULL},
     NULL},
    {"gemm_up",
     {OUT("d", "R 2F", ACT), IN("a", "R D", ACT, -1, 1), IN("b", "2F D", ACT, -1, 1)},
     {product_nt, NULL},
     NULL},
    {"gemm_down",
     {OUT("d", "R D", ACT), IN("a", "R F", ACT, -1, 1), IN("b", "D F", ACT, -1, 1), IN("c", "R D", ACT, -1, 1)},
     {product_residual, NULL},
     NULL},
    {"gemm_up_input",
     {OUT("d", "R D", ACT), IN("a", "R 2F", ACT, -1, 1), IN("b", "2F D", ACT, -1, 1)},
     {product_nn, NULL},
     NULL},
    {"gemm_up_weight",
     {SUM("d", "2F D", MST), IN("a", "R 2F", ACT, -1, 1), IN("b", "R D", ACT, -1, 1)},
     {product_tn, NULL},
     NULL},
    {"gemm_residual_weight",
     {SUM("d", "D HV", MST), IN("a", "R D", ACT, -1, 1), IN("b", "R HV", ACT, -1, 1)},
     {product_tn, NULL},
     NULL},
    {"gemm_logits",
     {OUT("d", "r N", ACT), IN("a", "r D", ACT, -1, 1), IN("b", "N D", ACT, -1, 1)},
     {product_nt, NULL},
     NULL},
    {"gemm_logits_input",
     {OUT("d", "r D", ACT), IN("a", "r N", ACT, -1, 1), IN("b", "N D", ACT, -1, 1)},
     {product_nn, NULL},
     NULL},
    {"gemm_logits_weight",
     {SUM("d", "N D", MST), IN("a", "r N", ACT, -1, 1), IN("b", "r D", ACT, -1, 1)},
     {product_tn, NULL},
     NULL},
    {"embedding",
     {OUT("y", "R D", ACT), IN("w", "N D", ACT, -1, 1), IN("tokens", "R", IDS, 0, 0), BACK_SUM("dw", "N D", MST),
      BACK_IN("dy", "R D", ACT)},
     {embedding_forward, embedding_backward},
     NULL},
    {"document_starts", {OUT("reset", "R", FLAGS), IN("tokens", "R", IDS, 0, 0)}, {document_starts, NULL}, NULL},
    {"halo_mask", {SUM("x", "B T HK", ACT), IN("reset", "B T", FLAGS, 0, 2)}, {halo_mask, NULL}, NULL},
    {"rmsnorm",
     {OUT("y", "R D", ACT), OUT("rstd", "R", MST), IN("x", "R D", ACT, -2, 2), IN("w", "D", MST, 0.5, 1.5),
      BACK_SUM("dx", "R D", ACT), BACK_SUM("dw", "D", MST), BACK_IN("dy", "R D", ACT)},
     {rmsnorm_forward, rmsnorm_backward},
     NULL},
    {"features",
     {OUT("y", "B T H K", ACT), OUT("rstd", "B T H", MST), IN("x", "B T HK", ACT, -2, 2), IN("w", "HK W", MST, -1, 1),
      BACK_OUT("dx", "B T HK", ACT), BACK_SUM("dw", "HK W", MST), BACK_IN("dy", "B T H K", ACT)},
     {features_forward, features_backward},
     NULL},
    {"head_norm_gate",
     {OUT("y", "R HV", ACT), OUT("rstd", "R H", MST), IN("o", "R H V", ACT, -2, 2), IN("w", "V", MST, 0.5, 1.5),
      IN("g", "R HV", ACT, -4, 4), BACK_OUT("do", "R H V", ACT), BACK_SUM("dw", "V", MST), BACK_OUT("dg", "R HV", ACT),
      BACK_IN("dy", "R HV", ACT)},
     {head_norm_gate_forward, head_norm_gate_backward},
     NULL},
    {"sigmoid_gate",
     {OUT("y", "R H", MST), IN("x", "R H", ACT, -4, 4), IN("bias", "H", MST, -1, 1), BACK_OUT("dx", "R H", ACT),
      BACK_SUM("dbias", "H", MST), BACK_IN("dy", "R H", MST)},
     {sigmoid_gate_forward, sigmoid_gate_backward},
     NULL},
    {"decay_fill", {OUT("log_decay", "R H", MST)}, {decay_fill, NULL}, NULL},
    {"decay_gate",
     {OUT("log_decay", "R H", MST), OUT("delta", "R H", MST), IN("x", "R H", ACT, -4, 4), IN("A_log", "H", MST, 0, 2),
      IN("dt_bias", "H", MST, -4, -1), BACK_OUT("dx", "R H", ACT), BACK_SUM("dA_log", "H", MST),
      BACK_SUM("ddt_bias", "H", MST), BACK_IN("dlog_decay", "R H", MST)},
     {decay_gate_forward, decay_gate_backward},
     NULL},
    {"value_scale",
     {OUT("v", "R HV", ACT), IN("x", "R HV", ACT, -2, 2), IN("scale", "R H", MST, 0, 1), BACK_SUM("dx", "R HV", ACT),
      BACK_OUT("dscale", "R H", MST), BACK_IN("dv", "R HV", ACT)},
     {value_scale_forward, value_scale_backward},
     NULL},
    {"skip_gate_norm",
     {OUT("y", "R HV", ACT), OUT("rstd", "R", MST), IN("o", "R HV", ACT, -2, 2), IN("x", "R HV", ACT, -2, 2),
      IN("skip", "H", MST, 0, 1), IN("w", "HV", MST, 0.5, 1.5), IN("g", "R HV", ACT, -4, 4),
      BACK_OUT("do", "R HV", ACT), BACK_OUT("dx", "R HV", ACT), BACK_SUM("dskip", "H", MST), BACK_SUM("dw", "HV", MST),
      BACK_OUT("dg", "R HV", ACT), BACK_IN("dy", "R HV", ACT)},
     {skip_gate_norm_forward, skip_gate_norm_backward},
     NULL},
    {"rotary", {OUT("y", "B T H K", ACT), IN("x", "B T H K", ACT, -2, 2)}, {rotary_forward, NULL}, NULL},
    {"swiglu",
     {OUT("y", "R F", ACT), IN("x", "R 2F", ACT, -4, 4), BACK_OUT("dx", "R 2F", ACT), BACK_IN("dy", "R F", ACT)},
     {swiglu_forward, swiglu_backward},
     NULL},
    {"cross_entropy",
     {OUT("loss", "r", MST),
      OUT("prediction", "r", IDS),
      {"logits", "r N", FWA_BENCH_SUM, FWA_BENCH_ACT, false, -4, 4},
      IN("targets", "r", IDS, 0, 0)},
     {cross_entropy, NULL},
     NULL},
    {"loss_accumulate",
     {STATE, IN("loss", "R", MST, 0, 8), IN("targets", "R", IDS, -1, 0)},
     {loss_accumulate, NULL},
     NULL},
    {"cast", {OUT("y", "R D", ACT), IN("x", "R D", MST, -2, 2)}, {cast, NULL}, NULL},
    {"add", {SUM("y", "R D", ACT), IN("x", "R D", ACT, -2, 2)}, {add, NULL}, NULL},
    {"square_accumulate", {STATE, IN("x", "4D F", MST, -1, 1)}, {square_accumulate, NULL}, NULL},
    {"step_finish", {STATE}, {step_finish, NULL}, NULL},
    {"adamw",
     {SUM("master", "4D F", MST),
      OUT("copy", "4D F", ACT),
      IN("grad", "4D F", MST, -1, 1),
      SUM("m", "4D F", MST),
      {"v", "4D F", FWA_BENCH_SUM, FWA_BENCH_MST, false, 0, 1},
      STATE},
     {adamw, NULL},
     NULL},
    {"adamw_parts",
     {SUM("master", "4D F", MST),
      OUT("copy", "4D F", ACT),
      IN("grad", "4D F", MST, -1, 1),
      SUM("m", "4D F", MST),
      {"v", "4D F", FWA_BENCH_SUM, FWA_BENCH_MST, false, 0, 1},
      STATE,
      IN("parts", "4D F", FLAGS, 0, 1)},
     {adamw_parts, NULL},
     NULL},
};

int fwa_bench_operator_count(void) {
    return sizeof operators / sizeof *operators;
}

const fwa_bench_case *fwa_bench_operator(int index) {
    return &operators[index];
}
