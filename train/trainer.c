// Building a trainer, and validation.
#include "train/trainer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "dist/watchdog.h"
#include "layers/shard.h"
#include "train/agreement.h"
#include "train/choices.h"
#include "train/memory.h"
#include "train/ranks.h"
#include "train/setup.h"
#include "train/signals.h"
#include "train/validation.h"

static fwa_status create_buckets(fwa_trainer *t) {
    fwa_params *params = &t->model->params;
    fwa_tensor *tensors = calloc((size_t)params->buckets, sizeof *tensors);
    FWA_CHECK(tensors, FWA_MEMORY, "gradient buckets: out of memory");
    for (int i = 0; i < params->buckets; i++) tensors[i] = fwa_params_bucket(params, i);
    fwa_status status = fwa_buckets_create(&t->buckets, t->comm, tensors, params->buckets);
    free(tensors);
    return status;
}

static fwa_status allocate_reports(fwa_trainer *t) {
    fwa_backend *backend = t->backend;
    t->ahead = backend->kind == FWA_BACKEND_CPU ? 0 : 1;
    for (int i = 0; i < FWA_STEPS_SENT; i++) {
        fwa_step_sent *sent = &t->sent[i];
        FWA_TRY(backend->host_alloc(backend, (void **)&sent->state, sizeof *sent->state));
        if (t->gates) FWA_TRY(backend->host_alloc(backend, (void **)&sent->gates, fwa_trainer_gate_bytes(t)));
        FWA_TRY(backend->event_create(backend, &sent->done));
    }
    return FWA_OK;
}

static fwa_status allocate(fwa_trainer *t) {
    fwa_backend *backend = t->backend;
    const fwa_config *config = t->config;
    size_t count = (size_t)(config->train.micro_batch * t->source->T);
    FWA_TRY(fwa_model_commit(t->model, backend, (uint64_t)config->run.seed));
    FWA_TRY(fwa_optimizer_create(&t->optimizer, t->model, backend, config));
    FWA_TRY(fwa_activations_commit(t->acts));
    if (t->eval) FWA_TRY(fwa_activations_commit(t->eval));
    FWA_TRY(backend->alloc(backend, (void **)&t->state, sizeof *t->state));
    FWA_TRY(backend->alloc(backend, (void **)&t->eval_state, sizeof *t->eval_state));
    FWA_TRY(backend->fill(backend, backend->stream, t->state, 0, sizeof *t->state));
    if (fwa_model_has_gates(t->model)) FWA_TRY(backend->alloc(backend, (void **)&t->gates, fwa_trainer_gate_bytes(t)));
    FWA_TRY(allocate_reports(t));
    t->tokens = malloc(count * sizeof *t->tokens);
    t->targets = malloc(count * sizeof *t->targets);
    t->piece = malloc(2 * count / (size_t)t->world->sp_size * sizeof *t->piece);
    FWA_CHECK(t->tokens && t->targets && t->piece, FWA_MEMORY, "batch: out of memory for %zu tokens", count);
    return FWA_OK;
}

static fwa_status build(fwa_trainer *t, bool plan_only) {
    fwa_config *config = t->config;
    fwa_model_spec spec;
    FWA_CHECK(config->parallel.sp == t->world->sp_size, FWA_ERROR,
              "trainer: got ranks split for %d pieces of a sequence, expected parallel.sp %lld (fwa_world_split)",
              t->world->sp_size, (long long)config->parallel.sp);
    FWA_TRY(fwa_setup_layout(config, t->world));
    bool lm = config->task.name == FWA_TASK_LM; // needs files; its sizes are known without them
    if (!t->source && (!plan_only || !lm)) FWA_TRY(fwa_source_create(&t->source, config));
    int64_t vocab = t->source ? t->source->vocab : fwa_min(config->model.vocab_size, FWA_LM_VOCAB);
    int64_t T = (t->source ? t->source->T : fwa_source_length(config)) / t->world->sp_size;
    FWA_TRY(fwa_setup_model(&spec, config, vocab));
    FWA_TRY(fwa_setup_backend(&t->backend, config, t->world, plan_only));
    FWA_TRY(fwa_model_create(&t->model, &spec, t->backend, true));
    t->sharded = config->parallel.zero == 1 && t->world->size > 1;
    if (t->sharded) FWA_TRY(fwa_params_shard(&t->model->params, t->world->rank, t->world->size));
    int64_t m = config->train.micro_batch;
    // world->sp is of the same ranks as t->sp, which takes its place once there is memory.
    const fwa_pieces pieces = {t->world->sp, t->threads_most};
    FWA_TRY(fwa_activations_create(&t->acts, t->model, t->backend, m, T, true, pieces));
    if (config->eval.every > 0) FWA_TRY(fwa_activations_create(&t->eval, t->model, t->backend, m, T, false, pieces));
    t->accumulation = config->train.global_batch / (m * t->world->dp_size);
    if (plan_only) return FWA_OK;
    FWA_TRY(fwa_memory_check(t));
    fwa_status status = allocate(t);
    return status == FWA_MEMORY ? fwa_memory_explain(t) : status;
}

static fwa_status connect(fwa_trainer *t) {
    const fwa_config *config = t->config;
    const fwa_nccl_options options = {.max_ctas = FWA_RANKS_CTAS,
                                      .deterministic = config->debug.deterministic,
                                      .timeout_s = config->comm.first_timeout_s};
    FWA_TRY(fwa_ranks_connect(&t->comm, t->world->all, t->backend, &options));
    FWA_TRY(fwa_ranks_connect(&t->sp, t->world->sp, t->backend, &options));
    t->acts->ctx.sp = t->sp;
    if (t->eval) t->eval->ctx.sp = t->sp;
    return create_buckets(t);
}

// run.backend auto looks at each host for itself.
static fwa_status check_same_backend(const fwa_trainer *t) {
    int64_t most[2] = {t->backend->kind, -(int64_t)t->backend->kind};
    FWA_TRY(t->world->all->all_reduce(t->world->all, NULL, most, 2, FWA_I64, FWA_REDUCE_MAX));
    FWA_CHECK(
        most[0] == -most[1], FWA_CONFIG,
        "run.backend auto found a usable GPU on some ranks and none on others; see fwa info on every host, or set "
        "run.backend to cuda or cpu");
    return FWA_OK;
}

// Ranks that wait for each other come here only after all have built their part.
static fwa_status join_ranks(fwa_trainer *t) {
    FWA_TRY(check_same_backend(t));
    FWA_TRY(fwa_agree_data(t->world, t->source->fingerprint));
    FWA_TRY(fwa_world_agree(t->world, connect(t)));
    return fwa_world_agree(t->world, fwa_trainer_share(t));
}

fwa_status fwa_trainer_create(fwa_trainer **out, fwa_world *world, fwa_config *config, fwa_source *source,
                              bool plan_only) {
    fwa_trainer *t = calloc(1, sizeof *t);
    if (!t && source) source->destroy(source);
    FWA_CHECK(t, FWA_MEMORY, "trainer: out of memory");
    t->source = source;
    t->world = world;
    t->config = config;
    t->best_val_loss = NAN;
    t->threads_most = config->run.threads > 0 ? config->run.threads : world->cores;
    fwa_status status = world->all->all_reduce(world->all, NULL, &t->threads_most, 1, FWA_I64, FWA_REDUCE_MAX);
    if (status == FWA_OK) status = fwa_world_agree(world, build(t, plan_only));
    if (status == FWA_OK && !plan_only) status = join_ranks(t);
    if (status != FWA_OK) {
        fwa_trainer_destroy(t);
        return fwa_error_pass(status, __FILE__, __LINE__, __func__);
    }
    *out = t;
    return FWA_OK;
}

static void destroy_graphs(fwa_trainer *t) {
    for (int i = 0; i < 4 && t->backend; i++)
        if (t->graphs[i / 2][i % 2]) t->backend->graph_destroy(t->backend, t->graphs[i / 2][i % 2]);
    if (t->update_graph) t->backend->graph_destroy(t->backend, t->update_graph);
}

static void destroy_reports(fwa_trainer *t) {
    fwa_backend *backend = t->backend;
    for (int i = 0; i < FWA_STEPS_SENT; i++) {
        if (t->sent[i].done) backend->event_destroy(backend, t->sent[i].done);
        if (t->sent[i].state) backend->host_free(backend, t->sent[i].state);
        if (t->sent[i].gates) backend->host_free(backend, t->sent[i].gates);
    }
}

// Freeing memory waits for the device, which may itself wait for a peer that is gone until the communicator has ended;
// graphs go before the communicator whose operations they hold.
void fwa_trainer_destroy(fwa_trainer *t) {
    if (!t) return;
    destroy_graphs(t);
    fwa_buckets_destroy(t->buckets);
    fwa_ranks_leave(t->sp, t->world->sp);
    fwa_ranks_leave(t->comm, t->world->all);
    destroy_reports(t);
    fwa_activations_destroy(t->acts);
    fwa_activations_destroy(t->eval);
    fwa_optimizer_destroy(t->optimizer);
    fwa_model_destroy(t->model);
    if (t->state) t->backend->free(t->backend, t->state);
    if (t->eval_state) t->backend->free(t->backend, t->eval_state);
    if (t->gates) t->backend->free(t->backend, t->gates);
    if (t->source) t->source->destroy(t->source);
    if (t->backend) t->backend->destroy(t->backend);
    free(t->tokens);
    free(t->targets);
    free(t->piece);
    free(t);
}

fwa_status fwa_trainer_share(fwa_trainer *t) {
    return t->sharded ? fwa_params_gather(&t->model->params, t->comm, t->backend->stream) : FWA_OK;
}

fwa_status fwa_trainer_load(fwa_trainer *t, fwa_activations *acts) {
    const int64_t m = acts->ctx.B, T = acts->ctx.T, whole = t->source->T;
    if (T == whole) return fwa_model_load(acts, t->tokens, t->targets);
    for (int64_t i = 0; i < m; i++) {
        const int64_t from = i * whole + acts->ctx.position;
        memcpy(t->piece + i * T, t->tokens + from, (size_t)T * sizeof *t->piece);
        memcpy(t->piece + (m + i) * T, t->targets + from, (size_t)T * sizeof *t->piece);
    }
    return fwa_model_load(acts, t->piece, t->piece + m * T);
}

// Before every batch of a validation ranks ask each other whether one was told to stop: FWA_PREEMPTED then, on all. The
// host stays a few batches ahead of the device; no step is under way, so the events of their reports are free.
static fwa_status keep_pace(fwa_trainer *t, int64_t batch) {
    fwa_backend *backend = t->backend;
    fwa_comm *all = t->world->all;
    fwa_event *done = t->sent[batch % FWA_STEPS_SENT].done;
    int64_t stop = fwa_signals_pending() != 0;
    fwa_watchdog_expect(t->config->comm.first_timeout_s, "validation");
    FWA_TRY(all->all_reduce(all, NULL, &stop, 1, FWA_I64, FWA_REDUCE_SUM));
    t->stop = stop > 0;
    FWA_CHECK(!t->stop, FWA_PREEMPTED, "a signal came in a validation");
    if (batch >= FWA_STEPS_SENT) FWA_TRY(backend->event_synchronize(backend, done));
    return backend->event_record(backend, done, backend->stream);
}

// Fills up a batch that has fewer than m sequences left with sequences without loss.
static fwa_status load_validation(void *user, int64_t first, int64_t count) {
    fwa_trainer *t = user;
    int64_t m = t->config->train.micro_batch, T = t->source->T;
    FWA_TRY(keep_pace(t, first / (m * t->world->dp_size)));
    if (count > 0) FWA_TRY(t->source->fill(t->source, FWA_SPLIT_VAL, first, count, t->tokens, t->targets));
    for (int64_t i = count * T; i < m * T; i++) {
        t->tokens[i] = 0;
        t->targets[i] = FWA_NO_TARGET;
    }
    return fwa_trainer_load(t, t->eval);
}

fwa_status fwa_trainer_validate(fwa_trainer *t, double *loss) {
    const fwa_validation validation = {
        .world = t->world, .acts = t->eval, .state = t->eval_state, .load = load_validation, .user = t};
    int64_t wanted;
    double sum, valid;
    *loss = NAN;
    if (__builtin_mul_overflow(t->config->eval.batches, t->config->train.global_batch, &wanted)) wanted = INT64_MAX;
    fwa_status status = fwa_validate(&validation, fwa_min(wanted, t->source->sequences[FWA_SPLIT_VAL]), &sum, &valid);
    if (status == FWA_PREEMPTED) {
        fwa_error_clear();
        return FWA_OK;
    }
    FWA_TRY(status);
    FWA_TRY(fwa_choices_share(t));
    *loss = sum / valid;
    if (isnan(t->best_val_loss) || *loss < t->best_val_loss) t->best_val_loss = *loss;
    return FWA_OK;
}
