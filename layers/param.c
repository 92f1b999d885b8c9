// The parameter table.
#include "layers/param.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/rng.h"
#include "core/shape.h"

static const char *const class_names[FWA_PARAM_CLASS_COUNT] = {"masters", "values", "gradients", "moment m",
                                                               "moment v"};

fwa_param fwa_param_plain(int64_t rows, int64_t columns, fwa_init init) {
    fwa_param p;
    memset(&p, 0, sizeof p);
    p.ndim = columns > 0 ? 2 : 1;
    p.shape[0] = p.storage[0] = rows;
    p.shape[1] = p.storage[1] = columns;
    p.init = init;
    return p;
}

fwa_param fwa_param_matrix(int64_t rows, int64_t columns, double deviation) {
    fwa_param p = fwa_param_plain(rows, columns, (fwa_init){FWA_INIT_NORMAL, deviation, 0});
    p.matrix = p.decay = p.width_scaled = true;
    return p;
}

static fwa_status grow(fwa_params *params) {
    int capacity = params->capacity ? 2 * params->capacity : 64;
    fwa_param *grown = realloc(params->at, (size_t)capacity * sizeof *grown);
    FWA_CHECK(grown, FWA_MEMORY, "parameter table: out of memory at %d parameters", capacity);
    params->at = grown;
    params->capacity = capacity;
    return FWA_OK;
}

fwa_status fwa_params_add(const fwa_param_scope *scope, const char *name, fwa_param param, int *index) {
    fwa_params *params = scope->params;
    int length = snprintf(param.name, sizeof param.name, "%s%s%s", scope->prefix, *scope->prefix ? "." : "", name);
    FWA_CHECK(length > 0 && length < FWA_NAME_MAX, FWA_ERROR, "parameter name '%s.%s' has %d characters, at most %d",
              scope->prefix, name, length, FWA_NAME_MAX - 1);
    param.bucket = scope->bucket;
    param.row_start = 0;
    param.rows = param.storage[0];
    if (params->count == params->capacity) FWA_TRY(grow(params));
    *index = params->count;
    params->at[params->count++] = param;
    if (param.bucket >= params->buckets) params->buckets = param.bucket + 1;
    return FWA_OK;
}

static fwa_status plan_one(fwa_params *params, fwa_param_class which, int index, fwa_dtype dtype) {
    fwa_param *p = &params->at[index];
    const bool packed = p->packed;
    FWA_CHECK(!packed || (index > 0 && p->matrix && p[-1].matrix), FWA_ERROR,
              "parameter %s: packed, expected it and the one before to be matrices", p->name);
    return packed ? fwa_arena_plan_packed(params->arena[which], &p->tensor[which], dtype, p->ndim, p->storage)
                  : fwa_arena_plan(params->arena[which], &p->tensor[which], dtype, p->ndim, p->storage);
}

static fwa_status plan_class(fwa_params *params, fwa_param_class which, fwa_dtype compute, fwa_dtype master) {
    FWA_TRY(fwa_arena_create(&params->arena[which], class_names[which]));
    for (int i = 0; i < params->count; i++)
        FWA_TRY(plan_one(params, which, i, which == FWA_PARAM_VALUE && params->at[i].matrix ? compute : master));
    return FWA_OK;
}

// In each bucket the gradients that are added to stand together in front of those that products overwrite.
static fwa_status plan_gradients(fwa_params *params, fwa_dtype master) {
    FWA_TRY(fwa_arena_create(&params->arena[FWA_PARAM_GRAD], class_names[FWA_PARAM_GRAD]));
    for (int bucket = 0; bucket < params->buckets; bucket++)
        for (int matrix = 0; matrix < 2; matrix++)
            for (int i = 0; i < params->count; i++)
                if (params->at[i].bucket == bucket && params->at[i].matrix == (matrix == 1))
                    FWA_TRY(plan_one(params, FWA_PARAM_GRAD, i, master));
    return FWA_OK;
}

fwa_status fwa_params_plan(fwa_params *params, fwa_dtype compute, fwa_dtype master, bool train) {
    for (int which = 0; which < FWA_PARAM_CLASS_COUNT; which++) {
        bool shared = which == FWA_PARAM_VALUE && compute == master;
        bool needed = train || which == FWA_PARAM_MASTER || which == FWA_PARAM_VALUE;
        if (!needed || shared) continue;
        if (which == FWA_PARAM_GRAD)
            FWA_TRY(plan_gradients(params, master));
        else
            FWA_TRY(plan_class(params, (fwa_param_class)which, compute, master));
    }
    return FWA_OK;
}

fwa_status fwa_params_commit(fwa_params *params, fwa_backend *backend) {
    for (int which = 0; which < FWA_PARAM_CLASS_COUNT; which++) {
        if (!params->arena[which]) continue;
        FWA_TRY(fwa_arena_commit(params->arena[which], backend));
        // Padding and the gaps between parameters are read by whole-class operations: all of it starts as zero.
        FWA_TRY(backend->fill(backend, backend->stream, fwa_arena_data(params->arena[which]), 0,
                              fwa_arena_bytes(params->arena[which])));
    }
    if (!params->arena[FWA_PARAM_VALUE])
        for (int i = 0; i < params->count; i++)
            params->at[i].tensor[FWA_PARAM_VALUE] = params->at[i].tensor[FWA_PARAM_MASTER];
    return FWA_OK;
}

void fwa_params_destroy(fwa_params *params) {
    if (!params) return;
    for (int which = 0; which < FWA_PARAM_CLASS_COUNT; which++) fwa_arena_destroy(params->arena[which]);
    free(params->at);
    memset(params, 0, sizeof *params);
}

static int64_t logical_count(const fwa_param *p) {
    int64_t count = 1;
    for (int d = 0; d < p->ndim; d++) count *= p->shape[d];
    return count;
}

int64_t fwa_params_count(const fwa_params *params) {
    int64_t count = 0;
    for (int i = 0; i < params->count; i++) count += logical_count(&params->at[i]);
    return count;
}

size_t fwa_params_bytes(const fwa_params *params, fwa_param_class which) {
    return params->arena[which] ? fwa_arena_bytes(params->arena[which]) : 0;
}

static double initial_value(const fwa_init *init, uint64_t key, uint64_t stream, int64_t i) {
    switch (init->kind) {
    case FWA_INIT_NORMAL:
        return init->a * fwa_rng_normal(key, stream, (uint64_t)i);
    case FWA_INIT_UNIFORM:
        return init->a * (2.0 * fwa_rng_uniform(key, stream, (uint64_t)i) - 1.0);
    case FWA_INIT_LOG:
        return log(init->a + (init->b - init->a) * fwa_rng_uniform(key, stream, (uint64_t)i));
    case FWA_INIT_INVERSE_SOFTPLUS: {
        double y = init->a * pow(init->b / init->a, fwa_rng_uniform(key, stream, (uint64_t)i));
        return y + log(-expm1(-y));
    }
    default:
        return init->a;
    }
}

// Fills the logical part of host storage [rows, storage columns] of type f32 or f64.
static void initialize_host(const fwa_param *p, void *host, uint64_t key) {
    int64_t rows = p->ndim > 1 ? p->shape[0] : 1;
    int64_t columns = logical_count(p) / rows, stride = p->ndim > 1 ? p->storage[1] : p->storage[0];
    if (p->ndim > 2) stride = columns;
    bool wide = p->tensor[FWA_PARAM_MASTER].dtype == FWA_F64;
    uint64_t stream = fwa_rng_hash(p->name);
#pragma omp parallel for schedule(static) if (rows * columns > 65536)
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < columns; c++) {
            double value = initial_value(&p->init, key, stream, r * columns + c);
            if (wide)
                ((double *)host)[r * stride + c] = value;
            else
                ((float *)host)[r * stride + c] = (float)value;
        }
}

// Bytes of all stored rows in the masters' type, held here or not.
static size_t whole_bytes(const fwa_param *p) {
    size_t bytes = fwa_dtype_size(p->tensor[FWA_PARAM_MASTER].dtype);
    for (int d = 0; d < p->ndim; d++) bytes *= (size_t)p->storage[d];
    return bytes;
}

fwa_status fwa_params_initialize(fwa_params *params, fwa_backend *backend, uint64_t seed) {
    fwa_status status = FWA_OK;
    size_t largest = sizeof(double);
    for (int i = 0; i < params->count; i++) {
        size_t bytes = whole_bytes(&params->at[i]);
        if (bytes > largest) largest = bytes;
    }
    void *host = malloc(largest);
    FWA_CHECK(host, FWA_MEMORY, "initial values: cannot allocate %zu bytes on the host", largest);
    for (int i = 0; i < params->count; i++) {
        fwa_param *p = &params->at[i];
        fwa_tensor master = p->tensor[FWA_PARAM_MASTER];
        size_t bytes = fwa_tensor_bytes(master), whole = whole_bytes(p);
        size_t start = bytes < whole ? whole / (size_t)p->storage[0] * (size_t)p->row_start : 0;
        memset(host, 0, whole);
        initialize_host(p, host, seed);
        FWA_TRY_GOTO(backend->upload(backend, backend->stream, master.data, (char *)host + start, bytes), done);
        FWA_TRY_GOTO(backend->stream_synchronize(backend, backend->stream), done);
    }
    FWA_TRY_GOTO(fwa_params_refresh(params, backend), done);
done:
    free(host);
    return status;
}

fwa_status fwa_params_refresh(fwa_params *params, fwa_backend *backend) {
    if (!params->arena[FWA_PARAM_VALUE]) return FWA_OK;
    for (int i = 0; i < params->count; i++) {
        fwa_param *p = &params->at[i];
        if (p->rows == 0) continue;
        FWA_TRY(backend->ops->cast(backend->stream, fwa_param_rows(p, FWA_PARAM_VALUE), p->tensor[FWA_PARAM_MASTER]));
    }
    return FWA_OK;
}

fwa_tensor fwa_params_packed(const fwa_params *params, int first, int count, fwa_param_class which) {
    fwa_tensor packed = params->at[first].tensor[which];
    for (int i = first + 1; i < first + count; i++) packed.shape[0] += params->at[i].storage[0];
    return packed;
}

// From the first to the last gradient of a bucket, of matrices and others or of others alone.
static fwa_tensor stretch(const fwa_params *params, int bucket, bool matrices) {
    char *start = NULL, *end = NULL;
    fwa_dtype dtype = FWA_F32;
    for (int i = 0; i < params->count; i++) {
        if (params->at[i].bucket != bucket || (params->at[i].matrix && !matrices)) continue;
        fwa_tensor grad = params->at[i].tensor[FWA_PARAM_GRAD];
        char *from = grad.data, *to = from + fwa_tensor_bytes(grad);
        if (!start || from < start) start = from;
        if (!end || to > end) end = to;
        dtype = grad.dtype;
    }
    return fwa_tensor_1d(start, dtype, start ? (int64_t)((size_t)(end - start) / fwa_dtype_size(dtype)) : 0);
}

fwa_tensor fwa_params_bucket(const fwa_params *params, int bucket) {
    return stretch(params, bucket, true);
}

fwa_status fwa_params_clear_added(const fwa_params *params, fwa_backend *backend) {
    for (int bucket = 0; bucket < params->buckets; bucket++) {
        const fwa_tensor added = stretch(params, bucket, false);
        FWA_TRY(backend->fill(backend, backend->stream, added.data, 0, fwa_tensor_bytes(added)));
    }
    return FWA_OK;
}

fwa_tensor fwa_param_rows(const fwa_param *param, fwa_param_class which) {
    fwa_tensor t = param->tensor[which];
    return t.shape[0] == param->rows ? t : fwa_tensor_slice(t, 0, param->row_start, param->rows);
}

static void describe_init(const fwa_init *init, char text[48]) {
    const char *const kinds[] = {"constant", "normal", "uniform", "log", "inverse_softplus"};
    if (init->kind < FWA_INIT_LOG)
        snprintf(text, 48, "%s %.9g", kinds[init->kind], init->a);
    else
        snprintf(text, 48, "%s %.9g %.9g", kinds[init->kind], init->a, init->b);
}

fwa_named_tensor fwa_param_named(const fwa_param *param, fwa_param_class which) {
    fwa_named_tensor named;
    memset(&named, 0, sizeof named);
    memcpy(named.name, param->name, sizeof named.name);
    memcpy(named.shape, param->shape, sizeof named.shape);
    named.tensor = param->tensor[which];
    for (int d = 0; d < param->ndim; d++) named.tensor.shape[d] = param->shape[d]; // strides stay those of storage
    if (which == FWA_PARAM_MASTER || which == FWA_PARAM_M || which == FWA_PARAM_V) {
        named.tensor.data = fwa_param_rows(param, which).data;
        named.row_start = fwa_min(param->row_start, param->shape[0]);
        named.tensor.shape[0] = fwa_min(param->row_start + param->rows, param->shape[0]) - named.row_start;
    }
    named.decay = param->decay;
    describe_init(&param->init, named.init);
    return named;
}
