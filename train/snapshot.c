// One copy a part: the rows of a rank lie behind each other in the memory of their class.
#include "train/snapshot.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>

#include "train/weights.h"

size_t fwa_snapshot_bytes(const fwa_params *params) {
    size_t bytes = 0;
    for (int i = 0; i < params->count; i++) {
        const fwa_param *p = &params->at[i];
        for (int part = 0; part < FWA_PART_COUNT; part++) {
            fwa_tensor rows = p->tensor[fwa_weights_class((fwa_checkpoint_part)part)];
            rows.shape[0] = p->rows;
            bytes += fwa_tensor_bytes(rows);
        }
    }
    return bytes;
}

// Where the rows of a part begin and end in the model's memory.
static void find_range(fwa_snapshot *s, const fwa_params *params, int part) {
    const char *start = NULL, *end = NULL;
    for (int i = 0; i < params->count; i++) {
        const fwa_tensor rows = fwa_param_rows(&params->at[i], fwa_weights_class((fwa_checkpoint_part)part));
        const char *first = rows.data;
        if (fwa_tensor_count(rows) == 0) continue;
        if (!start) start = first;
        end = first + fwa_tensor_bytes(rows);
    }
    s->part[part].from = start;
    s->part[part].bytes = start ? (size_t)(end - start) : 0;
}

static fwa_status view_part(fwa_snapshot *s, const fwa_params *params, int part) {
    s->named[part] = calloc((size_t)params->count, sizeof *s->named[part]);
    FWA_CHECK(s->named[part], FWA_MEMORY, "snapshot: no memory for %d parameters", params->count);
    for (int i = 0; i < params->count; i++) {
        fwa_named_tensor *named = &s->named[part][i];
        *named = fwa_param_named(&params->at[i], fwa_weights_class((fwa_checkpoint_part)part));
        if (fwa_tensor_count(named->tensor) == 0) continue;
        ptrdiff_t offset = (const char *)named->tensor.data - (const char *)s->part[part].from;
        named->tensor.data = (char *)s->part[part].to + offset;
    }
    return FWA_OK;
}

static fwa_status build(fwa_snapshot *s, const fwa_model *model) {
    fwa_backend *backend = s->backend;
    const fwa_params *params = &model->params;
    size_t bytes = 0;
    s->count = params->count;
    for (int part = 0; part < FWA_PART_COUNT; part++) {
        find_range(s, params, part);
        bytes += s->part[part].bytes;
    }
    if (backend->host_alloc(backend, &s->memory, bytes) != FWA_OK)
        FWA_FAIL(FWA_MEMORY, "no %zu bytes of host memory for what checkpoints are written from: %s", bytes,
                 fwa_error_message());
    char *to = s->memory;
    for (int part = 0; part < FWA_PART_COUNT; to += s->part[part].bytes, part++) {
        s->part[part].to = to;
        FWA_TRY(view_part(s, params, part));
    }
    FWA_TRY(backend->stream_create(backend, &s->stream));
    FWA_TRY(backend->event_create(backend, &s->before));
    return backend->event_create(backend, &s->copied);
}

fwa_status fwa_snapshot_create(fwa_snapshot **out, const fwa_model *model, fwa_backend *backend) {
    fwa_snapshot *s = calloc(1, sizeof *s);
    FWA_CHECK(s, FWA_MEMORY, "no memory for a snapshot");
    s->backend = backend;
    fwa_status status = build(s, model);
    if (status != FWA_OK) {
        fwa_snapshot_destroy(s);
        return fwa_error_pass(status, __FILE__, __LINE__, __func__);
    }
    *out = s;
    return FWA_OK;
}

void fwa_snapshot_destroy(fwa_snapshot *s) {
    if (!s) return;
    fwa_backend *backend = s->backend;
    if (s->stream) backend->stream_destroy(backend, s->stream);
    if (s->before) backend->event_destroy(backend, s->before);
    if (s->copied) backend->event_destroy(backend, s->copied);
    if (s->memory) backend->host_free(backend, s->memory);
    for (int part = 0; part < FWA_PART_COUNT; part++) free(s->named[part]);
    free(s);
}

fwa_status fwa_snapshot_take(fwa_snapshot *s) {
    fwa_backend *backend = s->backend;
    FWA_TRY(backend->event_record(backend, s->before, backend->stream));
    FWA_TRY(backend->stream_wait(backend, s->stream, s->before));
    for (int part = 0; part < FWA_PART_COUNT; part++)
        FWA_TRY(backend->download(backend, s->stream, s->part[part].to, s->part[part].from, s->part[part].bytes));
    return backend->event_record(backend, s->copied, s->stream);
}

fwa_status fwa_snapshot_wait(fwa_snapshot *s) {
    return s->backend->event_synchronize(s->backend, s->copied);
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

fwa_status fwa_snapshot_check(const fwa_snapshot *s) {
    for (int part = 0; part < FWA_PART_COUNT; part++)
        for (int i = 0; i < s->count; i++)
            FWA_CHECK(finite_tensor(&s->named[part][i].tensor), FWA_NONFINITE,
                      "%s%s has a value that is not finite; lower optimizer.lr, or resume from the last checkpoint",
                      part == FWA_PART_MASTER ? "parameter " : "a moment of parameter ", s->named[part][i].name);
    return FWA_OK;
}
