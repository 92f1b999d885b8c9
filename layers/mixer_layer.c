// The token-mixing half of a block.
#include "layers/mixer_layer.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "kernels/registry.h"
#include "layers/linear.h"

static bool has(const fwa_mixer_layer *layer, unsigned switch_bit) {
    return (layer->spec->rule->switches & switch_bit) != 0;
}

static fwa_status add(fwa_params *params, int *index, const char *prefix, const char *name, int bucket, int64_t rows,
                      int64_t columns, fwa_init init, bool matrix, bool packed) {
    fwa_param p;
    memset(&p, 0, sizeof p);
    snprintf(p.name, sizeof p.name, "%s.mixer.%s", prefix, name);
    p.ndim = columns > 0 ? 2 : 1;
    p.shape[0] = p.storage[0] = rows;
    p.shape[1] = p.storage[1] = columns;
    p.init = init;
    p.matrix = p.decay = p.width_scaled = matrix;
    p.packed = packed;
    p.bucket = bucket;
    return fwa_params_add(params, &p, index);
}

// A bias b with sigmoid(b) = value.
static fwa_init sigmoid_bias(double value) {
    fwa_init init = {FWA_INIT_CONSTANT, log(value / (1.0 - value))};
    return init;
}

static fwa_status plan_projection(fwa_mixer_layer *layer, fwa_params *params, const char *prefix, int bucket) {
    const fwa_mixer_spec *spec = layer->spec;
    int64_t D = layer->D, width = layer->H * layer->K;
    fwa_init init = {FWA_INIT_NORMAL, 0.5 / sqrt((double)D)};
    FWA_TRY(add(params, &layer->q, prefix, "q.weight", bucket, width, D, init, true, false));
    FWA_TRY(add(params, &layer->k, prefix, "k.weight", bucket, width, D, init, true, true));
    FWA_TRY(add(params, &layer->v, prefix, "v.weight", bucket, width, D, init, true, true));
    layer->packed_count = 3;
    layer->P = 3 * width;
    if (spec->gate) {
        layer->at_gate = layer->P;
        FWA_TRY(add(params, &layer->gate, prefix, "gate.weight", bucket, width, D, init, true, true));
        layer->P += width;
        layer->packed_count++;
    }
    if (spec->rule->inputs & FWA_INPUT_BETA) {
        layer->at_beta = layer->P;
        FWA_TRY(add(params, &layer->beta, prefix, "beta.weight", bucket, layer->H, D, init, true, true));
        layer->P += layer->H;
        layer->packed_count++;
    }
    if ((spec->rule->inputs & FWA_INPUT_LAMBDA) && spec->options.ridge != FWA_RIDGE_NONE) {
        layer->at_lambda = layer->P;
        FWA_TRY(add(params, &layer->lambda, prefix, "lambda.weight", bucket, layer->H, D, init, true, true));
        layer->P += layer->H;
        layer->packed_count++;
    }
    return FWA_OK;
}

fwa_status fwa_mixer_layer_plan(fwa_mixer_layer *layer, fwa_params *params, const fwa_model_spec *model,
                                const fwa_mixer_spec *spec, const fwa_backend *backend, const char *prefix,
                                int bucket) {
    fwa_mixer_layer fresh = {.spec = spec,
                             .D = model->D,
                             .H = model->H,
                             .K = model->K,
                             .q = -1,
                             .k = -1,
                             .v = -1,
                             .gate = -1,
                             .beta = -1,
                             .lambda = -1,
                             .beta_bias = -1,
                             .lambda_bias = -1,
                             .conv_q = -1,
                             .conv_k = -1,
                             .conv_v = -1,
                             .norm = -1,
                             .out = -1};
    *layer = fresh;
    FWA_CHECK(!(spec->rule->inputs & (FWA_INPUT_BETA_CHANNEL | FWA_INPUT_LOG_DECAY)), FWA_UNSUPPORTED,
              "mixer '%s': the layer cannot feed rule %s, which wants a step per value channel or a log decay",
              spec->name, spec->rule->name);
    FWA_TRY(fwa_mixer_find(backend, spec->rule, &layer->kernels));
    FWA_TRY(plan_projection(layer, params, prefix, bucket));
    int64_t D = layer->D, width = layer->H * layer->K;
    if (layer->beta >= 0)
        FWA_TRY(add(params, &layer->beta_bias, prefix, "beta.bias", bucket, layer->H, 0, sigmoid_bias(spec->beta_init),
                    false, false));
    if (layer->lambda >= 0)
        FWA_TRY(add(params, &layer->lambda_bias, prefix, "lambda.bias", bucket, layer->H, 0,
                    sigmoid_bias(spec->lambda_init), false, false));
    if (has(layer, FWA_SWITCH_CONV) && spec->conv > 0) {
        fwa_init init = {FWA_INIT_UNIFORM, 0.5};
        FWA_TRY(add(params, &layer->conv_q, prefix, "conv_q.weight", bucket, width, spec->conv, init, false, false));
        FWA_TRY(add(params, &layer->conv_k, prefix, "conv_k.weight", bucket, width, spec->conv, init, false, false));
        FWA_TRY(add(params, &layer->conv_v, prefix, "conv_v.weight", bucket, width, spec->conv, init, false, false));
    }
    if (has(layer, FWA_SWITCH_GATE)) {
        fwa_init one = {FWA_INIT_CONSTANT, 1.0};
        FWA_TRY(add(params, &layer->norm, prefix, "norm.weight", bucket, layer->K, 0, one, false, false));
    }
    fwa_init out = {FWA_INIT_NORMAL, 0.5 / sqrt((double)D) / sqrt((double)model->L)};
    return add(params, &layer->out, prefix, "out.weight", bucket, D, width, out, true, false);
}

// The rule's call without tensors' memory: enough for sizes, completed by forward and backward.
static fwa_mixer_call make_call(const fwa_mixer_layer *layer, const fwa_layer_context *ctx, const fwa_mixer_acts *acts,
                                bool train, fwa_tensor scratch) {
    fwa_mixer_call call;
    memset(&call, 0, sizeof call);
    call.options = layer->spec->options;
    call.shape =
        (fwa_mixer_shape){.B = ctx->B, .T = ctx->T, .Hq = layer->H, .H = layer->H, .K = layer->K, .V = layer->K};
    call.form = FWA_FORM_CHUNK;
    call.save = train;
    call.q = acts->q;
    call.k = acts->k;
    call.v = acts->v;
    if (layer->beta >= 0) call.beta = fwa_tensor_as_3d(acts->beta, ctx->B, ctx->T, layer->H);
    if (layer->lambda >= 0) call.lambda = fwa_tensor_as_3d(acts->lambda, ctx->B, ctx->T, layer->H);
    call.o = acts->o;
    call.saved = acts->saved;
    call.scratch = scratch;
    return call;
}

fwa_status fwa_mixer_layer_plan_acts(const fwa_mixer_layer *layer, const fwa_layer_context *ctx, bool train,
                                     fwa_arena *arena, fwa_mixer_acts *acts, size_t *scratch_bytes) {
    fwa_dtype act = ctx->backend->compute, mst = ctx->backend->master;
    int64_t B = ctx->B, T = ctx->T, R = B * T, H = layer->H, K = layer->K;
    const int64_t proj[] = {R, layer->P}, head[] = {B, T, H, K}, scalar[] = {R, H}, scalar3[] = {B, T, H},
                  flat[] = {R, H * K};
    memset(acts, 0, sizeof *acts);
    FWA_TRY(fwa_arena_plan(arena, &acts->proj, act, 2, proj));
    FWA_TRY(fwa_arena_plan(arena, &acts->q, act, 4, head));
    FWA_TRY(fwa_arena_plan(arena, &acts->k, act, 4, head));
    FWA_TRY(fwa_arena_plan(arena, &acts->v, act, 4, head));
    if (layer->spec->qk_norm != FWA_NORM_NONE) {
        FWA_TRY(fwa_arena_plan(arena, &acts->q_rstd, mst, 3, scalar3));
        FWA_TRY(fwa_arena_plan(arena, &acts->k_rstd, mst, 3, scalar3));
    }
    if (layer->spec->v_norm != FWA_NORM_NONE) FWA_TRY(fwa_arena_plan(arena, &acts->v_rstd, mst, 3, scalar3));
    if (layer->beta >= 0) FWA_TRY(fwa_arena_plan(arena, &acts->beta, mst, 2, scalar));
    if (layer->lambda >= 0) FWA_TRY(fwa_arena_plan(arena, &acts->lambda, mst, 2, scalar));
    FWA_TRY(fwa_arena_plan(arena, &acts->o, act, 4, head));
    if (layer->norm >= 0) {
        FWA_TRY(fwa_arena_plan(arena, &acts->o_rstd, mst, 2, scalar));
        FWA_TRY(fwa_arena_plan(arena, &acts->y, act, 2, flat));
    }
    size_t saved = 0, scratch = 0;
    fwa_mixer_call call = make_call(layer, ctx, acts, train, fwa_tensor_absent());
    FWA_TRY(layer->kernels->sizes(ctx->backend, &call, &saved, &scratch));
    if (saved > 0) FWA_TRY(fwa_arena_plan_bytes(arena, &acts->saved, saved));
    if (scratch > *scratch_bytes) *scratch_bytes = scratch;
    return FWA_OK;
}

fwa_status fwa_mixer_layer_plan_scratch(const fwa_mixer_layer *layer, const fwa_layer_context *ctx, fwa_arena *arena,
                                        fwa_mixer_scratch *scratch) {
    fwa_dtype act = ctx->backend->compute, mst = ctx->backend->master;
    int64_t B = ctx->B, T = ctx->T, R = B * T, H = layer->H, K = layer->K;
    const int64_t proj[] = {R, layer->P}, head[] = {B, T, H, K}, scalar[] = {B, T, H}, flat[] = {R, H * K};
    memset(scratch, 0, sizeof *scratch);
    FWA_TRY(fwa_arena_plan(arena, &scratch->dproj, act, 2, proj));
    FWA_TRY(fwa_arena_plan(arena, &scratch->dq, act, 4, head));
    FWA_TRY(fwa_arena_plan(arena, &scratch->dk, act, 4, head));
    FWA_TRY(fwa_arena_plan(arena, &scratch->dv, act, 4, head));
    if (layer->beta >= 0) FWA_TRY(fwa_arena_plan(arena, &scratch->dbeta, mst, 3, scalar));
    if (layer->lambda >= 0) FWA_TRY(fwa_arena_plan(arena, &scratch->dlambda, mst, 3, scalar));
    FWA_TRY(fwa_arena_plan(arena, &scratch->d_o, act, 4, head));
    if (layer->norm >= 0) FWA_TRY(fwa_arena_plan(arena, &scratch->dy, act, 2, flat));
    return FWA_OK;
}

static fwa_feature_options feature_options(const fwa_mixer_layer *layer, fwa_norm norm, fwa_phi phi) {
    fwa_feature_options options = {.width = has(layer, FWA_SWITCH_CONV) ? layer->spec->conv : 0,
                                   .silu = has(layer, FWA_SWITCH_CONV),
                                   .norm = norm,
                                   .phi = phi,
                                   .eps = FWA_NORM_EPS};
    return options;
}

// Columns [start, start + H*K) of the projection as [B,T,H*K].
static fwa_tensor columns3(const fwa_mixer_layer *layer, const fwa_layer_context *ctx, fwa_tensor proj, int64_t start) {
    int64_t width = layer->H * layer->K;
    return fwa_tensor_as_3d(fwa_tensor_slice(proj, 1, start, width), ctx->B, ctx->T, width);
}

static fwa_tensor optional_value(const fwa_layer_context *ctx, int index) {
    return index >= 0 ? fwa_value(ctx, index) : fwa_tensor_absent();
}
static fwa_tensor optional_grad(const fwa_layer_context *ctx, int index) {
    return index >= 0 ? fwa_grad(ctx, index) : fwa_tensor_absent();
}

static fwa_status rotate(const fwa_mixer_layer *layer, const fwa_layer_context *ctx, fwa_tensor q, fwa_tensor k,
                         bool inverse) {
    if (!has(layer, FWA_SWITCH_ROTARY)) return FWA_OK;
    fwa_stream *stream = ctx->backend->stream;
    const fwa_ops *ops = ctx->backend->ops;
    FWA_TRY(ops->rotary(stream, q, q, ctx->position, FWA_ROTARY_BASE, inverse));
    return ops->rotary(stream, k, k, ctx->position, FWA_ROTARY_BASE, inverse);
}

fwa_status fwa_mixer_layer_forward(const fwa_mixer_layer *layer, const fwa_layer_context *ctx, bool train,
                                   const fwa_mixer_acts *acts, fwa_tensor scratch, fwa_tensor out, fwa_tensor n,
                                   fwa_tensor x) {
    const fwa_ops *ops = ctx->backend->ops;
    fwa_stream *stream = ctx->backend->stream;
    const fwa_mixer_spec *spec = layer->spec;
    int64_t R = ctx->B * ctx->T, H = layer->H, width = H * layer->K;
    fwa_tensor none = fwa_tensor_absent();
    fwa_feature_options qk = feature_options(layer, spec->qk_norm, spec->phi);
    fwa_feature_options plain = feature_options(layer, spec->v_norm, FWA_PHI_IDENTITY);

    FWA_TRY(fwa_linear_forward(ctx, acts->proj, n,
                               fwa_params_packed(ctx->params, layer->q, layer->packed_count, FWA_PARAM_VALUE)));
    FWA_TRY(ops->features_forward(stream, acts->q, acts->q_rstd, columns3(layer, ctx, acts->proj, 0),
                                  optional_value(ctx, layer->conv_q), none, none, &qk));
    FWA_TRY(ops->features_forward(stream, acts->k, acts->k_rstd, columns3(layer, ctx, acts->proj, width),
                                  optional_value(ctx, layer->conv_k), none, none, &qk));
    FWA_TRY(ops->features_forward(stream, acts->v, acts->v_rstd, columns3(layer, ctx, acts->proj, 2 * width),
                                  optional_value(ctx, layer->conv_v), none, none, &plain));
    FWA_TRY(rotate(layer, ctx, acts->q, acts->k, false));
    if (layer->beta >= 0)
        FWA_TRY(ops->sigmoid_gate_forward(stream, acts->beta, fwa_tensor_slice(acts->proj, 1, layer->at_beta, H),
                                          fwa_value(ctx, layer->beta_bias), FWA_BETA_SCALE));
    if (layer->lambda >= 0)
        FWA_TRY(ops->sigmoid_gate_forward(stream, acts->lambda, fwa_tensor_slice(acts->proj, 1, layer->at_lambda, H),
                                          fwa_value(ctx, layer->lambda_bias), FWA_LAMBDA_SCALE));
    fwa_mixer_call call = make_call(layer, ctx, acts, train, scratch);
    FWA_TRY(layer->kernels->forward(ctx->backend, stream, &call));
    fwa_tensor y = fwa_tensor_as_2d(acts->o, R, width);
    if (layer->norm >= 0) {
        fwa_tensor gate = layer->gate >= 0 ? fwa_tensor_slice(acts->proj, 1, layer->at_gate, width) : none;
        FWA_TRY(ops->head_norm_gate_forward(stream, acts->y, acts->o_rstd, fwa_tensor_as_3d(acts->o, R, H, layer->K),
                                            fwa_value(ctx, layer->norm), gate, FWA_NORM_EPS));
        y = acts->y;
    }
    return fwa_linear_residual(ctx, out, y, fwa_value(ctx, layer->out), x);
}

// Gradients of the rule's inputs into scratch->d{q,k,v,beta,lambda}, given d_o.
static fwa_status rule_backward(const fwa_mixer_layer *layer, const fwa_layer_context *ctx, const fwa_mixer_acts *acts,
                                const fwa_mixer_scratch *scratch) {
    fwa_mixer_call call = make_call(layer, ctx, acts, true, scratch->bytes);
    fwa_mixer_grads grads;
    memset(&grads, 0, sizeof grads);
    grads.d_o = scratch->d_o;
    grads.dq = scratch->dq;
    grads.dk = scratch->dk;
    grads.dv = scratch->dv;
    grads.dbeta = scratch->dbeta;
    grads.dlambda = scratch->dlambda;
    return layer->kernels->backward(ctx->backend, ctx->backend->stream, &call, &grads);
}

fwa_status fwa_mixer_layer_backward(const fwa_mixer_layer *layer, const fwa_layer_context *ctx,
                                    const fwa_mixer_acts *acts, const fwa_mixer_scratch *scratch, fwa_tensor dn,
                                    fwa_tensor dout, fwa_tensor n) {
    const fwa_ops *ops = ctx->backend->ops;
    fwa_stream *stream = ctx->backend->stream;
    const fwa_mixer_spec *spec = layer->spec;
    int64_t R = ctx->B * ctx->T, H = layer->H, K = layer->K, width = H * K;
    fwa_tensor none = fwa_tensor_absent();
    fwa_feature_options qk = feature_options(layer, spec->qk_norm, spec->phi);
    fwa_feature_options plain = feature_options(layer, spec->v_norm, FWA_PHI_IDENTITY);
    fwa_tensor o = fwa_tensor_as_2d(acts->o, R, width), d_o = fwa_tensor_as_2d(scratch->d_o, R, width);

    if (layer->norm >= 0) {
        bool gated = layer->gate >= 0;
        FWA_TRY(fwa_linear_backward(ctx, scratch->dy, fwa_grad(ctx, layer->out), dout, acts->y,
                                    fwa_value(ctx, layer->out)));
        FWA_TRY(ops->head_norm_gate_backward(
            stream, fwa_tensor_as_3d(scratch->d_o, R, H, K), fwa_grad(ctx, layer->norm),
            gated ? fwa_tensor_slice(scratch->dproj, 1, layer->at_gate, width) : none, scratch->dy,
            fwa_tensor_as_3d(acts->o, R, H, K), acts->o_rstd, fwa_value(ctx, layer->norm),
            gated ? fwa_tensor_slice(acts->proj, 1, layer->at_gate, width) : none));
    } else {
        FWA_TRY(fwa_linear_backward(ctx, d_o, fwa_grad(ctx, layer->out), dout, o, fwa_value(ctx, layer->out)));
    }
    FWA_TRY(rule_backward(layer, ctx, acts, scratch));
    FWA_TRY(rotate(layer, ctx, scratch->dq, scratch->dk, true));
    FWA_TRY(ops->features_backward(stream, columns3(layer, ctx, scratch->dproj, 0), optional_grad(ctx, layer->conv_q),
                                   none, scratch->dq, acts->q_rstd, columns3(layer, ctx, acts->proj, 0),
                                   optional_value(ctx, layer->conv_q), none, none, &qk));
    FWA_TRY(ops->features_backward(
        stream, columns3(layer, ctx, scratch->dproj, width), optional_grad(ctx, layer->conv_k), none, scratch->dk,
        acts->k_rstd, columns3(layer, ctx, acts->proj, width), optional_value(ctx, layer->conv_k), none, none, &qk));
    FWA_TRY(ops->features_backward(stream, columns3(layer, ctx, scratch->dproj, 2 * width),
                                   optional_grad(ctx, layer->conv_v), none, scratch->dv, acts->v_rstd,
                                   columns3(layer, ctx, acts->proj, 2 * width), optional_value(ctx, layer->conv_v),
                                   none, none, &plain));
    if (layer->beta >= 0)
        FWA_TRY(ops->sigmoid_gate_backward(stream, fwa_tensor_slice(scratch->dproj, 1, layer->at_beta, H),
                                           fwa_grad(ctx, layer->beta_bias), fwa_tensor_as_2d(scratch->dbeta, R, H),
                                           acts->beta, FWA_BETA_SCALE));
    if (layer->lambda >= 0)
        FWA_TRY(ops->sigmoid_gate_backward(stream, fwa_tensor_slice(scratch->dproj, 1, layer->at_lambda, H),
                                           fwa_grad(ctx, layer->lambda_bias), fwa_tensor_as_2d(scratch->dlambda, R, H),
                                           acts->lambda, FWA_LAMBDA_SCALE));
    return fwa_linear_backward(ctx, dn, fwa_params_packed(ctx->params, layer->q, layer->packed_count, FWA_PARAM_GRAD),
                               scratch->dproj, n,
                               fwa_params_packed(ctx->params, layer->q, layer->packed_count, FWA_PARAM_VALUE));
}
