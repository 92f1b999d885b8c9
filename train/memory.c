// Memory by class, and what to say where there is not enough.
#include "train/memory.h"

#include <stdio.h>
#include <string.h>

#include "train/progress.h"

static const char *const class_names[FWA_MEMORY_CLASS_COUNT] = {
    [FWA_MEMORY_PARAMETERS] = "parameters", [FWA_MEMORY_GRADIENTS] = "gradients",
    [FWA_MEMORY_OPTIMIZER] = "moments",     [FWA_MEMORY_ACTIVATIONS] = "activations",
    [FWA_MEMORY_SCRATCH] = "scratch",       [FWA_MEMORY_EVALUATION] = "evaluation",
};

static size_t sum(size_t a, size_t b) {
    size_t all;
    return __builtin_add_overflow(a, b, &all) ? SIZE_MAX : all;
}

fwa_memory_plan fwa_memory_planned(const fwa_trainer *t) {
    const fwa_params *params = &t->model->params;
    fwa_memory_plan plan = {.bytes = {[FWA_MEMORY_PARAMETERS] = sum(fwa_params_bytes(params, FWA_PARAM_MASTER),
                                                                    fwa_params_bytes(params, FWA_PARAM_VALUE)),
                                      [FWA_MEMORY_GRADIENTS] = fwa_params_bytes(params, FWA_PARAM_GRAD),
                                      [FWA_MEMORY_OPTIMIZER] = sum(fwa_params_bytes(params, FWA_PARAM_M),
                                                                   fwa_params_bytes(params, FWA_PARAM_V)),
                                      [FWA_MEMORY_ACTIVATIONS] = fwa_arena_bytes(t->acts->kept),
                                      [FWA_MEMORY_SCRATCH] = fwa_arena_bytes(t->acts->scratch)}};
    if (t->eval)
        plan.bytes[FWA_MEMORY_EVALUATION] = sum(fwa_arena_bytes(t->eval->kept), fwa_arena_bytes(t->eval->scratch));
    for (int i = 0; i < FWA_MEMORY_CLASS_COUNT; i++) plan.total = sum(plan.total, plan.bytes[i]);
    return plan;
}

const char *fwa_memory_text(const fwa_memory_plan *plan, char text[256]) {
    int used = 0;
    char bytes[32];
    text[0] = '\0';
    for (int i = 0; i < FWA_MEMORY_CLASS_COUNT; i++) {
        if (plan->bytes[i] == 0) continue;
        used += snprintf(text + used, (size_t)(256 - used), "%s%s %s", used ? ", " : "", class_names[i],
                         fwa_text_bytes((int64_t)plan->bytes[i], bytes));
    }
    return text;
}

// Whether the larger part of a plan grows with the batch.
static bool batch_weighs(const fwa_memory_plan *plan) {
    return sum(plan->bytes[FWA_MEMORY_ACTIVATIONS],
               sum(plan->bytes[FWA_MEMORY_SCRATCH], plan->bytes[FWA_MEMORY_EVALUATION])) > plan->total / 2;
}

// The key to change first.
static const char *first_key(const fwa_trainer *t, const fwa_memory_plan *plan) {
    if (!batch_weighs(plan)) return "model.d_model";
    return t->config->train.micro_batch > 1 ? "train.micro_batch" : "train.seq_len";
}

static const char *advice(const fwa_trainer *t, const fwa_memory_plan *plan, char text[256]) {
    const fwa_config *config = t->config;
    const char *evaluation = config->eval.every > 0 ? "; eval.every=0 plans no evaluation" : "";
    if (!batch_weighs(plan))
        snprintf(text, 256, "choose a smaller model (model.layers, model.d_model, model.ffn)%s",
                 config->parallel.zero == 0 ? ", or parallel.zero=1 on several ranks, which share masters and moments"
                                            : ", or more ranks to share masters and moments");
    else if (config->train.micro_batch > 1)
        snprintf(text, 256,
                 "lower train.micro_batch from %lld: activations and scratch shrink with it, updates stay the same%s",
                 (long long)config->train.micro_batch, evaluation);
    else
        snprintf(text, 256, "train.micro_batch is 1 already: lower train.seq_len, or choose a smaller model%s",
                 evaluation);
    return text;
}

fwa_status fwa_memory_fits(const fwa_trainer *t, const fwa_memory_plan *plan, const fwa_memory_room *room) {
    char planned[32], all[32], room_left[32], classes[256], keys[256];
    const bool gpu = t->backend->kind == FWA_BACKEND_CUDA;
    const size_t share = room->total / (size_t)(room->sharing > 1 ? room->sharing : 1);
    const size_t left = room->total > room->used ? room->total - room->used : 0;
    fwa_text_bytes(plan->total > INT64_MAX ? INT64_MAX : (int64_t)plan->total, planned);
    fwa_text_bytes((int64_t)room->total, all);
    fwa_text_bytes((int64_t)left, room_left);
    fwa_memory_text(plan, classes);
    advice(t, plan, keys);
    if (plan->total > share) {
        fwa_config_problem(t->config, first_key(t, plan), "this rank needs %s of memory for %s, and %s has %s%s; %s",
                           planned, classes, gpu ? "the GPU" : "the host", all,
                           room->sharing > 1 ? " for all its ranks" : "", keys);
        return fwa_config_finish(t->config);
    }
    FWA_CHECK(!gpu || plan->total <= left, FWA_MEMORY,
              "this rank needs %s of memory for %s, and CUDA device %d has %s free of %s: other processes use the rest "
              "(nvidia-smi lists them); wait for them, choose another GPU with CUDA_VISIBLE_DEVICES, or %s",
              planned, classes, t->backend->device, room_left, all, keys);
    return FWA_OK;
}

fwa_status fwa_memory_check(const fwa_trainer *t) {
    const fwa_memory_plan plan = fwa_memory_planned(t);
    fwa_memory_room room = {.sharing = t->backend->kind == FWA_BACKEND_CPU ? t->world->node_size : 1};
    FWA_TRY(t->backend->memory(t->backend, &room.used, &room.total));
    return fwa_memory_fits(t, &plan, &room);
}

fwa_status fwa_memory_explain(const fwa_trainer *t) {
    char classes[256], keys[256];
    const fwa_memory_plan plan = fwa_memory_planned(t);
    FWA_FAIL(FWA_MEMORY, "%s; planned: %s; %s", fwa_error_message(), fwa_memory_text(&plan, classes),
             advice(t, &plan, keys));
}
