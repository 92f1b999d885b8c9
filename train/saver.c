// The phases of a save, and the thread that does their work.
#include "train/saver.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/clock.h"
#include "core/log.h"
#include "dist/watchdog.h"
#include "train/choices.h"
#include "train/libraries.h"
#include "train/progress.h"
#include "train/snapshot.h"

#define NAP_LEAST_NS 200000 // between two looks at a save that is waited for
#define NAP_MOST_NS  20000000

typedef enum phase { PHASE_NONE, PHASE_FOLDER, PHASE_SHARDS, PHASE_PUBLISH } phase;

struct fwa_saver {
    const fwa_run *run;
    fwa_trainer *trainer;
    int shard;              // this rank's; -1: another rank holds the same rows and writes them
    fwa_snapshot *snapshot; // NULL: writes no shard
    pthread_t thread;
    bool running;
    pthread_mutex_t mutex;
    pthread_cond_t wake;
    phase job; // under the mutex, as is `stop`: what the thread is to do; it sets PHASE_NONE when that is done
    bool stop;
    fwa_status result; // of the last job
    char message[2048];
    phase phase;    // of the save under way
    int64_t posted; // steps given when the phase began: what ranks have told each other by then is older
    fwa_checkpoint_writer *writer;
    fwa_checkpoint_state state;
    char *config, *choices; // owned; in `state`
    double started, waited; // clock; seconds that training stood still
    double seconds[PHASE_PUBLISH + 1];
};

static int64_t checkpoint_bytes(const fwa_trainer *t) {
    return 3 * (int64_t)fwa_params_bytes(&t->model->params, FWA_PARAM_GRAD); // of the whole model
}

// The room on the disk is asked for before any rank writes.
static fwa_status begin(fwa_saver *s) {
    const int64_t bytes = s->shard == 0 ? checkpoint_bytes(s->trainer) : 0;
    if (s->shard == 0) FWA_TRY(fwa_run_check_folder(s->run));
    return fwa_checkpoint_begin(&s->writer, s->run->path, s->state.step, s->shard, bytes);
}

static fwa_status write_shard(fwa_saver *s) {
    const fwa_snapshot *snapshot = s->snapshot;
    if (s->shard > 0) FWA_TRY(begin(s));
    FWA_TRY(fwa_snapshot_wait(s->snapshot));
    FWA_TRY(fwa_snapshot_check(snapshot));
    return fwa_checkpoint_write_shard(s->writer, (const fwa_named_tensor *const *)snapshot->named, snapshot->count);
}

static fwa_status publish(fwa_saver *s) {
    const fwa_config *config = s->run->config;
    FWA_TRY(fwa_run_check_folder(s->run));
    FWA_TRY(fwa_checkpoint_publish(s->writer, s->trainer->sharded ? s->trainer->world->size : 1, &s->state));
    // What is kept too long is no reason to end the run.
    if (fwa_checkpoint_prune(s->run->path, config->checkpoint.keep_last, config->checkpoint.keep_every) != FWA_OK)
        fwa_log_warn("old checkpoints stay: %s", fwa_error_message());
    return FWA_OK;
}

static void work(fwa_saver *s, phase job) {
    double start = fwa_clock_seconds();
    fwa_error_clear();
    s->result = job == PHASE_FOLDER ? begin(s) : job == PHASE_SHARDS ? write_shard(s) : publish(s);
    snprintf(s->message, sizeof s->message, "%s", s->result == FWA_OK ? "" : fwa_error_message());
    s->seconds[job] = fwa_clock_seconds() - start;
}

static void *run_thread(void *arg) {
    fwa_saver *s = arg;
    pthread_mutex_lock(&s->mutex);
    for (;;) {
        while (s->job == PHASE_NONE && !s->stop) pthread_cond_wait(&s->wake, &s->mutex);
        if (s->job == PHASE_NONE) break;
        phase job = s->job;
        pthread_mutex_unlock(&s->mutex);
        work(s, job);
        pthread_mutex_lock(&s->mutex);
        s->job = PHASE_NONE;
    }
    pthread_mutex_unlock(&s->mutex);
    return NULL;
}

static fwa_status start_thread(fwa_saver *s) {
    sigset_t all, before; // signals are for the thread that trains
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int code = pthread_create(&s->thread, NULL, run_thread, s);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    FWA_CHECK(code == 0, FWA_IO, "cannot start the thread that writes checkpoints: %s", strerror(code));
    s->running = true;
    return FWA_OK;
}

fwa_status fwa_saver_create(fwa_saver **out, const fwa_run *run, fwa_trainer *trainer) {
    fwa_saver *s = calloc(1, sizeof *s);
    FWA_CHECK(s, FWA_MEMORY, "no memory for saving checkpoints");
    s->run = run;
    s->trainer = trainer;
    s->shard = trainer->sharded ? trainer->world->rank : trainer->world->rank == 0 ? 0 : -1;
    pthread_mutex_init(&s->mutex, NULL);
    pthread_cond_init(&s->wake, NULL);
    fwa_status status = FWA_OK;
    if (s->shard >= 0) {
        FWA_TRY_GOTO(fwa_snapshot_create(&s->snapshot, trainer->model, trainer->backend), failed);
        FWA_TRY_GOTO(start_thread(s), failed);
    }
    *out = s;
    return FWA_OK;
failed:
    fwa_saver_destroy(s);
    return status;
}

static void forget_save(fwa_saver *s) {
    fwa_checkpoint_end(s->writer);
    s->writer = NULL;
    free(s->config);
    free(s->choices);
    s->config = s->choices = NULL;
    s->phase = PHASE_NONE;
}

void fwa_saver_destroy(fwa_saver *s) {
    if (!s) return;
    if (s->running) {
        pthread_mutex_lock(&s->mutex);
        s->stop = true;
        pthread_cond_signal(&s->wake);
        pthread_mutex_unlock(&s->mutex);
        pthread_join(s->thread, NULL);
    }
    forget_save(s);
    pthread_cond_destroy(&s->wake);
    pthread_mutex_destroy(&s->mutex);
    fwa_snapshot_destroy(s->snapshot);
    free(s);
}

bool fwa_saver_works(fwa_saver *s) {
    pthread_mutex_lock(&s->mutex);
    bool works = s->job != PHASE_NONE;
    pthread_mutex_unlock(&s->mutex);
    return works;
}

// Begins a phase: work for the threads of the ranks that take part.
static void post(fwa_saver *s, phase next) {
    const bool mine = next == PHASE_SHARDS ? s->shard >= 0 : s->trainer->world->rank == 0;
    s->phase = next;
    s->posted = s->trainer->step;
    s->result = FWA_OK;
    if (!mine) return;
    pthread_mutex_lock(&s->mutex);
    s->job = next;
    pthread_cond_signal(&s->wake);
    pthread_mutex_unlock(&s->mutex);
}

static void report(const fwa_saver *s) {
    char bytes[32];
    if (s->trainer->world->rank != 0) return;
    fwa_progress_clear();
    fwa_log_info("saved checkpoint at step %lld (%s in %.2f s: shards %.2f s, publishing %.2f s; training stood still "
                 "for %.2f s)",
                 (long long)s->state.step, fwa_text_bytes(checkpoint_bytes(s->trainer), bytes),
                 fwa_clock_seconds() - s->started, s->seconds[PHASE_SHARDS], s->seconds[PHASE_PUBLISH], s->waited);
}

// No thread is at work on any rank.
static fwa_status next_phase(fwa_saver *s) {
    fwa_world *world = s->trainer->world;
    fwa_status mine = s->result;
    if (mine != FWA_OK) mine = fwa_error_raise(mine, __FILE__, __LINE__, __func__, "%s", s->message);
    fwa_status status = fwa_world_agree(world, mine);
    if (status == FWA_OK && s->phase != PHASE_PUBLISH) {
        post(s, s->phase + 1);
        return FWA_OK;
    }
    if (status == FWA_OK) report(s);
    forget_save(s);
    // A rank that leaves ends the others: not before what could not be saved is cleared away.
    if (status != FWA_OK && status != FWA_TIMEOUT && status != FWA_COMM) status = fwa_world_agree(world, status);
    return status;
}

fwa_status fwa_saver_advance(fwa_saver *s) {
    const fwa_trainer *t = s->trainer;
    if (s->phase == PHASE_NONE || t->writers > 0 || t->step == s->posted) return FWA_OK;
    return next_phase(s);
}

fwa_status fwa_saver_wait(fwa_saver *s) {
    const double start = fwa_clock_seconds() - s->waited, limit = s->run->config->comm.timeout_s;
    fwa_comm *all = s->trainer->world->all;
    int64_t nap = NAP_LEAST_NS;
    fwa_world_set_timeout(s->trainer->world, limit);
    while (s->phase != PHASE_NONE) {
        int64_t works = fwa_saver_works(s);
        fwa_watchdog_expect(limit, "saving");
        if (works) nanosleep(&(struct timespec){.tv_nsec = nap}, NULL);
        nap = fwa_min(2 * nap, NAP_MOST_NS);
        FWA_TRY(all->all_reduce(all, NULL, &works, 1, FWA_I64, FWA_REDUCE_SUM));
        s->waited = fwa_clock_seconds() - start;
        if (works == 0) FWA_TRY(next_phase(s));
    }
    return FWA_OK;
}

// All that a checkpoint says besides tensors.
static fwa_status fill_state(fwa_saver *s) {
    const fwa_trainer *t = s->trainer;
    const fwa_config *config = s->run->config;
    fwa_backend *backend = t->backend;
    fwa_step_state state;
    FWA_TRY(backend->download(backend, backend->stream, &state, t->state, sizeof state));
    FWA_TRY(backend->stream_synchronize(backend, backend->stream));
    s->config = fwa_config_text(config);
    FWA_CHECK(s->config, FWA_MEMORY, "checkpoint: out of memory for the configuration");
    FWA_TRY(fwa_choices_get(t, &s->choices));
    s->state =
        (fwa_checkpoint_state){.step = t->step,
                               .tokens = t->tokens_read,
                               .accepted = state.accepted,
                               .skipped = state.skipped,
                               .skipped_in_a_row = state.skipped_in_a_row,
                               .norm_mean = state.norm_mean,
                               .seed = config->run.seed,
                               .epoch = t->step * config->train.global_batch / t->source->sequences[FWA_SPLIT_TRAIN],
                               .data_fingerprint = t->source->fingerprint,
                               .config_hash = fwa_config_hash(config),
                               .best_val_loss = t->best_val_loss,
                               .config = s->config,
                               .version = fwa_program_text(),
                               .command = s->run->command,
                               .choices = s->choices};
    return FWA_OK;
}

static fwa_status take(fwa_saver *s) {
    fwa_trainer *t = s->trainer;
    FWA_TRY(fill_state(s));
    if (!s->snapshot) return FWA_OK;
    FWA_TRY(fwa_snapshot_take(s->snapshot));
    t->copied = s->snapshot->copied;
    return FWA_OK;
}

fwa_status fwa_saver_start(fwa_saver *s) {
    const fwa_trainer *t = s->trainer;
    if (s->phase != PHASE_NONE && t->world->rank == 0)
        fwa_log_warn("the checkpoint of step %lld is still being written at step %lld: training waits for it; raise "
                     "checkpoint.every if this happens again",
                     (long long)s->state.step, (long long)t->step);
    FWA_TRY(fwa_saver_wait(s));
    s->started = fwa_clock_seconds();
    s->waited = 0.0;
    FWA_TRY(fwa_world_agree(t->world, take(s)));
    s->waited = fwa_clock_seconds() - s->started;
    post(s, PHASE_FOLDER);
    return FWA_OK;
}
