// Bytes between ranks in a step: counted, and predicted from shapes.
#include "train/traffic.h"

fwa_traffic fwa_traffic_of(const fwa_trainer *t) {
    return (fwa_traffic){t->comm->sent.all_reduce, t->comm->sent.broadcast, t->sp->sent.exchange};
}

// Rows that n ranks send together so that each piece of T rows has the `wanted` rows in front of it: in hop j, n - j
// ranks send what of them lies (j-1) T to j T rows in front.
static int64_t halo_rows(int64_t wanted, int64_t T, int64_t n) {
    int64_t rows = 0;
    for (int64_t j = 1; j < n && wanted > (j - 1) * T; j++) rows += (n - j) * fwa_min(T, wanted - (j - 1) * T);
    return rows;
}

// One layer, one sequence, one way.
static int64_t layer_bytes(const fwa_trainer *t, const fwa_mixer_layer *layer, int64_t T, int64_t n) {
    const fwa_mixer_spec *spec = layer->spec;
    const fwa_mixer_options *o = &spec->options;
    const fwa_mixer_shape *s = &layer->shape;
    const int64_t keys = s->Hq * s->K, values = s->H * s->V;
    const int64_t act = (int64_t)fwa_dtype_size(t->backend->compute), mst = (int64_t)fwa_dtype_size(t->backend->master);
    const bool cache = spec->rule->state == FWA_STATE_CACHE;
    const bool shifted = (spec->rule->switches & FWA_SWITCH_SHIFT) && o->shift == FWA_SHIFT_NEXT_LATENT;
    const int64_t pairs = cache ? n * T : o->window - 1;
    int64_t bytes = halo_rows(fwa_max(0, spec->conv - 1), T, n) * (2 * keys + values) * act;
    bytes += halo_rows(pairs + shifted, T, n) * keys * act + halo_rows(pairs, T, n) * values * act;
    if (!cache) bytes += (n - 1) * s->H * s->K * (s->V + o->normalized_read) * mst;
    return bytes;
}

int64_t fwa_traffic_expected(const fwa_trainer *t) {
    const fwa_model *model = t->model;
    const int64_t n = t->world->sp_size, T = t->source->T / n;
    int64_t bytes = 0;
    for (int64_t l = 0; l < model->spec.L; l++) bytes += 2 * layer_bytes(t, &model->blocks[l].mixer, T, n);
    if (model->spec.reset_documents) bytes += halo_rows(t->acts->reach, T, n); // document starts, a byte a token
    return n > 1 ? bytes * t->config->train.global_batch : 0;
}
