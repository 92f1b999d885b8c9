// fwa train CONFIG.yaml [key.path=value ...] [--resume none|auto|PATH] [--init-from CKPT] [--dry-run] [--print-config]
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/clock.h"
#include "core/log.h"
#include "dist/watchdog.h"
#include "kernels/registry.h"
#include "train/agreement.h"
#include "train/arguments.h"
#include "train/bench/profile.h"
#include "train/commands.h"
#include "train/flops.h"
#include "train/progress.h"
#include "train/run.h"
#include "train/saver.h"
#include "train/setup.h"
#include "train/signals.h"
#include "train/startup.h"
#include "train/weights.h"

#define END_SECONDS  12.0 // to leave after a failure
#define LOOK_SECONDS 1.0  // between two looks at the memory in use

typedef struct session {
    fwa_run *run;
    fwa_trainer *trainer;
    fwa_saver *saver;
    double flops; // a token
    double peak;  // FLOP/s of the rank's device by its data sheet; NaN on a CPU
    // Clock at the end of the last step and of the last logged one, moved on by what was not training since.
    double ended, since;
    int64_t since_step;
    fwa_profile *profile; // while steps are timed by parts
    int64_t start;        // steps done before this start
    size_t used;          // bytes of the device, as they were when `looked`
    double looked;
    char lost[1024]; // why a row of metrics could not be written; empty: all were
} session;

// Nothing is allocated after the first step, and asking a device takes time: often enough is once a while.
static fwa_status look_at_memory(session *s) {
    const double time = fwa_clock_seconds();
    size_t total;
    if (s->used > 0 && time - s->looked < LOOK_SECONDS) return FWA_OK;
    s->looked = time;
    return s->trainer->backend->memory(s->trainer->backend, &s->used, &total);
}

static fwa_layer_gates means_of(const fwa_gate_sums *gates) { // of no steps: NaN
    return (fwa_layer_gates){.gamma_mean = 1 - gates->alpha / gates->steps,
                             .eta_mean = gates->eta / gates->steps,
                             .ridge_mean = gates->ridge / gates->steps,
                             .clamp_share = gates->clamped / gates->steps};
}

static fwa_status write_gates(const session *s, const fwa_step_report *report) {
    const int64_t L = s->trainer->model->spec.L;
    if (!report->layers) return FWA_OK;
    fwa_layer_gates *means = malloc((size_t)L * sizeof *means);
    FWA_CHECK(means, FWA_MEMORY, "no memory for the gates of %lld layers", (long long)L);
    for (int64_t l = 0; l < L; l++) means[l] = means_of(&report->layers[l]);
    fwa_status status = fwa_metrics_write_gates(s->run->gates, report->step, means, L);
    free(means);
    FWA_TRY(status);
    return FWA_OK;
}

// A row that cannot be written is no reason to lose the steps since the last checkpoint: the run saves and ends.
static void write_row(session *s, const fwa_metrics_row *row, const fwa_step_report *report) {
    if (fwa_metrics_write(s->run->metrics, row) == FWA_OK && write_gates(s, report) == FWA_OK) return;
    if (!s->lost[0]) {
        snprintf(s->lost, sizeof s->lost, "%s", fwa_error_message());
        fwa_log_error("%s: the run saves and ends", s->lost);
    }
    fwa_error_clear();
    fwa_signals_request();
}

// One line and one row of metrics about a step.
static fwa_status report_step(session *s, const fwa_step_report *report, double val_loss, bool line) {
    const fwa_trainer *t = s->trainer;
    const fwa_config *config = t->config;
    const fwa_layer_gates gates = means_of(&report->gates);
    double elapsed = s->ended - s->since;
    int64_t steps = report->step - s->since_step;
    if (t->world->rank != 0) return FWA_OK;
    FWA_TRY(look_at_memory(s));
    double each = steps > 0 ? elapsed / (double)steps : 0.0;
    double rate = each > 0.0 ? (double)(config->train.global_batch * t->source->T) / each : 0.0;
    double mfu = fwa_flops_mfu(s->flops, rate, s->peak, t->world->size);
    fwa_progress progress = {.step = report->step,
                             .steps = config->train.steps,
                             .loss = report->state.loss,
                             .val_loss = val_loss,
                             .grad_norm = report->state.grad_norm,
                             .lr = report->state.lr,
                             .ms = 1e3 * each,
                             .tokens_per_s = rate,
                             .mfu = mfu,
                             .mem_bytes = (int64_t)s->used,
                             .skipped = report->state.skipped,
                             .eta_s = each * (double)(config->train.steps - report->step)};
    if (!line) {
        fwa_progress_live(&progress);
        return FWA_OK;
    }
    fwa_progress_clear();
    fwa_progress_log(&progress);
    fwa_metrics_row row = {.step = report->step,
                           .tokens = report->tokens,
                           .skipped = report->state.skipped,
                           .epoch =
                               (report->step - 1) * config->train.global_batch / t->source->sequences[FWA_SPLIT_TRAIN],
                           .loss = report->state.loss,
                           .val_loss = val_loss,
                           .grad_norm = report->state.grad_norm,
                           .lr = report->state.lr,
                           .ms = 1e3 * each,
                           .tokens_per_s = rate,
                           .mfu = mfu,
                           .time = (double)time(NULL),
                           .mem_bytes = (int64_t)s->used,
                           .gamma_mean = gates.gamma_mean,
                           .eta_mean = gates.eta_mean,
                           .ridge_mean = gates.ridge_mean,
                           .clamp_share = gates.clamp_share,
                           .token_hash = report->token_hash};
    write_row(s, &row, report);
    s->since = s->ended;
    s->since_step = report->step;
    return FWA_OK;
}

// Seconds that were not training.
static void leave_out_seconds(session *s, double seconds) {
    s->ended += seconds;
    s->since += seconds;
}

// What took place since `start` was not training.
static void leave_out(session *s, double start) {
    leave_out_seconds(s, fwa_clock_seconds() - start);
}

static bool due(int64_t step, int64_t every) {
    return every > 0 && step % every == 0;
}

// The last one is waited for, whatever checkpoint.background says: nothing follows that could go on beside it.
static fwa_status save(session *s, bool last) {
    double start = fwa_clock_seconds();
    FWA_TRY(fwa_saver_start(s->saver));
    if (!last && s->trainer->config->checkpoint.background) return FWA_OK;
    FWA_TRY(fwa_saver_wait(s->saver));
    leave_out(s, start);
    return FWA_OK;
}

static fwa_status validate(session *s, double *loss) {
    fwa_trainer *t = s->trainer;
    double start = fwa_clock_seconds();
    FWA_TRY(fwa_trainer_validate(t, loss));
    if (t->world->rank == 0 && t->stop)
        fwa_log_info("validation after step %lld left out after a signal; resuming makes up for it",
                     (long long)t->step);
    else if (t->world->rank == 0 && !isfinite(*loss))
        fwa_log_warn("step %lld: the validation loss is %g", (long long)t->step, *loss);
    leave_out(s, start);
    return FWA_OK;
}

static bool is_last(const fwa_config *config, int64_t step) {
    return step == config->train.steps || step == config->train.stop_after;
}

static bool validates_after(const fwa_config *config, int64_t step) {
    return config->eval.every > 0 && (due(step, config->eval.every) || step == config->train.steps);
}

// Whether a line is written about a step, as far as that is known before it: a signal asks for one, too.
static bool is_logged(const session *s, int64_t step) {
    const fwa_config *config = s->trainer->config;
    return step == s->start + 1 || due(step, config->log.every) || is_last(config, step) ||
           validates_after(config, step);
}

// Whether the device has nothing more to do after the step given last: the host looks at what it has done then.
static bool pauses(const session *s) {
    const fwa_trainer *t = s->trainer;
    const fwa_config *config = t->config;
    return t->stop || fwa_profile_waits_before(config, t->step - s->start) || is_last(config, t->step) ||
           validates_after(config, t->step) || due(t->step, config->checkpoint.every);
}

static fwa_status give_step(session *s) {
    fwa_trainer *t = s->trainer;
    double other = 0.0;
    t->writing = fwa_saver_works(s->saver);
    t->wants_gates = is_logged(s, t->step + 1);
    FWA_TRY(fwa_profile_training_step(&s->profile, t, t->step - s->start, s->run->path, &other));
    leave_out_seconds(s, other);
    return FWA_OK;
}

// Of waiting for other ranks.
static void set_limit(fwa_trainer *t, double seconds) {
    fwa_world_set_timeout(t->world, seconds);
    t->comm->set_timeout(t->comm, seconds);
    t->sp->set_timeout(t->sp, seconds);
}

// Gives the device steps to do while the host waits for a report, and takes the report.
static fwa_status next_report(session *s, fwa_step_report *report, double limit) {
    fwa_trainer *t = s->trainer;
    set_limit(t, limit);
    fwa_watchdog_expect(limit, "a training step");
    while (t->step == t->reported || (t->step - t->reported <= t->ahead && !pauses(s))) FWA_TRY(give_step(s));
    fwa_watchdog_expect(limit, "a training step");
    FWA_TRY(fwa_trainer_report(t, report));
    s->ended = fwa_clock_seconds();
    return FWA_OK;
}

// Steps until the end, a signal or train.stop_after; a checkpoint of the last one exists then.
static fwa_status run_steps(session *s) {
    fwa_trainer *t = s->trainer;
    const fwa_config *config = t->config;
    int64_t first = t->step + 1;
    bool stopped = config->train.stop_after > 0 && t->step >= config->train.stop_after;
    if (s->run->named && (stopped || t->step >= config->train.steps)) FWA_TRY(save(s, true));
    while (t->reported < config->train.steps && !stopped) {
        fwa_step_report report;
        double limit = t->reported + 1 == first ? config->comm.first_timeout_s : config->comm.timeout_s;
        FWA_TRY(next_report(s, &report, limit));

        int64_t step = report.step;
        double val_loss = NAN;
        const bool validates = validates_after(config, step);
        if (validates) FWA_TRY(validate(s, &val_loss));
        const bool signal = t->stop && step == t->step, over = is_last(config, step) && !(signal && validates);
        stopped = over || signal;
        if (step == first || !isnan(val_loss)) fwa_run_keep_choices(s->run, t); // there may be new ones
        FWA_TRY(report_step(s, &report, val_loss, stopped || is_logged(s, step)));
        FWA_TRY(fwa_saver_advance(s->saver));
        if (due(step, config->checkpoint.every) || stopped) FWA_TRY(save(s, stopped));
        FWA_CHECK(!stopped || !s->lost[0], FWA_IO,
                  "%s; saved at step %lld, make room and continue with --resume auto (rows of metrics are missing)",
                  s->lost, (long long)step);
        if (!over && signal) {
            FWA_FAIL(FWA_PREEMPTED, "saved at step %lld after a signal; continue with --resume auto", (long long)step);
        }
    }
    return FWA_OK;
}

// The validation that a signal has cut short when the run was left.
static fwa_status make_up_validation(session *s) {
    fwa_trainer *t = s->trainer;
    fwa_comm *all = t->world->all;
    double loss;
    int64_t due_now = t->world->rank == 0 && fwa_metrics_lacks_validation(s->run->metrics, t->step);
    if (t->step == 0 || !validates_after(t->config, t->step)) return FWA_OK;
    set_limit(t, t->config->comm.first_timeout_s);
    FWA_TRY(all->broadcast(all, NULL, &due_now, 1, FWA_I64, 0));
    if (!due_now) return FWA_OK;
    FWA_TRY(validate(s, &loss));
    FWA_CHECK(!t->stop, FWA_PREEMPTED, "a signal came before step %lld; continue with --resume auto",
              (long long)t->step + 1);
    if (t->world->rank != 0) return FWA_OK;
    fwa_log_info("validation after step %lld: loss %.4f", (long long)t->step, loss);
    return fwa_metrics_amend(s->run->metrics, loss);
}

static fwa_status read_weights(void *user, fwa_checkpoint *checkpoint) {
    const fwa_trainer *trainer = user;
    FWA_TRY(fwa_weights_read(trainer->model, trainer->backend, checkpoint, false));
    fwa_log_info("weights from %s", fwa_checkpoint_path(checkpoint));
    return FWA_OK;
}

// After a failure of a peer or of the device what is left, too, may wait for something that never comes: it keeps a
// limit, and what failed is said first.
static void end_watch(fwa_status status) {
    if (status != FWA_TIMEOUT && status != FWA_COMM && status != FWA_BACKEND) {
        fwa_watchdog_stop();
        return;
    }
    fwa_log_warn("giving up: %s", fwa_error_message());
    fwa_watchdog_expect(END_SECONDS, "ending after a failure");
}

// Steps that go wrong end all ranks together: what is being written is of a step before them, and is kept.
static fwa_status finish_save(session *s, fwa_status status) {
    char message[1024];
    if (status != FWA_NONFINITE) return status;
    snprintf(message, sizeof message, "%s", fwa_error_message());
    if (fwa_saver_wait(s->saver) != FWA_OK) fwa_log_warn("%s", fwa_error_message());
    return fwa_error_raise(status, __FILE__, __LINE__, __func__, "%s", message);
}

static fwa_status train(session *s) {
    fwa_trainer *t = s->trainer;
    FWA_TRY(fwa_run_open(s->run, t));
    FWA_TRY(fwa_world_agree(t->world, fwa_saver_create(&s->saver, s->run, t)));
    if (t->world->rank == 0) fwa_startup_log(t, s->run);
    FWA_TRY(fwa_watchdog_start());
    s->flops = fwa_startup_flops(t);
    FWA_TRY(fwa_startup_peak(t->backend, &s->peak));
    s->since = fwa_clock_seconds();
    s->since_step = s->start = t->step;
    fwa_status status = make_up_validation(s);
    if (status == FWA_OK) status = run_steps(s);
    status = finish_save(s, status);
    fwa_progress_clear();
    end_watch(status);
    FWA_TRY(status);
    FWA_TRY(fwa_profile_finish(&s->profile, s->run->path));
    if (t->step >= t->config->train.steps) return fwa_run_finish(s->run, t);
    return FWA_OK;
}

static fwa_status start(session *s, fwa_world *world, fwa_config *config, const fwa_arguments *arguments, int argc,
                        char **argv) {
    const char *resume = fwa_arguments_value(arguments, "--resume", "none");
    const char *init = fwa_arguments_value(arguments, "--init-from", NULL);
    FWA_TRY(fwa_world_split(world, (int)config->parallel.sp));
    FWA_TRY(fwa_world_agree(world, fwa_setup_check(config, world)));
    // Ranks read checkpoints and data for very different times; training sets limits of its own.
    fwa_world_set_timeout(world, 0.0);
    if (fwa_arguments_flag(arguments, "--dry-run")) {
        FWA_TRY(fwa_trainer_create(&s->trainer, world, config, NULL, true));
        if (world->rank == 0) fwa_startup_log(s->trainer, NULL);
        return FWA_OK;
    }
    FWA_TRY(fwa_signals_install()); // one that comes while the model is built ends the first step
    FWA_TRY(fwa_run_create(&s->run, world, config, resume, argc, argv));
    if (s->run->finished) {
        if (world->rank == 0) fwa_log_info("%s is finished; nothing to do", s->run->path);
        return FWA_OK;
    }
    FWA_TRY(fwa_trainer_create(&s->trainer, world, config, NULL, false));
    if (init && !s->run->resume[0]) {
        FWA_TRY(fwa_run_read_checkpoint(world, init, read_weights, s->trainer));
        FWA_TRY(fwa_trainer_share(s->trainer));
    }
    return train(s);
}

static fwa_status print_config(const fwa_world *world, fwa_config *config) {
    FWA_TRY(fwa_config_finish(config));
    return world->rank == 0 ? fwa_config_print(config, stdout) : FWA_OK;
}

static const fwa_option options[] = {
    {"--resume", true}, {"--init-from", true}, {"--dry-run", false}, {"--print-config", false}, {NULL, false}};

static fwa_status read_words(fwa_arguments *arguments, int argc, char **argv) {
    FWA_TRY(fwa_arguments_parse(arguments, options, argc, argv));
    FWA_CHECK(arguments->count >= 1, FWA_USAGE,
              "fwa train: no configuration given; usage: fwa train CONFIG.yaml [key.path=value ...] (fwa help train)");
    return FWA_OK;
}

fwa_status fwa_cmd_train(fwa_world *world, int argc, char **argv) {
    fwa_arguments arguments;
    fwa_config *config = NULL;
    session s;
    memset(&s, 0, sizeof s);
    FWA_TRY(fwa_world_agree(world, read_words(&arguments, argc, argv)));
    FWA_TRY(fwa_agree_options(world, options, &arguments));
    fwa_status status =
        fwa_world_agree(world, fwa_config_load(&config, arguments.at[0], arguments.at + 1, arguments.count - 1));
    if (status == FWA_OK) status = fwa_agree_config(world, config);
    if (status == FWA_OK)
        status = fwa_arguments_flag(&arguments, "--print-config") ? print_config(world, config)
                                                                  : start(&s, world, config, &arguments, argc, argv);
    fwa_saver_destroy(s.saver);
    fwa_profile_destroy(s.profile);
    fwa_trainer_destroy(s.trainer);
    fwa_run_destroy(s.run);
    fwa_config_destroy(config);
    return status;
}
