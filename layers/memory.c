// What a model remembers of sequences that it reads in segments.
#include "layers/memory.h"

#include <stdio.h>
#include <stdlib.h>

#include "layers/mixer_memory.h"
#include "layers/model.h"

static const fwa_mixer_layer *layer_of(const fwa_memory *memory, int l) {
    return &memory->model->blocks[l].mixer;
}

static fwa_status build(fwa_memory *memory, int64_t capacity) {
    FWA_TRY(fwa_arena_create(&memory->arena, "memory of sequences"));
    for (int l = 0; l < memory->L; l++)
        if (fwa_mixer_memory_cached(layer_of(memory, l))) memory->capacity = capacity;
    for (int l = 0; l < memory->L; l++)
        FWA_TRY(fwa_mixer_memory_plan(layer_of(memory, l), memory->backend, memory->B, memory->capacity, memory->arena,
                                      &memory->layers[l]));
    FWA_TRY(fwa_arena_commit(memory->arena, memory->backend));
    return fwa_memory_forget(memory);
}

fwa_status fwa_memory_create(fwa_memory **out, const fwa_model *model, fwa_backend *backend, int64_t B,
                             int64_t capacity) {
    *out = NULL;
    fwa_memory *memory = calloc(1, sizeof *memory);
    FWA_CHECK(memory, FWA_MEMORY, "memory of sequences: out of memory");
    *memory = (fwa_memory){.backend = backend, .model = model, .B = B, .L = (int)model->spec.L};
    memory->layers = calloc((size_t)memory->L, sizeof *memory->layers);
    fwa_status status = FWA_OK;
    FWA_CHECK_GOTO(memory->layers, FWA_MEMORY, fail, "memory of sequences: out of memory");
    FWA_TRY_GOTO(build(memory, capacity), fail);
    *out = memory;
    return FWA_OK;
fail:
    fwa_memory_destroy(memory);
    return status;
}

void fwa_memory_destroy(fwa_memory *memory) {
    if (!memory) return;
    fwa_arena_destroy(memory->arena);
    free(memory->layers);
    free(memory);
}

size_t fwa_memory_bytes(const fwa_memory *memory) {
    return fwa_arena_bytes(memory->arena);
}

fwa_status fwa_memory_forget(fwa_memory *memory) {
    fwa_backend *backend = memory->backend;
    memory->held = 0;
    for (int l = 0; l < memory->L; l++) {
        const fwa_tensor conv = memory->layers[l].conv;
        if (fwa_tensor_present(conv))
            FWA_TRY(backend->fill(backend, backend->stream, conv.data, 0, fwa_tensor_bytes(conv)));
    }
    return FWA_OK;
}

static void add_part(fwa_memory_part *list, int *count, int l, const char *name, fwa_tensor tensor) {
    if (!fwa_tensor_present(tensor)) return;
    fwa_memory_part *part = &list[(*count)++];
    snprintf(part->name, sizeof part->name, "layers.%d.%s", l, name);
    part->tensor = tensor;
}

int fwa_memory_parts(const fwa_memory *memory, fwa_memory_part *list) {
    int count = 0;
    for (int l = 0; l < memory->L; l++) {
        const fwa_mixer_layer *layer = layer_of(memory, l);
        const fwa_layer_memory *own = &memory->layers[l];
        const int now = fwa_mixer_memory_cached(layer) ? 0 : memory->now;
        const fwa_mixer_state state = fwa_mixer_memory_state(layer, &own->state[now], memory->held);
        add_part(list, &count, l, "conv", own->conv);
        add_part(list, &count, l, "S", state.S);
        add_part(list, &count, l, "z", state.z);
        add_part(list, &count, l, "k_last", state.k_last);
        add_part(list, &count, l, "tail_x", state.tail_x);
        add_part(list, &count, l, "tail_v", state.tail_v);
    }
    return count;
}
