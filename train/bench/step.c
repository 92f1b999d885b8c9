// fwa bench step CONFIG.yaml [key.path=value ...] [--steps N] [--eager] [--no-overlap] [--profile]: whole training
// steps on one repeated random batch.
//
// The check: the first loss is what the initial weights must give (guess.h), and training on the same batch, at a
// low learning rate of its own, brings it below that. The time is the median over steps after a warm-up, by the
// device's clock.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/rng.h"
#include "io/config.h"
#include "train/agreement.h"
#include "train/arguments.h"
#include "train/bench/bench.h"
#include "train/bench/guess.h"
#include "train/bench/profile.h"
#include "train/flops.h"
#include "train/memory.h"
#include "train/startup.h"
#include "train/traffic.h"

#define WARM_UP  3
#define PROFILED 3     // steps
#define LEARNED  0.999 // of the first loss: more than a repeated batch has left, less than one without updates

// A source of random tokens, so that a bench needs no files: every global batch is the same, drawn once, so that a
// step's host time is that of a step. Row r is ids r (T + 1) ... of `ids`.
typedef struct random_tokens {
    fwa_source source; // must stand first
    int32_t *ids;
} random_tokens;

static fwa_status fill_random(const fwa_source *source, fwa_split split, int64_t first, int64_t count, int32_t *tokens,
                              int32_t *targets) {
    const random_tokens *r = (const random_tokens *)source;
    const int64_t T = source->T;
    (void)split;
    for (int64_t i = 0; i < count; i++) {
        const int32_t *row = r->ids + (first + i) % source->sequences[FWA_SPLIT_TRAIN] * (T + 1);
        memcpy(tokens + i * T, row, (size_t)T * sizeof *tokens);
        memcpy(targets + i * T, row + 1, (size_t)T * sizeof *targets);
    }
    return FWA_OK;
}

static void destroy_random(fwa_source *source) {
    random_tokens *r = (random_tokens *)source;
    free(r->ids);
    free(r);
}

static fwa_status random_source(fwa_source **out, const fwa_config *config) {
    random_tokens *r = calloc(1, sizeof *r);
    FWA_CHECK(r, FWA_MEMORY, "bench: out of memory");
    fwa_source *source = *out = &r->source;
    source->name = "random tokens";
    source->T = config->train.seq_len > 0 ? config->train.seq_len : FWA_LM_LENGTH;
    source->vocab = fwa_min(config->model.vocab_size, FWA_LM_VOCAB);
    source->sequences[FWA_SPLIT_TRAIN] = source->sequences[FWA_SPLIT_VAL] = config->train.global_batch;
    source->fill = fill_random;
    source->destroy = destroy_random;
    const int64_t rows = config->train.global_batch, columns = source->T + 1;
    r->ids = calloc((size_t)(rows * columns), sizeof *r->ids);
    FWA_CHECK(r->ids, FWA_MEMORY, "bench: out of memory for %lld tokens", (long long)(rows * columns));
    for (int64_t i = 0; i < rows * columns; i++)
        r->ids[i] =
            (int32_t)fwa_rng_below(1, (uint64_t)(i / columns), (uint64_t)(i % columns), (uint64_t)source->vocab);
    return FWA_OK;
}

// Of every step after the warm-up: seconds from the end of the one before to its own by the device's clock, and what
// the host took to give it to the device.
typedef struct step_times {
    int steps;
    double *step, *host;
    fwa_event **ended;   // [steps + 1]: of the last step of the warm-up, and of each after it
    fwa_traffic traffic; // of the first step, which runs call by call
} step_times;

static fwa_status open_times(step_times *times, fwa_backend *backend, int steps) {
    times->steps = steps;
    times->step = calloc((size_t)steps, sizeof *times->step);
    times->host = calloc((size_t)steps, sizeof *times->host);
    times->ended = calloc((size_t)steps + 1, sizeof(fwa_event *));
    FWA_CHECK(times->step && times->host && times->ended, FWA_MEMORY, "bench: out of memory");
    for (int i = 0; i <= steps; i++) FWA_TRY(backend->timer_create(backend, &times->ended[i]));
    return FWA_OK;
}

static void close_times(step_times *times, fwa_backend *backend) {
    for (int i = 0; times->ended && i <= times->steps; i++) backend->event_destroy(backend, times->ended[i]);
    free(times->step);
    free(times->host);
    free((void *)times->ended);
}

static fwa_status give_step(fwa_trainer *t, step_times *times) {
    int64_t i = t->step - WARM_UP;
    const fwa_traffic before = fwa_traffic_of(t);
    double start = fwa_bench_now();
    FWA_TRY(fwa_trainer_step(t));
    if (t->step == 1) {
        const fwa_traffic now = fwa_traffic_of(t);
        times->traffic =
            (fwa_traffic){now.reduced - before.reduced, now.shared - before.shared, now.exchanged - before.exchanged};
    }
    if (i >= 0) times->host[i] = fwa_bench_now() - start;
    return i >= -1 ? t->backend->event_record(t->backend, times->ended[i + 1], t->backend->stream) : FWA_OK;
}

typedef struct step_losses {
    fwa_bench_guess guess; // of the first step's
    double first, last;
} step_losses;

// The first step, with a look at what the head gets in it.
static fwa_status first_step(fwa_trainer *t, step_times *times, fwa_bench_guess *guess) {
    void *embedding = NULL;
    fwa_status status;
    FWA_TRY_GOTO(fwa_world_agree(t->world, fwa_bench_guess_embedding(t, &embedding)), done);
    FWA_TRY_GOTO(give_step(t, times), done);
    FWA_TRY_GOTO(fwa_bench_guess_take(guess, t, embedding), done);
done:
    free(embedding);
    return status;
}

// The device has its next step while the host waits for the one before, as in training.
static fwa_status time_steps(fwa_trainer *t, step_times *times, step_losses *out) {
    fwa_step_report report;
    fwa_backend *backend = t->backend;
    const int all = WARM_UP + times->steps;
    FWA_TRY(first_step(t, times, &out->guess));
    for (int i = 0; i < all; i++) {
        while (t->step <= i + t->ahead && t->step < all) FWA_TRY(give_step(t, times));
        FWA_TRY(fwa_trainer_report(t, &report));
        if (i == 0) out->first = report.state.loss;
        out->last = report.state.loss;
    }
    FWA_TRY(backend->stream_synchronize(backend, backend->stream));
    for (int i = 0; i < times->steps; i++)
        FWA_TRY(backend->timer_seconds(backend, times->ended[i], times->ended[i + 1], &times->step[i]));
    return FWA_OK;
}

// Of the rank that has most: planned, its tensors; used, on its device (CPU: by its process). Bytes that ranks moved.
static fwa_status gather_bytes(fwa_trainer *t, fwa_traffic *traffic, int64_t *planned, int64_t *used) {
    fwa_comm *all = t->world->all;
    size_t here, total;
    FWA_TRY(t->backend->memory(t->backend, &here, &total));
    int64_t most[2] = {(int64_t)fwa_memory_planned(t).total, (int64_t)here};
    int64_t sums[2] = {traffic->shared, traffic->exchanged};
    FWA_TRY(all->all_reduce(all, NULL, most, 2, FWA_I64, FWA_REDUCE_MAX));
    FWA_TRY(all->all_reduce(all, NULL, sums, 2, FWA_I64, FWA_REDUCE_SUM));
    *planned = most[0];
    *used = most[1];
    traffic->shared = sums[0];
    traffic->exchanged = sums[1];
    return FWA_OK;
}

static double mean(const double *seconds, int count) {
    double sum = 0;
    for (int i = 0; i < count; i++) sum += seconds[i];
    return sum / count;
}

// One line of JSON.
static fwa_status print_result(fwa_trainer *t, step_times *times, const step_losses *losses) {
    char mfu[32];
    double peak;
    int64_t planned, used;
    fwa_traffic traffic = times->traffic;
    const double average = mean(times->step, times->steps), median = fwa_bench_median(times->step, times->steps);
    const double host = fwa_bench_median(times->host, times->steps);
    const double tokens = (double)(t->config->train.global_batch * t->source->T), flops = fwa_startup_flops(t);
    FWA_TRY(gather_bytes(t, &traffic, &planned, &used));
    FWA_TRY(fwa_startup_peak(t->backend, &peak));
    const double share = fwa_flops_mfu(flops, tokens / median, peak, t->world->size);
    snprintf(mfu, sizeof mfu, "%.4f", share);
    if (isnan(share)) snprintf(mfu, sizeof mfu, "null");
    if (t->world->rank != 0) return FWA_OK;
    printf("{\"bench\": \"step\", \"config\": \"%s\", \"parameters\": %lld, \"ranks\": %d, \"threads\": %d, "
           "\"tokens\": %.0f, \"ms_median\": %.3f, \"ms_min\": %.3f, \"ms_mean\": %.3f, \"ms_host\": %.3f, "
           "\"tokens_per_s\": %.1f, \"gflops\": %.2f, \"mfu\": %s, \"planned_bytes\": %lld, \"mem_bytes\": %lld, "
           "\"reduced_bytes\": %lld, \"shared_bytes\": %lld, \"exchanged_bytes\": %lld, "
           "\"exchanged_expected\": %lld, \"first_loss\": %.4f, \"last_loss\": %.4f}\n",
           t->config->run.name, (long long)fwa_params_count(&t->model->params), t->world->size, t->backend->threads,
           tokens, 1e3 * median, 1e3 * times->step[0], 1e3 * average, 1e3 * host, tokens / median,
           1e-9 * flops * tokens / median, mfu, (long long)planned, (long long)used, (long long)traffic.reduced,
           (long long)traffic.shared, (long long)traffic.exchanged, (long long)fwa_traffic_expected(t), losses->first,
           losses->last);
    return FWA_OK;
}

static fwa_status check_losses(const fwa_trainer *t, int steps, const step_losses *losses) {
    FWA_TRY(
        fwa_bench_guess_check(&losses->guess, losses->first, (double)(t->config->train.global_batch * t->source->T)));
    FWA_CHECK(
        losses->last < LEARNED * losses->first, FWA_FAULTY,
        "bench step: check failed: after %d steps on the same batch the loss is %.4f, expected under %.4f (at the "
        "start: %.4f); no time is reported",
        steps, losses->last, LEARNED * losses->first, losses->first);
    return FWA_OK;
}

static fwa_status measure(fwa_trainer *t, int steps) {
    step_losses losses = {.first = NAN, .last = NAN};
    step_times times = {0};
    fwa_status status = FWA_OK;
    FWA_TRY_GOTO(fwa_world_agree(t->world, open_times(&times, t->backend, steps)), done);
    FWA_TRY_GOTO(time_steps(t, &times, &losses), done);
    FWA_TRY_GOTO(check_losses(t, WARM_UP + steps, &losses), done);
    FWA_TRY_GOTO(print_result(t, &times, &losses), done);
done:
    close_times(&times, t->backend);
    return status;
}

// Ranks that share sequences wait for each other: a table of each of them, in order.
static fwa_status print_tables(const fwa_world *world, const char *table) {
    for (int r = 0; r < world->sp_size; r++) {
        if (world->dp_rank == 0 && world->sp_rank == r) {
            if (world->sp_size > 1) printf("Rank %d:\n", world->rank);
            fputs(table, stdout);
            fflush(stdout);
        }
        FWA_TRY(world->all->barrier(world->all));
    }
    return FWA_OK;
}

// Steps behind the timed ones, by parts.
static fwa_status profile_steps(fwa_trainer *t) {
    fwa_profile *profile = NULL;
    fwa_step_report report;
    char *table = NULL;
    fwa_status status = FWA_OK;
    FWA_TRY_GOTO(fwa_world_agree(t->world, fwa_profile_create(&profile, t)), done);
    for (int i = 0; i < PROFILED; i++) {
        FWA_TRY_GOTO(fwa_profile_step(profile), done);
        FWA_TRY_GOTO(fwa_trainer_report(t, &report), done);
    }
    table = fwa_profile_table(profile);
    FWA_CHECK_GOTO(table, FWA_MEMORY, done, "bench: out of memory");
    FWA_TRY_GOTO(print_tables(t->world, table), done);
done:
    free(table);
    fwa_profile_destroy(profile);
    return status;
}

static const fwa_option options[] = {
    {"--steps", true}, {"--eager", false}, {"--no-overlap", false}, {"--profile", false}, {NULL, false}};

static fwa_status read_words(fwa_arguments *arguments, int64_t *steps, int argc, char **argv) {
    FWA_TRY(fwa_arguments_parse(arguments, options, argc, argv));
    FWA_CHECK(arguments->count >= 1, FWA_USAGE, "fwa bench step: no configuration given (fwa help bench)");
    return fwa_arguments_integer(arguments, "--steps", 20, 1, 100000, steps);
}

fwa_status fwa_bench_step(fwa_world *world, int argc, char **argv) {
    fwa_arguments arguments;
    fwa_config *config = NULL;
    fwa_source *source = NULL, *given;
    fwa_trainer *trainer = NULL;
    int64_t steps;
    fwa_status status = FWA_OK;
    FWA_TRY(fwa_world_agree(world, read_words(&arguments, &steps, argc, argv)));
    FWA_TRY(fwa_agree_options(world, options, &arguments));
    FWA_TRY_GOTO(
        fwa_world_agree(world, fwa_config_load(&config, arguments.at[0], arguments.at + 1, arguments.count - 1)), done);
    FWA_TRY_GOTO(fwa_agree_config(world, config), done);
    FWA_TRY_GOTO(fwa_world_split(world, (int)config->parallel.sp), done);
    // A step moves logits by about D times the rate. At ten times this one a Transformer's loss may rise in its first
    // steps without a warm-up, so that the recipe's own would tell nothing.
    config->optimizer.lr = 0.08 / (double)config->model.d_model;
    config->schedule.kind = FWA_SCHEDULE_CONSTANT;
    config->schedule.warmup = 0;
    FWA_TRY_GOTO(fwa_world_agree(world, random_source(&source, config)), done);
    given = source;
    source = NULL; // the trainer's from here on
    FWA_TRY_GOTO(fwa_trainer_create(&trainer, world, config, given, false), done);
    trainer->eager = fwa_arguments_flag(&arguments, "--eager");
    trainer->no_overlap = fwa_arguments_flag(&arguments, "--no-overlap");
    FWA_TRY_GOTO(measure(trainer, (int)steps), done);
    if (fwa_arguments_flag(&arguments, "--profile")) FWA_TRY_GOTO(profile_steps(trainer), done);
done:
    if (source) source->destroy(source);
    fwa_trainer_destroy(trainer);
    fwa_config_destroy(config);
    return status;
}
