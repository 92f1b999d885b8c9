// AdamW over the parameter table.
#include "train/optimizer.h"

#include <stdlib.h>

// Every parameter of which rows are held here is a part.
static fwa_status describe(const fwa_model *model, const fwa_backend *backend, const fwa_config *config,
                           fwa_adamw_part *parts, int *count, int64_t *elements) {
    const bool shared = !model->params.arena[FWA_PARAM_VALUE];
    for (int i = 0; i < model->params.count; i++) {
        const fwa_param *p = &model->params.at[i];
        if (p->rows == 0) continue;
        fwa_adamw_part *part = &parts[*count];
        const fwa_tensor value = shared ? fwa_tensor_absent() : fwa_param_rows(p, FWA_PARAM_VALUE);
        FWA_TRY(fwa_adamw_part_make(part, *count > 0 ? part - 1 : NULL, backend->compute,
                                    fwa_param_rows(p, FWA_PARAM_MASTER), value, fwa_param_rows(p, FWA_PARAM_GRAD),
                                    fwa_param_rows(p, FWA_PARAM_M), fwa_param_rows(p, FWA_PARAM_V)));
        if (p->width_scaled && config->optimizer.width_scale) part->lr_scale = FWA_BASE_WIDTH / (double)model->spec.D;
        part->decay = p->decay ? 1.0 : 0.0;
        *elements += part->count;
        *count += 1;
    }
    return FWA_OK;
}

static fwa_status upload(fwa_optimizer *o, const fwa_adamw_part *parts, int count) {
    const int64_t bytes = count * (int64_t)sizeof *parts;
    void *memory = NULL;
    FWA_TRY(o->backend->alloc(o->backend, &memory, (size_t)bytes));
    o->parts = fwa_tensor_1d(memory, FWA_U8, bytes);
    return o->backend->upload(o->backend, o->backend->stream, memory, parts, (size_t)bytes);
}

fwa_status fwa_optimizer_create(fwa_optimizer **out, const fwa_model *model, fwa_backend *backend,
                                const fwa_config *config) {
    fwa_status status = FWA_OK;
    int count = 0;
    fwa_optimizer *o = calloc(1, sizeof *o);
    fwa_adamw_part *parts = calloc((size_t)model->params.count, sizeof *parts);
    FWA_CHECK_GOTO(o && parts, FWA_MEMORY, fail, "optimizer: out of memory for %d parameters", model->params.count);
    o->backend = backend;
    o->model = model;
    o->options = (fwa_adamw_options){.lr_scale = 1.0,
                                     .beta1 = config->optimizer.beta1,
                                     .beta2 = config->optimizer.beta2,
                                     .eps = config->optimizer.eps,
                                     .decay = config->optimizer.weight_decay};
    FWA_TRY_GOTO(describe(model, backend, config, parts, &count, &o->elements), fail);
    FWA_TRY_GOTO(upload(o, parts, count), fail);
    free(parts);
    *out = o;
    return FWA_OK;
fail:
    free(parts);
    fwa_optimizer_destroy(o);
    return status;
}

void fwa_optimizer_destroy(fwa_optimizer *o) {
    if (!o) return;
    if (o->parts.data) o->backend->free(o->backend, o->parts.data);
    free(o);
}

// One sum over all of their memory: what lies between gradients is zero.
fwa_status fwa_optimizer_norm(const fwa_optimizer *o, fwa_step_state *state) {
    fwa_arena *grads = o->model->params.arena[FWA_PARAM_GRAD];
    int64_t count = (int64_t)(fwa_arena_bytes(grads) / fwa_dtype_size(o->backend->master));
    return o->backend->ops->square_accumulate(o->backend->stream, state,
                                              fwa_tensor_1d(fwa_arena_data(grads), o->backend->master, count));
}

fwa_status fwa_optimizer_update(const fwa_optimizer *o, const fwa_step_state *state) {
    return o->backend->ops->adamw_parts(o->backend->stream, o->parts, o->elements, &o->options, state);
}
