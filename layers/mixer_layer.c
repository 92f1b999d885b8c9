// The passes of a mixer layer.
#include "layers/mixer_layer.h"

#include <string.h>

#include "layers/linear.h"
#include "layers/mixer_memory.h"
#include "layers/mixer_passes.h"
#include "layers/mixer_ring.h"

fwa_mixer_call fwa_mixer_layer_call(const fwa_mixer_layer *layer, const fwa_layer_context *ctx, bool train,
                                    const fwa_mixer_acts *acts, fwa_tensor scratch) {
    fwa_mixer_call call;
    memset(&call, 0, sizeof call);
    call.options = layer->spec->options;
    call.shape = layer->shape;
    call.shape.B = ctx->B;
    call.shape.T = ctx->T;
    call.form = FWA_FORM_CHUNK;
    call.save = train;
    call.q = fwa_mixer_input_of(layer, ctx, acts->q, acts->proj, &layer->q, layer->shape.K);
    call.k = fwa_mixer_input_of(layer, ctx, acts->k, acts->proj, &layer->k, layer->shape.K);
    call.v = fwa_mixer_input_of(layer, ctx, acts->v, acts->proj, &layer->v, layer->shape.V);
    call.beta = acts->beta;
    call.lambda = acts->lambda;
    call.log_decay = acts->log_decay;
    call.reset = ctx->reset;
    call.o = acts->o;
    call.saved = acts->saved;
    call.scratch = scratch;
    return call;
}

static fwa_tensor packed(const fwa_mixer_layer *layer, const fwa_layer_context *ctx, fwa_param_class which) {
    return fwa_params_packed(ctx->params, layer->q.weight, layer->parts, which);
}

static fwa_status rule_forward(const fwa_mixer_layer *layer, const fwa_layer_context *ctx, bool train,
                               const fwa_mixer_acts *acts, fwa_tensor scratch) {
    if (ctx->memory) return fwa_mixer_memory_forward(layer, ctx, acts, scratch);
    if (fwa_sequence_cut(ctx)) return fwa_mixer_ring_forward(layer, ctx, train, acts, scratch);
    const fwa_mixer_call call = fwa_mixer_layer_call(layer, ctx, train, acts, scratch);
    return layer->kernels->forward(ctx->backend, ctx->backend->stream, &call);
}

// d_{q,k,v,beta,lambda,log_decay} given d_o.
static fwa_status rule_backward(const fwa_mixer_layer *layer, const fwa_layer_context *ctx, const fwa_mixer_acts *acts,
                                const fwa_mixer_scratch *d) {
    if (fwa_sequence_cut(ctx)) return fwa_mixer_ring_backward(layer, ctx, acts, d);
    const fwa_mixer_call call = fwa_mixer_layer_call(layer, ctx, true, acts, d->bytes);
    const fwa_mixer_grads grads = fwa_mixer_layer_grads(layer, ctx, d);
    return layer->kernels->backward(ctx->backend, ctx->backend->stream, &call, &grads);
}

// The columns behind those of the parts, which no input of the rule comes from.
static fwa_status clear_padding(const fwa_mixer_layer *layer, const fwa_layer_context *ctx, fwa_tensor dproj) {
    fwa_backend *backend = ctx->backend;
    const size_t size = fwa_dtype_size(dproj.dtype);
    const fwa_tensor padding = fwa_tensor_slice(dproj, 1, layer->used, layer->P - layer->used);
    return backend->fill_rows(backend, backend->stream, padding.data, 0, (size_t)padding.shape[1] * size,
                              (size_t)dproj.stride[0] * size, (size_t)dproj.shape[0]);
}

fwa_status fwa_mixer_layer_forward(const fwa_mixer_layer *layer, const fwa_layer_context *ctx, bool train,
                                   const fwa_mixer_acts *acts, fwa_tensor scratch, fwa_tensor out, fwa_tensor n,
                                   fwa_tensor x) {
    const fwa_backend *backend = ctx->backend;
    FWA_TRY_RANGE(backend, "projections forward",
                  fwa_linear_forward(ctx, acts->proj, n, packed(layer, ctx, FWA_PARAM_VALUE)));
    if (fwa_sequence_cut(ctx)) FWA_TRY(fwa_mixer_ring_conv(layer, ctx, acts, scratch));
    FWA_TRY_RANGE(backend, "features forward", fwa_mixer_inputs_forward(layer, ctx, acts));
    if (ctx->memory) FWA_TRY(fwa_mixer_memory_keep_conv(layer, ctx, acts, scratch));
    FWA_TRY_RANGE(backend, FWA_RANGE_RULE_FORWARD, rule_forward(layer, ctx, train, acts, scratch));
    FWA_TRY_RANGE(backend, "output forward", fwa_mixer_output_forward(layer, ctx, acts, out, x));
    return FWA_OK;
}

fwa_status fwa_mixer_layer_backward(const fwa_mixer_layer *layer, const fwa_layer_context *ctx,
                                    const fwa_mixer_acts *acts, const fwa_mixer_scratch *scratch, fwa_tensor dn,
                                    fwa_tensor dout, fwa_tensor n) {
    const fwa_backend *backend = ctx->backend;
    FWA_TRY_RANGE(backend, "output backward", fwa_mixer_output_backward(layer, ctx, acts, scratch, dout));
    FWA_TRY_RANGE(backend, FWA_RANGE_RULE_BACKWARD, rule_backward(layer, ctx, acts, scratch));
    FWA_TRY_RANGE(backend, "features backward", fwa_mixer_inputs_backward(layer, ctx, acts, scratch));
    if (fwa_sequence_cut(ctx)) FWA_TRY(fwa_mixer_ring_conv_backward(layer, ctx, scratch));
    FWA_TRY(clear_padding(layer, ctx, scratch->dproj));
    FWA_TRY_RANGE(backend, "projections backward",
                  fwa_linear_backward(ctx, dn, packed(layer, ctx, FWA_PARAM_GRAD), scratch->dproj, n,
                                      packed(layer, ctx, FWA_PARAM_VALUE)));
    return FWA_OK;
}

fwa_status fwa_mixer_layer_gates(const fwa_mixer_layer *layer, const fwa_layer_context *ctx, const fwa_mixer_acts *acts,
                                 fwa_tensor scratch, fwa_gate_sums *sums) {
    if (!fwa_mixer_layer_has_gates(layer)) return FWA_OK;
    if (fwa_sequence_cut(ctx)) return fwa_mixer_ring_gates(layer, ctx, acts, scratch, sums);
    const fwa_mixer_call call = fwa_mixer_layer_call(layer, ctx, true, acts, scratch);
    return layer->kernels->gates(ctx->backend, ctx->backend->stream, &call, sums);
}
