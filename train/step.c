// One training step, top to bottom:
//
//   clear gradients and sums -> for each micro-batch: load, forward, loss, backward -> sum gradients over ranks (during
//   the last backward pass) -> norm, clip factor, guard -> AdamW -> share the values where ranks update pieces of them
#include <string.h>

#include "train/optimizer.h"
#include "train/schedule.h"
#include "train/signals.h"
#include "train/trainer.h"

// What ranks tell each other once a step: sums over ranks.
typedef struct control {
    int64_t signals;
    int64_t token_hash; // wraps around
} control;

static fwa_status clear(fwa_trainer *t) {
    fwa_backend *backend = t->backend;
    fwa_arena *grads = t->model->params.arena[FWA_PARAM_GRAD];
    double rate = fwa_schedule_rate(t->config, t->step + 1);
    const double zeros[3] = {0.0, 0.0, 0.0};
    FWA_TRY(backend->fill(backend, backend->stream, fwa_arena_data(grads), 0, fwa_arena_bytes(grads)));
    FWA_TRY(backend->upload(backend, backend->stream, &t->state->loss_sum, zeros, sizeof zeros));
    return backend->upload(backend, backend->stream, &t->state->lr, &rate, sizeof rate);
}

static fwa_status bucket_done(void *user, int bucket) {
    fwa_trainer *t = user;
    return fwa_buckets_start(t->buckets, t->backend->stream, bucket);
}

static fwa_status micro_batches(fwa_trainer *t, control *mine) {
    int64_t m = t->config->train.micro_batch, G = t->config->train.global_batch, T = t->source->T;
    int64_t first = t->step * G + t->world->dp_rank * (G / t->world->dp_size);
    fwa_bucket_hook hook = {bucket_done, t};
    for (int64_t i = 0; i < t->accumulation; i++, first += m) {
        bool last = i + 1 == t->accumulation;
        FWA_TRY(t->source->fill(t->source, FWA_SPLIT_TRAIN, first, m, t->tokens, t->targets));
        mine->token_hash = (int64_t)((uint64_t)mine->token_hash + fwa_batch_hash(first, m, T, t->tokens, t->targets));
        FWA_TRY(fwa_model_load(t->acts, t->tokens, t->targets));
        FWA_TRY(fwa_model_train(t->model, t->acts, t->state, last ? &hook : NULL));
    }
    return FWA_OK;
}

static fwa_status reduce(fwa_trainer *t, control *all) {
    fwa_stream *stream = t->backend->stream;
    FWA_TRY(fwa_buckets_wait(t->buckets, stream));
    FWA_TRY(t->comm->all_reduce(t->comm, stream, &t->state->loss_sum, 2, FWA_F64, FWA_REDUCE_SUM)); // loss_sum, valid
    return t->world->all->all_reduce(t->world->all, stream, all, sizeof *all / sizeof(int64_t), FWA_I64,
                                     FWA_REDUCE_SUM);
}

fwa_status fwa_trainer_step(fwa_trainer *t, fwa_step_report *report) {
    const fwa_config *config = t->config;
    fwa_backend *backend = t->backend;
    const fwa_step_options options = {config->optimizer.clip, config->guard.spike_factor, config->guard.window};
    control sums = {fwa_signals_pending() != 0, 0};

    FWA_TRY(clear(t));
    FWA_TRY(micro_batches(t, &sums));
    FWA_TRY(reduce(t, &sums));
    FWA_TRY(fwa_optimizer_norm(t->model, backend, t->state));
    FWA_TRY(backend->ops->step_finish(backend->stream, t->state, &options));
    FWA_TRY(fwa_optimizer_update(t->model, backend, config, t->state));
    FWA_TRY(fwa_trainer_share(t));

    FWA_TRY(backend->download(backend, backend->stream, &report->state, t->state, sizeof report->state));
    FWA_TRY(backend->stream_synchronize(backend, backend->stream));
    report->token_hash = (uint64_t)sums.token_hash;
    report->stop = sums.signals > 0;
    t->step++;
    t->tokens_read += config->train.global_batch * t->source->T;
    FWA_CHECK(
        report->state.skipped_in_a_row < config->guard.max_skips, FWA_NONFINITE,
        "step %lld: %lld steps in a row had a loss or gradient that is not finite or far too large (loss %g, norm %g); "
        "nothing of them was applied; lower optimizer.lr, or resume from the last checkpoint",
        (long long)t->step, (long long)report->state.skipped_in_a_row, report->state.loss, report->state.grad_norm);
    return FWA_OK;
}
