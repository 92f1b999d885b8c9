// One training step, top to bottom. The host gives it to the device and waits for nothing:
//
//   clear sums -> for each micro-batch: load it, run its micro-step -> state on its way to the host
//   micro-step: forward, loss, backward; the first one overwrites the gradients of matrices, so only the others are
//   cleared; the last one also: sum gradients over ranks (while the backward pass goes on); then sums of gates, where
//   the report is to have them
//   -> update: norm, clip factor, guard -> AdamW -> share the values where ranks update pieces of them
//
// All that changes from step to step is in device memory, so micro-steps and the update are recorded once and launched
// as graphs from then on, where the backend has graphs. Between the two the update waits for a snapshot under way.
#include <math.h>
#include <string.h>

#include "core/range.h"
#include "train/choices.h"
#include "train/schedule.h"
#include "train/signals.h"
#include "train/trainer.h"

// What ranks tell each other once a step: sums over ranks.
typedef struct control {
    int64_t signals;
    int64_t token_hash; // wraps around
    int64_t writers;
} control;

static fwa_status clear(fwa_trainer *t) {
    fwa_backend *backend = t->backend;
    const double start[4] = {0.0, 0.0, 0.0, fwa_schedule_rate(t->config, t->step + 1)}; // loss_sum to lr
    FWA_TRY(fwa_params_clear_added(&t->model->params, backend));
    return backend->upload(backend, backend->stream, &t->state->loss_sum, start, sizeof start);
}

static fwa_status bucket_done(void *user, int bucket) {
    fwa_trainer *t = user;
    return fwa_buckets_start(t->buckets, t->backend->stream, bucket);
}

static fwa_status accumulate(void *user) {
    fwa_trainer *t = user;
    return fwa_model_train(t->acts, t->state, NULL);
}

// The last gradients and the sums of the step: loss_sum and valid.
static fwa_status reduce(fwa_trainer *t) {
    fwa_stream *stream = t->backend->stream;
    FWA_TRY(fwa_buckets_wait(t->buckets, stream));
    return t->comm->all_reduce(t->comm, stream, &t->state->loss_sum, 2, FWA_F64, FWA_REDUCE_SUM);
}

static fwa_status train_last(void *user) {
    fwa_trainer *t = user;
    const fwa_bucket_hook hook = {bucket_done, t};
    FWA_TRY(fwa_model_train(t->acts, t->state, t->no_overlap ? NULL : &hook));
    for (int i = 0; t->no_overlap && i < t->model->params.buckets; i++) FWA_TRY(bucket_done(t, i));
    FWA_TRY_RANGE(t->backend, "wait for gradients", reduce(t));
    return FWA_OK;
}

static fwa_status optimize(fwa_trainer *t) {
    fwa_backend *backend = t->backend;
    const fwa_config *config = t->config;
    const fwa_step_options options = {config->optimizer.clip, config->guard.spike_factor, config->guard.window};
    FWA_TRY(fwa_optimizer_norm(t->optimizer, t->state));
    FWA_TRY(backend->ops->step_finish(backend->stream, t->state, &options));
    return fwa_optimizer_update(t->optimizer, t->state);
}

static fwa_status update(void *user) {
    fwa_trainer *t = user;
    FWA_TRY_RANGE(t->backend, "optimizer", optimize(t));
    FWA_TRY_RANGE(t->backend, "share values", fwa_trainer_share(t));
    return FWA_OK;
}

// The first step runs call by call: operators measure and set up on their first use.
static fwa_status run_part(fwa_trainer *t, fwa_graph **graph, fwa_status (*work)(void *)) {
    fwa_backend *backend = t->backend;
    if (!backend->graph_record || !t->warm || t->eager) return work(t);
    if (!*graph) FWA_TRY(backend->graph_record(backend, backend->stream, work, t, graph));
    return backend->graph_launch(backend, backend->stream, *graph);
}

static fwa_status wait_for_copy(fwa_trainer *t) {
    fwa_event *copied = t->copied;
    t->copied = NULL;
    return copied ? t->backend->stream_wait(t->backend, t->backend->stream, copied) : FWA_OK;
}

// Whether the step under way sums up gates: call by call behind each micro-step, as only some steps do.
static bool has_gates(const fwa_trainer *t) {
    return t->wants_gates && t->gates;
}

static fwa_status micro_step(fwa_trainer *t, bool first, bool last) {
    fwa_graph **graph = &t->graphs[first][last];
    t->acts->ctx.fresh = first;
    FWA_TRY(run_part(t, graph, last ? train_last : accumulate));
    if (has_gates(t)) FWA_TRY_RANGE(t->backend, "sums of gates", fwa_model_gates(t->acts, t->gates));
    if (!last) return FWA_OK;
    FWA_TRY(wait_for_copy(t));
    return run_part(t, &t->update_graph, update);
}

static fwa_status micro_batches(fwa_trainer *t, control *mine) {
    int64_t m = t->config->train.micro_batch, G = t->config->train.global_batch, T = t->source->T;
    int64_t first = t->step * G + t->world->dp_rank * (G / t->world->dp_size);
    for (int64_t i = 0; i < t->accumulation; i++, first += m) {
        FWA_TRY_RANGE(t->backend, "read tokens",
                      t->source->fill(t->source, FWA_SPLIT_TRAIN, first, m, t->tokens, t->targets));
        // Ranks that share sequences have read the same ones: one of them counts.
        if (t->world->sp_rank == 0)
            mine->token_hash =
                (int64_t)((uint64_t)mine->token_hash + fwa_batch_hash(first, m, T, t->tokens, t->targets));
        FWA_TRY_RANGE(t->backend, "load tokens", fwa_trainer_load(t, t->acts));
        FWA_TRY(micro_step(t, i == 0, i + 1 == t->accumulation));
    }
    return FWA_OK;
}

fwa_status fwa_trainer_step(fwa_trainer *t) {
    fwa_backend *backend = t->backend;
    fwa_comm *all = t->world->all;
    fwa_step_sent *sent = &t->sent[t->step % FWA_STEPS_SENT];
    control sums = {.writers = t->writing};
    FWA_CHECK(t->step - t->reported < FWA_STEPS_SENT, FWA_ERROR,
              "got step %lld, expected the report of step %lld before it", (long long)t->step + 1,
              (long long)t->reported + 1);

    FWA_TRY_RANGE(backend, "clear gradients", clear(t));
    sent->has_gates = has_gates(t);
    if (sent->has_gates) FWA_TRY(backend->fill(backend, backend->stream, t->gates, 0, fwa_trainer_gate_bytes(t)));
    FWA_TRY(micro_batches(t, &sums));
    FWA_TRY(backend->download(backend, backend->stream, sent->state, t->state, sizeof *sent->state));
    if (sent->has_gates)
        FWA_TRY(backend->download(backend, backend->stream, sent->gates, t->gates, fwa_trainer_gate_bytes(t)));
    FWA_TRY(backend->event_record(backend, sent->done, backend->stream));
    sums.signals = fwa_signals_pending() != 0;
    FWA_TRY(all->all_reduce(all, NULL, &sums, sizeof sums / sizeof(int64_t), FWA_I64, FWA_REDUCE_SUM));

    if (!t->warm) FWA_TRY(fwa_choices_share(t));
    t->warm = true;
    t->step++;
    t->tokens_read += t->config->train.global_batch * t->source->T;
    t->stop = sums.signals > 0;
    t->writers = sums.writers;
    sent->tokens = t->tokens_read;
    sent->token_hash = (uint64_t)sums.token_hash;
    return FWA_OK;
}

// Of all ranks, in each layer and together.
static fwa_status sum_gates(const fwa_trainer *t, fwa_gate_sums *layers, fwa_step_report *report) {
    fwa_comm *all = t->world->all;
    const int64_t L = t->model->spec.L;
    fwa_gate_sums *sum = &report->gates;
    FWA_TRY(all->all_reduce(all, NULL, layers, L * FWA_GATE_SUMS, FWA_F64, FWA_REDUCE_SUM));
    for (const fwa_gate_sums *of = layers; of < layers + L; of++) {
        sum->steps += of->steps;
        sum->eta += of->eta;
        sum->alpha += of->alpha;
        sum->ridge += of->ridge;
        sum->clamped += of->clamped;
    }
    report->layers = layers;
    return FWA_OK;
}

fwa_status fwa_trainer_report(fwa_trainer *t, fwa_step_report *report) {
    fwa_backend *backend = t->backend;
    const fwa_step_sent *sent = &t->sent[t->reported % FWA_STEPS_SENT];
    FWA_CHECK(t->reported < t->step, FWA_ERROR, "got no step without report, expected one");
    FWA_TRY(backend->event_synchronize(backend, sent->done));
    t->reported++;
    *report = (fwa_step_report){
        .state = *sent->state, .step = t->reported, .tokens = sent->tokens, .token_hash = sent->token_hash};
    if (sent->has_gates) FWA_TRY(sum_gates(t, sent->gates, report));
    const fwa_step_state *state = &report->state;
    FWA_CHECK(state->skipped_in_a_row < t->config->guard.max_skips, FWA_NONFINITE,
              "step %lld: %lld step%s in a row had a loss or gradient that is not finite or far too large (loss %g, "
              "norm %g); nothing of them was applied; lower optimizer.lr, or resume from the last checkpoint",
              (long long)report->step, (long long)state->skipped_in_a_row, fwa_plural(state->skipped_in_a_row),
              fabs(state->loss), fabs(state->grad_norm)); // a NaN without its sign
    return FWA_OK;
}
