// Parameters from a checkpoint to a model. Tensors of a backend with its own memory pass through the host.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "train/weights.h"

// Host views of masters and, with three parts, moments: the memory itself on the CPU, a copy elsewhere. Of the rows
// that this rank updates.
typedef struct weights_view {
    fwa_backend *backend; // borrowed
    int count, parts;
    fwa_named_tensor *named[FWA_PART_COUNT]; // [count]
} weights_view;

fwa_param_class fwa_weights_class(fwa_checkpoint_part part) {
    static const fwa_param_class classes[FWA_PART_COUNT] = {FWA_PARAM_MASTER, FWA_PARAM_M, FWA_PARAM_V};
    return classes[part];
}

static fwa_status view(weights_view *weights, const fwa_model *model, fwa_backend *backend, int parts) {
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
            *named = fwa_param_named(p, fwa_weights_class((fwa_checkpoint_part)part));
            if (backend->kind == FWA_BACKEND_CPU) continue;
            named->tensor.data =
                calloc(1, fwa_tensor_bytes(fwa_param_rows(p, fwa_weights_class((fwa_checkpoint_part)part))) + 1);
            FWA_CHECK(named->tensor.data, FWA_MEMORY, "parameter views: no host memory for %s", p->name);
        }
    }
    return FWA_OK;
}

// Views -> device.
static fwa_status store(const weights_view *weights, const fwa_model *model) {
    fwa_backend *backend = weights->backend;
    if (backend->kind == FWA_BACKEND_CPU) return FWA_OK;
    for (int part = 0; part < weights->parts; part++)
        for (int i = 0; i < weights->count; i++) {
            fwa_tensor device = fwa_param_rows(&model->params.at[i], fwa_weights_class((fwa_checkpoint_part)part));
            const void *host = weights->named[part][i].tensor.data;
            FWA_TRY(backend->upload(backend, backend->stream, device.data, host, fwa_tensor_bytes(device)));
        }
    return backend->stream_synchronize(backend, backend->stream);
}

static void release(weights_view *weights) {
    for (int part = 0; part < FWA_PART_COUNT; part++) {
        if (weights->named[part] && weights->backend->kind != FWA_BACKEND_CPU)
            for (int i = 0; i < weights->count; i++) free(weights->named[part][i].tensor.data);
        free(weights->named[part]);
    }
    memset(weights, 0, sizeof *weights);
}

static fwa_status read_parts(fwa_checkpoint *checkpoint, weights_view *weights) {
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
    weights_view weights;
    for (int i = 0; i < fwa_checkpoint_count(checkpoint); i++)
        FWA_CHECK(model_has(model, fwa_checkpoint_name(checkpoint, i)), FWA_CONFIG,
                  "%s: holds parameter '%s', which this model does not have; is it the checkpoint of another model?",
                  fwa_checkpoint_path(checkpoint), fwa_checkpoint_name(checkpoint, i));
    FWA_TRY_GOTO(view(&weights, model, backend, moments ? FWA_PART_COUNT : 1), done);
    FWA_TRY_GOTO(read_parts(checkpoint, &weights), done);
    FWA_TRY_GOTO(store(&weights, model), done);
    FWA_TRY_GOTO(fwa_params_refresh(&model->params, backend), done);
done:
    release(&weights);
    return status;
}

// FNV-1a over the bits of the values, a word at a time.
static uint64_t hash_rows(uint64_t hash, const fwa_tensor *t) {
    const int64_t rows = t->shape[0], columns = fwa_tensor_count(*t) / rows;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < columns; c++) {
            const int64_t at = r * t->stride[0] + c;
            const float value = t->dtype == FWA_F64 ? (float)((const double *)t->data)[at] : ((float *)t->data)[at];
            uint32_t bits;
            memcpy(&bits, &value, sizeof bits);
            hash = (hash ^ bits) * 0x100000001b3u;
        }
    return hash;
}

static fwa_status hash_parameter(const fwa_param *p, fwa_backend *backend, uint64_t *hash) {
    fwa_named_tensor named = fwa_param_named(p, FWA_PARAM_MASTER);
    const fwa_tensor device = fwa_param_rows(p, FWA_PARAM_MASTER);
    void *copy = NULL;
    fwa_status status = FWA_OK;
    if (backend->kind != FWA_BACKEND_CPU) {
        copy = malloc(fwa_tensor_bytes(device));
        FWA_CHECK(copy, FWA_MEMORY, "fingerprint: no host memory for %s", p->name);
        status = backend->download(backend, backend->stream, copy, device.data, fwa_tensor_bytes(device));
        if (status == FWA_OK) status = backend->stream_synchronize(backend, backend->stream);
        named.tensor.data = copy;
    }
    if (status == FWA_OK) *hash = hash_rows(*hash, &named.tensor);
    free(copy);
    return status;
}

fwa_status fwa_weights_fingerprint(const fwa_model *model, fwa_backend *backend, uint64_t *hash) {
    *hash = 0xcbf29ce484222325u;
    for (int i = 0; i < model->params.count; i++) FWA_TRY(hash_parameter(&model->params.at[i], backend, hash));
    return FWA_OK;
}
