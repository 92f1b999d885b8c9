// The passes of a mixer layer.
#include "layers/mixer_layer.h"

#include <string.h>

#include "layers/linear.h"

fwa_mixer_call fwa_mixer_layer_call(const fwa_mixer_layer *layer, const fwa_layer_context *ctx, bool train,
                                    const fwa_mixer_acts *acts, fwa_tensor scratch) {
    int64_t H = layer->H, K = layer->K;
    fwa_mixer_call call;
    memset(&call, 0, sizeof call);
    call.options = layer->spec->options;
    call.shape = (fwa_mixer_shape){.B = ctx->B, .T = ctx->T, .Hq = H, .H = H, .K = K, .V = K};
    call.form = FWA_FORM_CHUNK;
    call.save = train;
    call.q = acts->q;
    call.k = acts->k;
    call.v = acts->v;
    call.beta = acts->beta;
    call.lambda = acts->lambda;
    call.reset = ctx->reset;
    call.o = acts->o;
    call.saved = acts->saved;
    call.scratch = scratch;
    return call;
}

// Value or gradient of a parameter, absent for index -1.
static fwa_tensor optional_value(const fwa_layer_context *ctx, int index) {
    return index >= 0 ? fwa_value(ctx, index) : fwa_tensor_absent();
}
static fwa_tensor optional_grad(const fwa_layer_context *ctx, int index) {
    return index >= 0 ? fwa_grad(ctx, index) : fwa_tensor_absent();
}

// The part's columns [R,columns] of the projection or its gradient; absent where the part is.
static fwa_tensor part_of(fwa_tensor proj, const fwa_mixer_part *part) {
    return fwa_mixer_part_present(part) ? fwa_tensor_slice(proj, 1, part->at, part->columns) : fwa_tensor_absent();
}

static fwa_tensor packed(const fwa_mixer_layer *layer, const fwa_layer_context *ctx, fwa_param_class which) {
    return fwa_params_packed(ctx->params, layer->q.weight, layer->parts, which);
}

static fwa_feature_options feature_options(const fwa_mixer_layer *layer, fwa_norm norm, fwa_phi phi) {
    return (fwa_feature_options){.width = layer->spec->conv,
                                 .silu = (layer->spec->rule->switches & FWA_SWITCH_CONV) != 0,
                                 .norm = norm,
                                 .phi = phi,
                                 .eps = FWA_NORM_EPS};
}

// y [B,T,H,K] = features of the part; q, k, v.
static fwa_status feature_forward(const fwa_layer_context *ctx, const fwa_mixer_part *part,
                                  const fwa_feature_options *options, fwa_tensor y, fwa_tensor rstd, fwa_tensor proj) {
    fwa_tensor none = fwa_tensor_absent();
    fwa_tensor x = fwa_tensor_as_3d(part_of(proj, part), ctx->B, ctx->T, part->columns);
    return ctx->backend->ops->features_forward(ctx->backend->stream, y, rstd, x, optional_value(ctx, part->conv), none,
                                               ctx->reset, options);
}

// The part's columns of dproj = gradient given dy; adds to the convolution's.
static fwa_status feature_backward(const fwa_layer_context *ctx, const fwa_mixer_part *part,
                                   const fwa_feature_options *options, fwa_tensor dproj, fwa_tensor dy, fwa_tensor rstd,
                                   fwa_tensor proj) {
    fwa_tensor none = fwa_tensor_absent();
    fwa_tensor x = fwa_tensor_as_3d(part_of(proj, part), ctx->B, ctx->T, part->columns);
    fwa_tensor dx = fwa_tensor_as_3d(part_of(dproj, part), ctx->B, ctx->T, part->columns);
    return ctx->backend->ops->features_backward(ctx->backend->stream, dx, optional_grad(ctx, part->conv), none, dy,
                                                rstd, x, optional_value(ctx, part->conv), none, ctx->reset, options);
}

// Rows [R,width] of beta or lambda, or of their gradients.
static fwa_tensor scalar_rows(const fwa_layer_context *ctx, fwa_tensor y) {
    int64_t R = ctx->B * ctx->T;
    return fwa_tensor_as_2d(y, R, fwa_tensor_count(y) / R);
}

// y = scale sigmoid(part + bias), or through the second projection: part Wup^T, kept in `wide`. beta, lambda. Nothing
// where the part is absent.
static fwa_status scalar_forward(const fwa_layer_context *ctx, const fwa_mixer_part *part, double scale, fwa_tensor y,
                                 fwa_tensor proj, fwa_tensor wide) {
    if (!fwa_mixer_part_present(part)) return FWA_OK;
    fwa_tensor x = part_of(proj, part);
    if (part->up >= 0) {
        FWA_TRY(fwa_linear_forward(ctx, wide, x, fwa_value(ctx, part->up)));
        x = wide;
    }
    return ctx->backend->ops->sigmoid_gate_forward(ctx->backend->stream, scalar_rows(ctx, y), x,
                                                   fwa_value(ctx, part->bias), scale);
}

// The part's columns of dproj = gradient given dy; adds to those of the bias and of the second projection.
static fwa_status scalar_backward(const fwa_layer_context *ctx, const fwa_mixer_part *part, double scale,
                                  fwa_tensor dproj, fwa_tensor dy, fwa_tensor y, fwa_tensor proj, fwa_tensor wide) {
    if (!fwa_mixer_part_present(part)) return FWA_OK;
    fwa_tensor dx = part_of(dproj, part);
    FWA_TRY(ctx->backend->ops->sigmoid_gate_backward(ctx->backend->stream, part->up >= 0 ? wide : dx,
                                                     fwa_grad(ctx, part->bias), scalar_rows(ctx, dy),
                                                     scalar_rows(ctx, y), scale));
    if (part->up < 0) return FWA_OK;
    return fwa_linear_backward(ctx, dx, fwa_grad(ctx, part->up), wide, part_of(proj, part), fwa_value(ctx, part->up));
}

// q and k (or, inverse, their gradients) rotated in place, where the rule wants it.
static fwa_status rotate(const fwa_mixer_layer *layer, const fwa_layer_context *ctx, fwa_tensor q, fwa_tensor k,
                         bool inverse) {
    if (!(layer->spec->rule->switches & FWA_SWITCH_ROTARY)) return FWA_OK;
    fwa_stream *stream = ctx->backend->stream;
    const fwa_ops *ops = ctx->backend->ops;
    FWA_TRY(ops->rotary(stream, q, q, ctx->position, FWA_ROTARY_BASE, inverse));
    return ops->rotary(stream, k, k, ctx->position, FWA_ROTARY_BASE, inverse);
}

// The rule's inputs from the projection.
static fwa_status inputs_forward(const fwa_mixer_layer *layer, const fwa_layer_context *ctx,
                                 const fwa_mixer_acts *acts) {
    const fwa_mixer_spec *spec = layer->spec;
    const fwa_feature_options qk = feature_options(layer, spec->qk_norm, spec->phi);
    const fwa_feature_options plain = feature_options(layer, spec->v_norm, FWA_PHI_IDENTITY);
    FWA_TRY(feature_forward(ctx, &layer->q, &qk, acts->q, acts->q_rstd, acts->proj));
    FWA_TRY(feature_forward(ctx, &layer->k, &qk, acts->k, acts->k_rstd, acts->proj));
    FWA_TRY(feature_forward(ctx, &layer->v, &plain, acts->v, acts->v_rstd, acts->proj));
    FWA_TRY(rotate(layer, ctx, acts->q, acts->k, false));
    FWA_TRY(scalar_forward(ctx, &layer->beta, FWA_BETA_SCALE, acts->beta, acts->proj, acts->wide));
    return scalar_forward(ctx, &layer->lambda, FWA_LAMBDA_SCALE, acts->lambda, acts->proj, fwa_tensor_absent());
}

// Their part of dproj from the gradients of the rule's inputs, which it rotates back in place.
static fwa_status inputs_backward(const fwa_mixer_layer *layer, const fwa_layer_context *ctx,
                                  const fwa_mixer_acts *acts, const fwa_mixer_scratch *d) {
    const fwa_mixer_spec *spec = layer->spec;
    const fwa_feature_options qk = feature_options(layer, spec->qk_norm, spec->phi);
    const fwa_feature_options plain = feature_options(layer, spec->v_norm, FWA_PHI_IDENTITY);
    FWA_TRY(rotate(layer, ctx, d->dq, d->dk, true));
    FWA_TRY(feature_backward(ctx, &layer->q, &qk, d->dproj, d->dq, acts->q_rstd, acts->proj));
    FWA_TRY(feature_backward(ctx, &layer->k, &qk, d->dproj, d->dk, acts->k_rstd, acts->proj));
    FWA_TRY(feature_backward(ctx, &layer->v, &plain, d->dproj, d->dv, acts->v_rstd, acts->proj));
    FWA_TRY(scalar_backward(ctx, &layer->beta, FWA_BETA_SCALE, d->dproj, d->dbeta, acts->beta, acts->proj, acts->wide));
    return scalar_backward(ctx, &layer->lambda, FWA_LAMBDA_SCALE, d->dproj, d->dlambda, acts->lambda, acts->proj,
                           fwa_tensor_absent());
}

// d_{q,k,v,beta,lambda} given d_o.
static fwa_status rule_backward(const fwa_mixer_layer *layer, const fwa_layer_context *ctx, const fwa_mixer_acts *acts,
                                const fwa_mixer_scratch *d) {
    const fwa_mixer_call call = fwa_mixer_layer_call(layer, ctx, true, acts, d->bytes);
    fwa_mixer_grads grads;
    memset(&grads, 0, sizeof grads);
    grads.d_o = d->d_o;
    grads.dq = d->dq;
    grads.dk = d->dk;
    grads.dv = d->dv;
    grads.dbeta = d->dbeta;
    grads.dlambda = d->dlambda;
    return layer->kernels->backward(ctx->backend, ctx->backend->stream, &call, &grads);
}

// out [R,D] = Wo y + x, with y the normed and gated o, or o itself where the layer has no norm.
static fwa_status output_forward(const fwa_mixer_layer *layer, const fwa_layer_context *ctx, const fwa_mixer_acts *acts,
                                 fwa_tensor out, fwa_tensor x) {
    int64_t R = ctx->B * ctx->T, H = layer->H, K = layer->K;
    fwa_tensor w = fwa_value(ctx, layer->out);
    if (layer->norm < 0) return fwa_linear_residual(ctx, out, fwa_tensor_as_2d(acts->o, R, H * K), w, x);
    FWA_TRY(ctx->backend->ops->head_norm_gate_forward(ctx->backend->stream, acts->y, acts->o_rstd,
                                                      fwa_tensor_as_3d(acts->o, R, H, K), fwa_value(ctx, layer->norm),
                                                      part_of(acts->proj, &layer->gate), FWA_NORM_EPS));
    return fwa_linear_residual(ctx, out, acts->y, w, x);
}

// d_o and the gate's columns of dproj given dout [R,D]; adds to the gradients of Wo and of the norm.
static fwa_status output_backward(const fwa_mixer_layer *layer, const fwa_layer_context *ctx,
                                  const fwa_mixer_acts *acts, const fwa_mixer_scratch *d, fwa_tensor dout) {
    int64_t R = ctx->B * ctx->T, H = layer->H, K = layer->K;
    fwa_tensor w = fwa_value(ctx, layer->out), dw = fwa_grad(ctx, layer->out);
    if (layer->norm < 0)
        return fwa_linear_backward(ctx, fwa_tensor_as_2d(d->d_o, R, H * K), dw, dout,
                                   fwa_tensor_as_2d(acts->o, R, H * K), w);
    FWA_TRY(fwa_linear_backward(ctx, d->dy, dw, dout, acts->y, w));
    return ctx->backend->ops->head_norm_gate_backward(ctx->backend->stream, fwa_tensor_as_3d(d->d_o, R, H, K),
                                                      fwa_grad(ctx, layer->norm), part_of(d->dproj, &layer->gate),
                                                      d->dy, fwa_tensor_as_3d(acts->o, R, H, K), acts->o_rstd,
                                                      fwa_value(ctx, layer->norm), part_of(acts->proj, &layer->gate));
}

fwa_status fwa_mixer_layer_forward(const fwa_mixer_layer *layer, const fwa_layer_context *ctx, bool train,
                                   const fwa_mixer_acts *acts, fwa_tensor scratch, fwa_tensor out, fwa_tensor n,
                                   fwa_tensor x) {
    fwa_tensor proj = fwa_tensor_slice(acts->proj, 1, 0, layer->P);
    const fwa_mixer_call call = fwa_mixer_layer_call(layer, ctx, train, acts, scratch);
    FWA_TRY(fwa_linear_forward(ctx, proj, n, packed(layer, ctx, FWA_PARAM_VALUE)));
    FWA_TRY(inputs_forward(layer, ctx, acts));
    FWA_TRY(layer->kernels->forward(ctx->backend, ctx->backend->stream, &call));
    return output_forward(layer, ctx, acts, out, x);
}

fwa_status fwa_mixer_layer_backward(const fwa_mixer_layer *layer, const fwa_layer_context *ctx,
                                    const fwa_mixer_acts *acts, const fwa_mixer_scratch *scratch, fwa_tensor dn,
                                    fwa_tensor dout, fwa_tensor n) {
    fwa_tensor dproj = fwa_tensor_slice(scratch->dproj, 1, 0, layer->P);
    FWA_TRY(output_backward(layer, ctx, acts, scratch, dout));
    FWA_TRY(rule_backward(layer, ctx, acts, scratch));
    FWA_TRY(inputs_backward(layer, ctx, acts, scratch));
    return fwa_linear_backward(ctx, dn, packed(layer, ctx, FWA_PARAM_GRAD), dproj, n,
                               packed(layer, ctx, FWA_PARAM_VALUE));
}
