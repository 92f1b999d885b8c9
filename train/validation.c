// Loss over sequences that the ranks share out.
#include "train/validation.h"

static fwa_status run(const fwa_validation *v, int64_t total, double sums[2]) {
    const fwa_world *world = v->world;
    fwa_backend *backend = v->acts->ctx.backend;
    const int64_t m = v->acts->ctx.B;
    fwa_step_state host;
    FWA_TRY(backend->fill(backend, backend->stream, v->state, 0, sizeof *v->state));
    for (int64_t first = 0; first < total; first += m * world->dp_size) {
        const int64_t mine = first + m * world->dp_rank;
        FWA_TRY(v->load(v->user, mine, fwa_max(0, fwa_min(m, total - mine))));
        FWA_TRY(fwa_model_evaluate(v->acts, v->state));
    }
    FWA_TRY(backend->download(backend, backend->stream, &host, v->state, sizeof host));
    FWA_TRY(backend->stream_synchronize(backend, backend->stream));
    sums[0] = host.loss_sum;
    sums[1] = host.valid;
    return FWA_OK;
}

fwa_status fwa_validate(const fwa_validation *v, int64_t total, double *loss, double *valid) {
    fwa_comm *all = v->world->all;
    double sums[2] = {0.0, 0.0};
    FWA_TRY(fwa_world_agree(v->world, run(v, total, sums)));
    FWA_TRY(all->all_reduce(all, NULL, sums, 2, FWA_F64, FWA_REDUCE_SUM));
    *loss = sums[0];
    *valid = sums[1];
    return FWA_OK;
}
