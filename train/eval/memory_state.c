// A decoder's memory to a file and back.
#include "train/eval/memory_state.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/bf16.h"
#include "io/files.h"
#include "io/memory_file.h"
#include "train/weights.h"

// Parts of a memory, and a host tensor for each.
typedef struct parts {
    fwa_backend *backend;
    int count;
    fwa_memory_part *device;
    fwa_memory_tensor *host;
} parts;

static void close_parts(parts *p) {
    for (int i = 0; p->host && i < p->count; i++) free(p->host[i].tensor.data);
    free(p->device);
    free(p->host);
}

static fwa_status open_parts(parts *p, const fwa_memory *memory) {
    const size_t most = 6 * (size_t)memory->L;
    memset(p, 0, sizeof *p);
    p->backend = memory->backend;
    p->device = calloc(most, sizeof *p->device);
    p->host = calloc(most, sizeof *p->host);
    FWA_CHECK(p->device && p->host, FWA_MEMORY, "memory of a sequence: out of memory");
    p->count = fwa_memory_parts(memory, p->device);
    for (int i = 0; i < p->count; i++) {
        const fwa_tensor *t = &p->device[i].tensor;
        snprintf(p->host[i].name, sizeof p->host[i].name, "%s", p->device[i].name);
        p->host[i].tensor = fwa_tensor_nd(NULL, p->backend->master, t->ndim, t->shape);
        p->host[i].tensor.data = malloc(fwa_tensor_bytes(p->host[i].tensor) + 1);
        FWA_CHECK(p->host[i].tensor.data, FWA_MEMORY, "memory of a sequence: no memory for %s", p->device[i].name);
    }
    return FWA_OK;
}

static fwa_status fetch_part(fwa_backend *backend, const fwa_tensor *from, const fwa_tensor *to, void *raw) {
    const int64_t count = fwa_tensor_count(*from);
    const bool narrow = from->dtype == FWA_BF16;
    FWA_TRY(backend->download(backend, backend->stream, narrow ? raw : to->data, from->data, fwa_tensor_bytes(*from)));
    FWA_TRY(backend->stream_synchronize(backend, backend->stream));
    for (int64_t i = 0; narrow && i < count; i++)
        ((float *)to->data)[i] = fwa_bf16_to_float(((const uint16_t *)raw)[i]);
    return FWA_OK;
}

static fwa_status store_part(fwa_backend *backend, const fwa_tensor *to, const fwa_tensor *from, void *raw) {
    const int64_t count = fwa_tensor_count(*to);
    const bool narrow = to->dtype == FWA_BF16;
    for (int64_t i = 0; narrow && i < count; i++)
        ((uint16_t *)raw)[i] = fwa_bf16_from_float(((const float *)from->data)[i]);
    return backend->upload(backend, backend->stream, to->data, narrow ? raw : from->data, fwa_tensor_bytes(*to));
}

// All parts from the device to the host, or back.
static fwa_status move(const parts *p, bool to_host) {
    fwa_backend *backend = p->backend;
    for (int i = 0; i < p->count; i++) {
        const fwa_tensor *device = &p->device[i].tensor, *host = &p->host[i].tensor;
        void *raw = malloc(fwa_tensor_bytes(*device) + 1); // bf16 on its way
        FWA_CHECK(raw, FWA_MEMORY, "memory of a sequence: no memory for %s", p->device[i].name);
        fwa_status status = to_host ? fetch_part(backend, device, host, raw) : store_part(backend, device, host, raw);
        free(raw);
        FWA_TRY(status);
    }
    return backend->stream_synchronize(backend, backend->stream);
}

// What defines the run, but for the precision, which is this command's.
static uint64_t hash_run(fwa_config *config) {
    const int precision = config->train.precision;
    config->train.precision = 0;
    const uint64_t hash = fwa_config_hash(config);
    config->train.precision = precision;
    return hash;
}

// Which model a memory belongs to: what defines its run, its step and its weights.
static fwa_status name_model(const fwa_loaded *l, char text[64]) {
    uint64_t weights;
    FWA_TRY(fwa_weights_fingerprint(l->model, l->backend, &weights));
    snprintf(text, 64, "%016" PRIx64 " step %" PRId64 " %016" PRIx64, hash_run(l->config), l->step, weights);
    return FWA_OK;
}

fwa_status fwa_memory_state_save(const fwa_decoder *d, const char *path) {
    fwa_memory_header header = {.position = d->memory->position,
                                .held = d->memory->held,
                                .pending = d->pending.at,
                                .pending_count = (int64_t)d->pending.count};
    parts p;
    FWA_TRY(name_model(d->loaded, header.model));
    fwa_status status = open_parts(&p, d->memory);
    if (status == FWA_OK) status = move(&p, true);
    if (status == FWA_OK) status = fwa_memory_file_write(path, &header, p.host, p.count);
    close_parts(&p);
    return status;
}

static fwa_status check_header(const fwa_decoder *d, const char *path, const fwa_memory_header *h) {
    const fwa_memory *m = d->memory;
    char model[64];
    FWA_TRY(name_model(d->loaded, model));
    FWA_CHECK(strcmp(model, h->model) == 0, FWA_CONFIG,
              "%s is the memory of another model (%s), expected one of %s (%s)", path, h->model, d->loaded->path,
              model);
    FWA_CHECK(m->capacity == 0 || h->held <= m->capacity, FWA_CONFIG,
              "%s holds %lld token%s, and attention has room for %lld: raise --context", path, (long long)h->held,
              fwa_plural(h->held), (long long)m->capacity);
    for (int64_t i = 0; i < h->pending_count; i++)
        FWA_CHECK(h->pending[i] >= 0 && h->pending[i] < d->loaded->model->spec.vocab, FWA_FORMAT,
                  "%s: token %d is none of this model", path, h->pending[i]);
    return FWA_OK;
}

static fwa_status restore(fwa_decoder *d, const char *path, const fwa_memory_header *h) {
    parts p;
    FWA_TRY(check_header(d, path, h));
    d->memory->position = h->position;
    d->memory->held = h->held;
    fwa_status status = open_parts(&p, d->memory);
    if (status == FWA_OK) status = fwa_memory_file_read(path, p.host, p.count);
    if (status == FWA_OK) status = move(&p, false);
    close_parts(&p);
    FWA_TRY(status);
    return h->pending_count > 0 ? fwa_decoder_take(d, h->pending, h->pending_count) : FWA_OK;
}

fwa_status fwa_memory_state_load(fwa_decoder *d, const char *path) {
    fwa_memory_header header;
    FWA_CHECK(fwa_path_exists(path), FWA_CONFIG, "--state-in %s: there is no such file", path);
    fwa_status status = fwa_memory_file_read_header(path, &header);
    if (status == FWA_OK) status = restore(d, path, &header);
    free(header.pending);
    return status;
}
