// From the packed projection to the inputs of the rule, and back.
#include "layers/linear.h"
#include "layers/mixer_passes.h"
#include "layers/mixer_ring.h"

// Value or gradient of a parameter, absent for index -1.
static fwa_tensor optional_value(const fwa_layer_context *ctx, int index) {
    return index >= 0 ? fwa_value(ctx, index) : fwa_tensor_absent();
}
static fwa_tensor optional_grad(const fwa_layer_context *ctx, int index) {
    return index >= 0 ? fwa_grad(ctx, index) : fwa_tensor_absent();
}

static fwa_feature_options feature_options(const fwa_mixer_layer *layer, fwa_norm norm, fwa_phi phi) {
    return (fwa_feature_options){.width = layer->spec->conv,
                                 .silu = (layer->spec->rule->switches & FWA_SWITCH_CONV) != 0,
                                 .norm = norm,
                                 .phi = phi,
                                 .eps = FWA_NORM_EPS};
}

// The part's columns of the rows in front of a piece, or of their gradient.
static fwa_tensor part_halo(const fwa_mixer_part *part, fwa_tensor conv) {
    return fwa_tensor_present(conv) ? fwa_tensor_slice(conv, 2, part->at, part->columns) : conv;
}

// y [B,T,H,K] = features of the part; q, k, v.
static fwa_status feature_forward(const fwa_layer_context *ctx, const fwa_mixer_part *part,
                                  const fwa_feature_options *options, fwa_tensor y, fwa_tensor rstd,
                                  const fwa_mixer_acts *acts) {
    fwa_tensor proj = acts->proj, halo = part_halo(part, acts->cut.conv);
    fwa_tensor x = fwa_tensor_as_3d(fwa_mixer_part_of(proj, part), ctx->B, ctx->T, part->columns);
    return ctx->backend->ops->features_forward(ctx->backend->stream, y, rstd, x, optional_value(ctx, part->conv), halo,
                                               ctx->reset, options);
}

// The part's columns of dproj = gradient given dy; adds to the convolution's.
static fwa_status feature_backward(const fwa_mixer_layer *layer, const fwa_layer_context *ctx,
                                   const fwa_mixer_part *part, const fwa_feature_options *options,
                                   const fwa_mixer_scratch *d, fwa_tensor dy, fwa_tensor rstd,
                                   const fwa_mixer_acts *acts) {
    fwa_tensor halo = part_halo(part, acts->cut.conv), dhalo = fwa_tensor_absent();
    if (fwa_tensor_present(halo)) dhalo = part_halo(part, fwa_mixer_ring_dconv(layer, ctx, d));
    fwa_tensor x = fwa_tensor_as_3d(fwa_mixer_part_of(acts->proj, part), ctx->B, ctx->T, part->columns);
    fwa_tensor dx = fwa_tensor_as_3d(fwa_mixer_part_of(d->dproj, part), ctx->B, ctx->T, part->columns);
    return ctx->backend->ops->features_backward(ctx->backend->stream, dx, optional_grad(ctx, part->conv), dhalo, dy,
                                                rstd, x, optional_value(ctx, part->conv), halo, ctx->reset, options);
}

// Rows [R,width] of the scalars of heads, or of their gradients.
static fwa_tensor scalar_rows(const fwa_layer_context *ctx, fwa_tensor y) {
    int64_t R = ctx->B * ctx->T;
    return fwa_tensor_as_2d(y, R, fwa_tensor_count(y) / R);
}

// y = scale sigmoid(part + bias), or through the second projection: part Wup^T, kept in `wide`; scale sigmoid(bias)
// where the part has no columns. beta, lambda. Nothing where the layer has none.
static fwa_status scalar_forward(const fwa_layer_context *ctx, const fwa_mixer_part *part, double scale, fwa_tensor y,
                                 fwa_tensor proj, fwa_tensor wide) {
    if (!fwa_mixer_scalar_present(part)) return FWA_OK;
    fwa_tensor x = fwa_mixer_part_of(proj, part);
    if (part->up >= 0) {
        FWA_TRY(fwa_linear_forward(ctx, wide, x, fwa_value(ctx, part->up)));
        x = wide;
    }
    return ctx->backend->ops->sigmoid_gate_forward(ctx->backend->stream, scalar_rows(ctx, y), x,
                                                   fwa_value(ctx, part->bias), scale);
}

// The part's columns of dproj = gradient given dy; adds to those of the bias and of the second projection. A fixed
// value has no gradient, so that the optimizer leaves it as it is.
static fwa_status scalar_backward(const fwa_layer_context *ctx, const fwa_mixer_part *part, fwa_gate_source source,
                                  double scale, fwa_tensor dproj, fwa_tensor dy, fwa_tensor y, fwa_tensor proj,
                                  fwa_tensor wide) {
    if (!fwa_mixer_scalar_present(part) || source == FWA_GATE_FIXED) return FWA_OK;
    fwa_tensor dx = fwa_mixer_part_of(dproj, part);
    FWA_TRY(ctx->backend->ops->sigmoid_gate_backward(ctx->backend->stream, part->up >= 0 ? wide : dx,
                                                     fwa_grad(ctx, part->bias), scalar_rows(ctx, dy),
                                                     scalar_rows(ctx, y), scale));
    if (part->up < 0) return FWA_OK;
    return fwa_linear_backward(ctx, dx, fwa_grad(ctx, part->up), wide, fwa_mixer_part_of(proj, part),
                               fwa_value(ctx, part->up));
}

// log_decay [B,T,H]: a constant, or -exp(A_log) delta with delta = softplus(part + bias). Nothing where the rule takes
// none.
static fwa_status decay_forward(const fwa_mixer_layer *layer, const fwa_layer_context *ctx,
                                const fwa_mixer_acts *acts) {
    const fwa_ops *ops = ctx->backend->ops;
    if (!(layer->spec->rule->inputs & FWA_INPUT_LOG_DECAY)) return FWA_OK;
    fwa_tensor log_decay = scalar_rows(ctx, acts->log_decay);
    if (!fwa_mixer_part_present(&layer->delta))
        return ops->decay_fill(ctx->backend->stream, log_decay, layer->spec->decay, layer->decay_factor);
    return ops->decay_gate_forward(ctx->backend->stream, log_decay, scalar_rows(ctx, acts->delta),
                                   fwa_mixer_part_of(acts->proj, &layer->delta), fwa_value(ctx, layer->A_log),
                                   fwa_value(ctx, layer->delta.bias));
}

// The delta columns of dproj; adds to the gradients of A_log and of the bias.
static fwa_status decay_backward(const fwa_mixer_layer *layer, const fwa_layer_context *ctx, const fwa_mixer_acts *acts,
                                 const fwa_mixer_scratch *d) {
    if (!fwa_mixer_part_present(&layer->delta)) return FWA_OK;
    fwa_tensor ddelta = layer->skip >= 0 ? scalar_rows(ctx, d->ddelta) : fwa_tensor_absent();
    return ctx->backend->ops->decay_gate_backward(ctx->backend->stream, fwa_mixer_part_of(d->dproj, &layer->delta),
                                                  fwa_grad(ctx, layer->A_log), fwa_grad(ctx, layer->delta.bias),
                                                  scalar_rows(ctx, d->dlog_decay), ddelta,
                                                  scalar_rows(ctx, acts->delta), fwa_value(ctx, layer->A_log));
}

// Values or their gradients as [R,H,V].
static fwa_tensor value_rows(const fwa_mixer_layer *layer, const fwa_layer_context *ctx, fwa_tensor v) {
    return fwa_tensor_as_3d(v, ctx->B * ctx->T, layer->shape.H, layer->shape.V);
}

// v = features of the part; in a state-space block these are x, and v = delta x.
static fwa_status value_forward(const fwa_mixer_layer *layer, const fwa_layer_context *ctx,
                                const fwa_mixer_acts *acts) {
    const fwa_feature_options options = feature_options(layer, layer->spec->v_norm, FWA_PHI_IDENTITY);
    fwa_tensor features = layer->skip >= 0 ? acts->x : acts->v;
    FWA_TRY(feature_forward(ctx, &layer->v, &options, features, acts->v_rstd, acts));
    if (layer->skip < 0) return FWA_OK;
    return ctx->backend->ops->value_scale_forward(ctx->backend->stream, value_rows(layer, ctx, acts->v),
                                                  value_rows(layer, ctx, acts->x), scalar_rows(ctx, acts->delta));
}

// The value columns of dproj given dv, and ddelta.
static fwa_status value_backward(const fwa_mixer_layer *layer, const fwa_layer_context *ctx, const fwa_mixer_acts *acts,
                                 const fwa_mixer_scratch *d) {
    const fwa_feature_options options = feature_options(layer, layer->spec->v_norm, FWA_PHI_IDENTITY);
    if (layer->skip >= 0)
        FWA_TRY(ctx->backend->ops->value_scale_backward(
            ctx->backend->stream, value_rows(layer, ctx, d->dx), scalar_rows(ctx, d->ddelta),
            value_rows(layer, ctx, d->dv), value_rows(layer, ctx, acts->x), scalar_rows(ctx, acts->delta)));
    return feature_backward(layer, ctx, &layer->v, &options, d, layer->skip >= 0 ? d->dx : d->dv, acts->v_rstd, acts);
}

// Whether features are the projection itself.
static bool plain(const fwa_feature_options *options) {
    return options->width == 0 && !options->silu && options->norm == FWA_NORM_NONE && options->phi == FWA_PHI_IDENTITY;
}

bool fwa_mixer_in_place(const fwa_mixer_layer *layer, const fwa_layer_context *ctx) {
    const fwa_feature_options qk = feature_options(layer, layer->spec->qk_norm, layer->spec->phi);
    const fwa_feature_options v = feature_options(layer, layer->spec->v_norm, FWA_PHI_IDENTITY);
    const bool whole = !fwa_sequence_cut(ctx) || layer->spec->rule->state == FWA_STATE_CACHE;
    return plain(&qk) && plain(&v) && layer->skip < 0 && whole && !ctx->memory;
}

// In place: q and k of proj, which stand side by side, or their gradients, turned back; untouched without rotary.
static fwa_status rotate_both(const fwa_mixer_layer *layer, const fwa_layer_context *ctx, fwa_tensor proj,
                              bool inverse) {
    const int64_t K = layer->shape.K, columns = layer->q.columns + layer->k.columns;
    if (!layer->spec->rotary) return FWA_OK;
    const fwa_tensor both =
        fwa_tensor_as_4d(fwa_tensor_slice(proj, 1, layer->q.at, columns), ctx->B, ctx->T, columns / K, K);
    return ctx->backend->ops->rotary(ctx->backend->stream, both, both, ctx->position, FWA_ROTARY_BASE, inverse);
}

// The part's columns as heads of y's shape [B,T,H,K].
static fwa_tensor part_heads(const fwa_mixer_part *part, fwa_tensor proj, fwa_tensor y) {
    return fwa_tensor_as_4d(fwa_mixer_part_of(proj, part), y.shape[0], y.shape[1], y.shape[2], y.shape[3]);
}

// y = features of the part, rotated where the layer wants it; q, k. Plain features are rotated on their way out of the
// projection.
static fwa_status rotated_forward(const fwa_mixer_layer *layer, const fwa_layer_context *ctx,
                                  const fwa_mixer_part *part, fwa_tensor y, fwa_tensor rstd,
                                  const fwa_mixer_acts *acts) {
    const fwa_feature_options options = feature_options(layer, layer->spec->qk_norm, layer->spec->phi);
    const bool rotary = layer->spec->rotary;
    fwa_tensor x = y;
    if (rotary && plain(&options))
        x = part_heads(part, acts->proj, y);
    else
        FWA_TRY(feature_forward(ctx, part, &options, y, rstd, acts));
    if (!rotary) return FWA_OK;
    return ctx->backend->ops->rotary(ctx->backend->stream, y, x, ctx->position, FWA_ROTARY_BASE, false);
}

// The part's columns of dproj given dy, which is turned back in place, or on its way where the features are plain.
static fwa_status rotated_backward(const fwa_mixer_layer *layer, const fwa_layer_context *ctx,
                                   const fwa_mixer_part *part, const fwa_mixer_scratch *d, fwa_tensor dy,
                                   fwa_tensor rstd, const fwa_mixer_acts *acts) {
    const fwa_feature_options options = feature_options(layer, layer->spec->qk_norm, layer->spec->phi);
    const bool rotary = layer->spec->rotary, direct = rotary && plain(&options);
    fwa_tensor dx = direct ? part_heads(part, d->dproj, dy) : dy;
    if (rotary) FWA_TRY(ctx->backend->ops->rotary(ctx->backend->stream, dx, dy, ctx->position, FWA_ROTARY_BASE, true));
    return direct ? FWA_OK : feature_backward(layer, ctx, part, &options, d, dy, rstd, acts);
}

// q, k and v; in a state-space block these need delta.
static fwa_status vectors_forward(const fwa_mixer_layer *layer, const fwa_layer_context *ctx,
                                  const fwa_mixer_acts *acts) {
    if (fwa_mixer_in_place(layer, ctx)) return rotate_both(layer, ctx, acts->proj, false);
    FWA_TRY(rotated_forward(layer, ctx, &layer->q, acts->q, acts->q_rstd, acts));
    FWA_TRY(rotated_forward(layer, ctx, &layer->k, acts->k, acts->k_rstd, acts));
    return value_forward(layer, ctx, acts);
}

static fwa_status vectors_backward(const fwa_mixer_layer *layer, const fwa_layer_context *ctx,
                                   const fwa_mixer_acts *acts, const fwa_mixer_scratch *d) {
    if (fwa_mixer_in_place(layer, ctx)) return rotate_both(layer, ctx, d->dproj, true);
    FWA_TRY(rotated_backward(layer, ctx, &layer->q, d, d->dq, acts->q_rstd, acts));
    FWA_TRY(rotated_backward(layer, ctx, &layer->k, d, d->dk, acts->k_rstd, acts));
    return value_backward(layer, ctx, acts, d);
}

fwa_status fwa_mixer_inputs_forward(const fwa_mixer_layer *layer, const fwa_layer_context *ctx,
                                    const fwa_mixer_acts *acts) {
    const fwa_mixer_spec *spec = layer->spec;
    FWA_TRY(scalar_forward(ctx, &layer->beta, spec->beta_range, acts->beta, acts->proj, acts->wide));
    FWA_TRY(scalar_forward(ctx, &layer->lambda, FWA_LAMBDA_SCALE, acts->lambda, acts->proj, fwa_tensor_absent()));
    FWA_TRY(decay_forward(layer, ctx, acts));
    return vectors_forward(layer, ctx, acts);
}

fwa_status fwa_mixer_inputs_backward(const fwa_mixer_layer *layer, const fwa_layer_context *ctx,
                                     const fwa_mixer_acts *acts, const fwa_mixer_scratch *d) {
    const fwa_mixer_spec *spec = layer->spec;
    FWA_TRY(vectors_backward(layer, ctx, acts, d));
    FWA_TRY(scalar_backward(ctx, &layer->beta, spec->beta, spec->beta_range, d->dproj, d->dbeta, acts->beta, acts->proj,
                            acts->wide));
    FWA_TRY(scalar_backward(ctx, &layer->lambda, spec->lambda, FWA_LAMBDA_SCALE, d->dproj, d->dlambda, acts->lambda,
                            acts->proj, fwa_tensor_absent()));
    return decay_backward(layer, ctx, acts, d);
}
