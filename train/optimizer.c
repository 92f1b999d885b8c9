// AdamW over the parameter table.
#include "train/optimizer.h"

// One sum over all of their memory: what lies between gradients is zero.
fwa_status fwa_optimizer_norm(const fwa_model *model, fwa_backend *backend, fwa_step_state *state) {
    fwa_arena *grads = model->params.arena[FWA_PARAM_GRAD];
    int64_t count = (int64_t)(fwa_arena_bytes(grads) / fwa_dtype_size(backend->master));
    return backend->ops->square_accumulate(backend->stream, state,
                                           fwa_tensor_1d(fwa_arena_data(grads), backend->master, count));
}

fwa_status fwa_optimizer_update(const fwa_model *model, fwa_backend *backend, const fwa_config *config,
                                const fwa_step_state *state) {
    bool shared = !model->params.arena[FWA_PARAM_VALUE];
    for (int i = 0; i < model->params.count; i++) {
        const fwa_param *p = &model->params.at[i];
        if (p->rows == 0) continue;
        bool scaled = p->width_scaled && config->optimizer.width_scale;
        fwa_adamw_options options = {.lr_scale = scaled ? FWA_BASE_WIDTH / (double)model->spec.D : 1.0,
                                     .beta1 = config->optimizer.beta1,
                                     .beta2 = config->optimizer.beta2,
                                     .eps = config->optimizer.eps,
                                     .decay = p->decay ? config->optimizer.weight_decay : 0.0};
        fwa_tensor value = shared ? fwa_tensor_absent() : fwa_param_rows(p, FWA_PARAM_VALUE);
        FWA_TRY(backend->ops->adamw(backend->stream, fwa_param_rows(p, FWA_PARAM_MASTER), value,
                                    fwa_param_rows(p, FWA_PARAM_GRAD), fwa_param_rows(p, FWA_PARAM_M),
                                    fwa_param_rows(p, FWA_PARAM_V), &options, state));
    }
    return FWA_OK;
}
