// Case files as calls of mixing rules: plans the call's tensors on a backend, moves them there and back.
#include "train/op_case.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/bf16.h"
#include "train/op_inputs.h"

static fwa_tensor *at(fwa_op_call *op, size_t offset) {
    return (fwa_tensor *)(void *)((char *)op + offset);
}

static fwa_dtype type_of(const fwa_op_call *op, const fwa_op_tensor *entry) {
    if (entry->type == FWA_OP_FLAGS) return FWA_U8;
    return entry->type == FWA_OP_ACTIVATION ? op->backend->compute : op->backend->master;
}

static fwa_status plan(fwa_op_call *op, const fwa_op_tensor *entry, size_t offset, const int64_t *shape, int ndim) {
    return fwa_arena_plan(op->arena, at(op, offset), type_of(op, entry), ndim, shape);
}

static fwa_status plan_tensors(fwa_op_call *op, const fwa_case *c) {
    const bool backward = fwa_op_arrives(c);
    int64_t shape[FWA_MAX_DIMS];
    char path[32];
    for (const fwa_op_tensor *entry = fwa_op_inputs; entry->name; entry++) {
        const int ndim = fwa_op_shape(op, entry, shape);
        snprintf(path, sizeof path, "in/%s", entry->name);
        if (!fwa_op_given(c, path)) continue;
        FWA_TRY(plan(op, entry, entry->value, shape, ndim));
        if (backward && entry->gradient) FWA_TRY(plan(op, entry, entry->gradient, shape, ndim));
    }
    for (const fwa_op_tensor *entry = fwa_op_outputs; entry->name; entry++) {
        const int ndim = fwa_op_shape(op, entry, shape);
        if (!fwa_op_leaves(op, entry)) continue;
        FWA_TRY(plan(op, entry, entry->value, shape, ndim));
        snprintf(path, sizeof path, "in/d%s", entry->name);
        if (fwa_op_given(c, path)) FWA_TRY(plan(op, entry, entry->gradient, shape, ndim));
    }
    return FWA_OK;
}

static fwa_status plan_memory(fwa_op_call *op) {
    size_t saved = 0, scratch = 0;
    FWA_TRY(op->mixer->sizes(op->backend, &op->call, &saved, &scratch));
    if (saved) FWA_TRY(fwa_arena_plan_bytes(op->arena, &op->call.saved, saved));
    if (scratch) FWA_TRY(fwa_arena_plan_bytes(op->arena, &op->call.scratch, scratch));
    return fwa_arena_commit(op->arena, op->backend);
}

fwa_status fwa_op_open(fwa_op_call *op, const fwa_case *c, const fwa_rule *rule, fwa_backend *backend, fwa_form form,
                       int64_t chunk) {
    memset(op, 0, sizeof *op);
    op->rule = rule;
    op->backend = backend;
    FWA_TRY(fwa_op_read_options(op, c));
    op->call.options.chunk = chunk;
    op->call.form = form;
    FWA_TRY(fwa_op_read_sizes(op, c));
    op->call.save = fwa_op_arrives(c);
    FWA_TRY(fwa_mixer_check_options(rule, &op->call));
    FWA_TRY(fwa_op_check_inputs(op, c));
    FWA_TRY(fwa_mixer_find(backend, rule, &op->mixer));
    FWA_TRY(fwa_arena_create(&op->arena, "op"));
    FWA_TRY(plan_tensors(op, c));
    return plan_memory(op);
}

void fwa_op_close(fwa_op_call *op) {
    fwa_arena_destroy(op->arena);
    op->arena = NULL;
}

static void pack(void *to, fwa_dtype dtype, const double *from, int64_t count) {
    for (int64_t i = 0; i < count; i++) {
        if (dtype == FWA_F64) ((double *)to)[i] = from[i];
        if (dtype == FWA_F32) ((float *)to)[i] = (float)from[i];
        if (dtype == FWA_BF16) ((uint16_t *)to)[i] = fwa_bf16_from_float((float)from[i]);
        if (dtype == FWA_U8) ((uint8_t *)to)[i] = (uint8_t)from[i];
    }
}

static void unpack(double *to, const void *from, fwa_dtype dtype, int64_t count) {
    for (int64_t i = 0; i < count; i++) {
        if (dtype == FWA_F64) to[i] = ((const double *)from)[i];
        if (dtype == FWA_F32) to[i] = (double)((const float *)from)[i];
        if (dtype == FWA_BF16) to[i] = (double)fwa_bf16_to_float(((const uint16_t *)from)[i]);
    }
}

// host (f64) -> t, or back.
static fwa_status move(const fwa_op_call *op, fwa_tensor t, fwa_tensor host, bool upload) {
    fwa_backend *backend = op->backend;
    const size_t bytes = fwa_tensor_bytes(t);
    void *staged = malloc(bytes ? bytes : 1);
    fwa_status status = FWA_OK;
    FWA_CHECK(staged, FWA_MEMORY, "no memory for %zu bytes of a tensor", bytes);
    if (upload) {
        pack(staged, t.dtype, host.data, fwa_tensor_count(host));
        FWA_TRY_GOTO(backend->upload(backend, backend->stream, t.data, staged, bytes), done);
    } else {
        FWA_TRY_GOTO(backend->download(backend, backend->stream, staged, t.data, bytes), done);
    }
    FWA_TRY_GOTO(backend->stream_synchronize(backend, backend->stream), done);
    if (!upload) unpack(host.data, staged, t.dtype, fwa_tensor_count(host));
done:
    free(staged);
    return status;
}

static fwa_status upload_case(fwa_op_call *op, const fwa_case *c) {
    char path[32];
    for (const fwa_op_tensor *entry = fwa_op_inputs; entry->name; entry++) {
        const fwa_tensor t = *at(op, entry->value);
        snprintf(path, sizeof path, "in/%s", entry->name);
        if (fwa_tensor_present(t)) FWA_TRY(move(op, t, fwa_case_tensor(c, path), true));
    }
    for (const fwa_op_tensor *entry = fwa_op_outputs; entry->name; entry++) {
        const fwa_tensor t = *at(op, entry->gradient);
        snprintf(path, sizeof path, "in/d%s", entry->name);
        if (fwa_tensor_present(t)) FWA_TRY(move(op, t, fwa_case_tensor(c, path), true));
    }
    return FWA_OK;
}

static fwa_status download(fwa_op_call *op, size_t offset, const char *group, const char *name, fwa_case *answer) {
    const fwa_tensor t = *at(op, offset);
    fwa_tensor host;
    char path[32];
    if (!fwa_tensor_present(t)) return FWA_OK;
    snprintf(path, sizeof path, "%s%s", group, name);
    FWA_TRY(fwa_case_add(answer, path, t.ndim, t.shape, &host));
    return move(op, t, host, false);
}

static fwa_status write_attributes(const fwa_op_call *op, const fwa_case *c, fwa_case *answer) {
    snprintf(answer->rule, sizeof answer->rule, "%s", c->rule[0] ? c->rule : op->rule->name);
    for (int i = 0; i < c->number_count; i++) FWA_TRY(fwa_case_set(answer, c->numbers[i].name, c->numbers[i].value));
    return FWA_OK;
}

fwa_status fwa_op_run(fwa_op_call *op, const fwa_case *c, fwa_case *answer) {
    memset(answer, 0, sizeof *answer);
    FWA_TRY(write_attributes(op, c, answer));
    FWA_TRY(upload_case(op, c));
    FWA_TRY(op->mixer->forward(op->backend, op->backend->stream, &op->call));
    if (op->call.save) FWA_TRY(op->mixer->backward(op->backend, op->backend->stream, &op->call, &op->grads));
    for (const fwa_op_tensor *entry = fwa_op_outputs; entry->name; entry++)
        FWA_TRY(download(op, entry->value, "out/", entry->name, answer));
    for (const fwa_op_tensor *entry = fwa_op_inputs; op->call.save && entry->name; entry++)
        if (entry->gradient) FWA_TRY(download(op, entry->gradient, "grad/d", entry->name, answer));
    return FWA_OK;
}
