// Parameters between a model's memory and checkpoints. Tensors of a backend with its own memory pass through the host.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "train/weights.h"

static const fwa_param_class class_of_part[FWA_PART_COUNT] = {FWA_PARAM_MASTER, FWA_PARAM_M, FWA_PARAM_V};

fwa_status fwa_weights_view(fwa_weights *weights, const fwa_model *model, fwa_backend *backend, int parts) {
    memset(weights, 0, sizeof *weights);
    weights->count = model->params.count;
    weights->parts = parts;
    weights->backend = backend;
    for (int part = 0; part < parts; part++) {
        weights->named[part] = calloc((size_t)weights->count, sizeof *weights->named[part]);
        FWA_CHECK(weights->named[part], FWA_MEMORY, "parameter views: out of memory");
        for (int i = 0; i < weights->count; i++) {
            const fwa_param *p = &model->params.at[i];
            fwa_named_tensor *named = &weights->named[part][i];
            *named = fwa_param_named(p, class_of_part[part]);
            if (backend->kind == FWA_BACKEND_CPU) continue;
            named->tensor.data = calloc(1, fwa_tensor_bytes(fwa_param_rows(p, class_of_part[part])) + 1);
            FWA_CHECK(named->tensor.data, FWA_MEMORY, "parameter views: no host memory for %s", p->name);
        }
    }
    return FWA_OK;
}

static fwa_status move(fwa_weights *weights, const fwa_model *model, bool to_host) {
    fwa_backend *backend = weights->backend;
    if (backend->kind == FWA_BACKEND_CPU) return FWA_OK;
    for (int part = 0; part < weights->parts; part++)
        for (int i = 0; i < weights->count; i++) {
            fwa_tensor device = fwa_param_rows(&model->params.at[i], class_of_part[part]);
            void *host = weights->named[part][i].tensor.data;
            if (to_host)
                FWA_TRY(backend->download(backend, backend->stream, host, device.data, fwa_tensor_bytes(device)));
            else
                FWA_TRY(backend->upload(backend, backend->stream, device.data, host, fwa_tensor_bytes(device)));
        }
    return backend->stream_synchronize(backend, backend->stream);
}

fwa_status fwa_weights_fetch(fwa_weights *weights, const fwa_model *model) {
    return move(weights, model, true);
}

fwa_status fwa_weights_store(fwa_weights *weights, const fwa_model *model) {
    return move(weights, model, false);
}

static bool finite_row(const fwa_tensor *tensor, int64_t start, int64_t count) {
    const float *f32 = tensor->data;
    const double *f64 = tensor->data;
    bool finite = true;
    for (int64_t i = start; i < start + count; i++) finite &= isfinite(tensor->dtype == FWA_F64 ? f64[i] : f32[i]) != 0;
    return finite;
}

static bool finite_tensor(const fwa_tensor *tensor) {
    int64_t rows = tensor->ndim > 1 ? tensor->shape[0] : 1, count = fwa_tensor_count(*tensor);
    if (count == 0) return true;
    for (int64_t r = 0; r < rows; r++)
        if (!finite_row(tensor, r * tensor->stride[0], count / rows)) return false;
    return true;
}

fwa_status fwa_weights_check(const fwa_weights *weights) {
    for (int part = 0; part < weights->parts; part++)
        for (int i = 0; i < weights->count; i++) {
            const fwa_named_tensor *named = &weights->named[part][i];
            FWA_CHECK(finite_tensor(&named->tensor), FWA_NONFINITE,
                      "%s%s has a value that is not finite; lower optimizer.lr, or resume from the last checkpoint",
                      part == FWA_PART_MASTER ? "parameter " : "a moment of parameter ", named->name);
        }
    return FWA_OK;
}

void fwa_weights_release(fwa_weights *weights) {
    for (int part = 0; part < FWA_PART_COUNT; part++) {
        if (weights->named[part] && weights->backend->kind != FWA_BACKEND_CPU)
            for (int i = 0; i < weights->count; i++) free(weights->named[part][i].tensor.data);
        free(weights->named[part]);
    }
    memset(weights, 0, sizeof *weights);
}

static fwa_status read_parts(fwa_checkpoint *checkpoint, fwa_weights *weights) {
    for (int part = 0; part < weights->parts; part++)
        for (int i = 0; i < weights->count; i++)
            FWA_TRY(fwa_checkpoint_read(checkpoint, (fwa_checkpoint_part)part, &weights->named[part][i]));
    return FWA_OK;
}

static bool model_has(const fwa_model *model, const char *name) {
    for (int i = 0; i < model->params.count; i++)
        if (strcmp(model->params.at[i].name, name) == 0) return true;
    return false;
}

fwa_status fwa_weights_read(fwa_model *model, fwa_backend *backend, fwa_checkpoint *checkpoint, bool moments) {
    fwa_status status = FWA_OK;
    fwa_weights weights;
    for (int i = 0; i < fwa_checkpoint_count(checkpoint); i++)
        FWA_CHECK(model_has(model, fwa_checkpoint_name(checkpoint, i)), FWA_CONFIG,
                  "%s: holds parameter '%s', which this model does not have; is it the checkpoint of another model?",
                  fwa_checkpoint_path(checkpoint), fwa_checkpoint_name(checkpoint, i));
    FWA_TRY_GOTO(fwa_weights_view(&weights, model, backend, moments ? FWA_PART_COUNT : 1), done);
    FWA_TRY_GOTO(read_parts(checkpoint, &weights), done);
    FWA_TRY_GOTO(fwa_weights_store(&weights, model), done);
    FWA_TRY_GOTO(fwa_params_refresh(&model->params, backend), done);
done:
    fwa_weights_release(&weights);
    return status;
}
