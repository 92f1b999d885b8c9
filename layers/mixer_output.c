// From the rule's output to the layer's, and back.
#include "layers/linear.h"
#include "layers/mixer_passes.h"

// o or its gradient as [R,H,V].
static fwa_tensor heads_of(const fwa_mixer_layer *layer, const fwa_layer_context *ctx, fwa_tensor o) {
    return fwa_tensor_as_3d(o, ctx->B * ctx->T, layer->shape.H, layer->shape.V);
}

// What the output projection reads, or its gradient, as rows [R,H*V].
static fwa_tensor flat_of(const fwa_mixer_layer *layer, const fwa_layer_context *ctx, fwa_tensor o) {
    return fwa_tensor_as_2d(o, ctx->B * ctx->T, layer->shape.H * layer->shape.V);
}

// A query multiplied by K^{-1/2} multiplies o, and norm(K^{-1/2} o, eps) = norm(o, K eps).
static double norm_eps(const fwa_mixer_layer *layer) {
    const bool scaled = layer->spec->rule->switches & FWA_SWITCH_QUERY_SCALE;
    return scaled ? FWA_NORM_EPS * (double)layer->shape.K : FWA_NORM_EPS;
}

fwa_status fwa_mixer_output_forward(const fwa_mixer_layer *layer, const fwa_layer_context *ctx,
                                    const fwa_mixer_acts *acts, fwa_tensor out, fwa_tensor x) {
    const fwa_ops *ops = ctx->backend->ops;
    fwa_stream *stream = ctx->backend->stream;
    fwa_tensor w = fwa_value(ctx, layer->out), gate = fwa_mixer_part_of(acts->proj, &layer->gate);
    if (layer->norm < 0) return fwa_linear_residual(ctx, out, flat_of(layer, ctx, acts->o), w, x);
    if (layer->skip >= 0)
        FWA_TRY(ops->skip_gate_norm_forward(stream, acts->y, acts->o_rstd, heads_of(layer, ctx, acts->o),
                                            heads_of(layer, ctx, acts->x), fwa_value(ctx, layer->skip),
                                            fwa_value(ctx, layer->norm), gate, FWA_NORM_EPS));
    else
        FWA_TRY(ops->head_norm_gate_forward(stream, acts->y, acts->o_rstd, heads_of(layer, ctx, acts->o),
                                            fwa_value(ctx, layer->norm), gate, norm_eps(layer)));
    return fwa_linear_residual(ctx, out, acts->y, w, x);
}

fwa_status fwa_mixer_output_backward(const fwa_mixer_layer *layer, const fwa_layer_context *ctx,
                                     const fwa_mixer_acts *acts, const fwa_mixer_scratch *d, fwa_tensor dout) {
    const fwa_ops *ops = ctx->backend->ops;
    fwa_stream *stream = ctx->backend->stream;
    fwa_tensor w = fwa_value(ctx, layer->out), dw = fwa_grad(ctx, layer->out);
    fwa_tensor gate = fwa_mixer_part_of(acts->proj, &layer->gate), dgate = fwa_mixer_part_of(d->dproj, &layer->gate);
    if (layer->norm < 0)
        return fwa_linear_backward(ctx, flat_of(layer, ctx, d->d_o), dw, dout, flat_of(layer, ctx, acts->o), w);
    FWA_TRY(fwa_linear_backward(ctx, d->dy, dw, dout, acts->y, w));
    if (layer->skip >= 0)
        return ops->skip_gate_norm_backward(
            stream, heads_of(layer, ctx, d->d_o), heads_of(layer, ctx, d->dx), fwa_grad(ctx, layer->skip),
            fwa_grad(ctx, layer->norm), dgate, d->dy, heads_of(layer, ctx, acts->o), heads_of(layer, ctx, acts->x),
            fwa_value(ctx, layer->skip), acts->o_rstd, fwa_value(ctx, layer->norm), gate);
    return ops->head_norm_gate_backward(stream, heads_of(layer, ctx, d->d_o), fwa_grad(ctx, layer->norm), dgate, d->dy,
                                        heads_of(layer, ctx, acts->o), acts->o_rstd, fwa_value(ctx, layer->norm), gate);
}
