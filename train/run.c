// The run folder and resuming.
#include "train/run.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/log.h"
#include "io/checkpoint.h"
#include "io/files.h"
#include "io/shards.h"
#include "train/choices.h"
#include "train/weights.h"

#define CHOICES_FILE "gemm_algos.json"
#define GATES_FILE   "gates.jsonl"
#define ORIGIN_FILE  "started_from"

// What rank 0 decides for all.
typedef struct decision {
    char resume[2048];
    int64_t finished, named;
} decision;

static void join(char *out, size_t size, const char *folder, const char *name) {
    snprintf(out, size, "%s/%s", folder, name);
}

// Exactly what write_finished writes: a file that was damaged finishes nothing.
int64_t fwa_run_finished_steps(const char *path) {
    char file[FWA_PATH_MAX], again[32], *text = NULL;
    if (fwa_path_format(file, "%s/FINISHED", path) != FWA_OK ||
        (fwa_path_is_file(file) && fwa_read_text(file, &text) != FWA_OK)) {
        fwa_log_warn("%s: it is not looked at", fwa_error_message());
        fwa_error_clear();
    }
    if (!text) return -1;
    const int64_t steps = strtoll(text, NULL, 10);
    snprintf(again, sizeof again, "%lld\n", (long long)steps);
    const bool exact = steps >= 0 && strcmp(text, again) == 0;
    if (!exact) fwa_log_warn("%s: got something else than a number of steps, expected one: it is not looked at", file);
    free(text);
    return exact ? steps : -1;
}

fwa_status fwa_run_differences(const char *path, const fwa_config *config, char **lines) {
    char file[FWA_PATH_MAX];
    fwa_config *old_config = NULL;
    *lines = NULL;
    FWA_TRY(fwa_path_format(file, "%s/config.yaml", path));
    if (!fwa_path_exists(file)) return FWA_OK;
    fwa_status status = fwa_config_load(&old_config, file, NULL, 0);
    if (status == FWA_OK) status = fwa_config_finish(old_config);
    if (status == FWA_OK) status = fwa_config_compare(old_config, config, lines);
    fwa_config_destroy(old_config);
    if (status == FWA_CONFIG || status == FWA_FORMAT) {
        if (asprintf(lines, "%s\n", fwa_error_message()) < 0) *lines = NULL;
        fwa_error_clear();
        FWA_CHECK(*lines, FWA_MEMORY, "no memory to compare configurations");
        return FWA_OK;
    }
    if (*lines && !(*lines)[0]) {
        free(*lines);
        *lines = NULL;
    }
    return status;
}

static fwa_status decide_none(const fwa_run *run) {
    char folder[1100];
    char *newest = NULL;
    join(folder, sizeof folder, run->path, "checkpoints");
    bool used = fwa_run_finished_steps(run->path) >= 0;
    if (fwa_path_exists(folder)) FWA_TRY(fwa_checkpoint_newest(run->path, &newest));
    used = used || newest;
    free(newest);
    FWA_CHECK(!used, FWA_CONFIG,
              "run folder %s already holds a run; continue it with --resume auto, or choose another run.name",
              run->path);
    return FWA_OK;
}

// A link whose target is missing (a disk that is not mounted) is no run without checkpoints: a fresh start would drop
// the rows of metrics.
static fwa_status check_folder(const fwa_run *run) {
    char folder[1100];
    struct stat info;
    join(folder, sizeof folder, run->path, "checkpoints");
    FWA_CHECK(lstat(folder, &info) != 0 || stat(folder, &info) == 0, FWA_IO,
              "%s is a link that leads nowhere: expected the folder of the run's checkpoints; is its disk mounted?",
              folder);
    return FWA_OK;
}

fwa_status fwa_run_lock(const char *folder, int *lock) {
    char path[FWA_PATH_MAX];
    FWA_TRY(fwa_path_format(path, "%s/lock", folder));
    return fwa_lock_file(path, folder, lock);
}

static fwa_status lock_folder(fwa_run *run) {
    if (run->lock >= 0 || !fwa_path_exists(run->path)) return FWA_OK;
    FWA_TRY(fwa_run_lock(run->path, &run->lock));
    return fwa_checkpoint_recover(run->path);
}

// Whether an earlier start went on from a checkpoint elsewhere, and the run has none of its own yet.
static fwa_status has_origin(const fwa_run *run, bool *has) {
    char path[1100];
    int64_t *steps;
    int count;
    FWA_TRY(fwa_checkpoint_steps(run->path, &steps, &count));
    free(steps);
    join(path, sizeof path, run->path, ORIGIN_FILE);
    *has = count == 0 && fwa_path_exists(path);
    return FWA_OK;
}

static fwa_status find_origin(const fwa_run *run, char resume[2048]) {
    char path[1100], *origin = NULL;
    join(path, sizeof path, run->path, ORIGIN_FILE);
    FWA_TRY(fwa_read_text(path, &origin));
    origin[strcspn(origin, "\n")] = '\0';
    fwa_log_info("resume auto: no checkpoint in %s yet, which was started from %s", run->path, origin);
    const fwa_status status = fwa_run_find_checkpoint(origin, resume);
    free(origin);
    FWA_CHECK(status == FWA_OK, status, "%s; remove %s to start from the beginning", fwa_error_message(), path);
    return FWA_OK;
}

static fwa_status find_own(fwa_run *run, char resume[2048]) {
    char *newest = NULL;
    if (fwa_path_exists(run->path)) FWA_TRY(fwa_checkpoint_newest(run->path, &newest));
    run->checked = newest != NULL;
    if (newest)
        snprintf(resume, 2048, "%s", newest);
    else
        fwa_log_info("resume auto: no checkpoint in %s, starting fresh", run->path);
    free(newest);
    return FWA_OK;
}

// Of a run that has nothing left to do, what an interrupted save left: not while another process is in the folder, nor
// on a disk that takes no lock.
static void clear_finished(fwa_run *run) {
    bool left;
    if (fwa_checkpoint_has_left(run->path, &left) == FWA_OK && left && lock_folder(run) == FWA_OK)
        fwa_checkpoint_clear(run->path);
    fwa_error_clear();
}

// A finished run stays as it was trained, whatever it is told now.
static fwa_status leave_finished(fwa_run *run, decision *out) {
    char *lines;
    out->finished = 1;
    clear_finished(run);
    FWA_TRY(fwa_run_differences(run->path, run->config, &lines));
    if (!lines) return FWA_OK;
    lines[strlen(lines) - 1] = '\0';
    fwa_log_warn("%s is finished, so these differences have no effect:\n%s", run->path, lines);
    free(lines);
    return FWA_OK;
}

static fwa_status decide_auto(fwa_run *run, decision *out) {
    bool origin;
    int64_t steps = fwa_run_finished_steps(run->path);
    if (steps >= run->config->train.steps) return leave_finished(run, out);
    FWA_TRY(lock_folder(run)); // before looking: another process may be writing the next checkpoint
    FWA_TRY(has_origin(run, &origin));
    out->named = origin;
    return origin ? find_origin(run, out->resume) : find_own(run, out->resume);
}

static fwa_status decide(fwa_run *run, const char *resume, decision *out) {
    if (run->world->rank != 0) return FWA_OK;
    FWA_TRY(check_folder(run));
    if (strcmp(resume, "none") == 0) return decide_none(run);
    if (strcmp(resume, "auto") == 0) return decide_auto(run, out);
    FWA_TRY(fwa_run_find_checkpoint(resume, out->resume));
    out->named = 1;
    run->checked = strcmp(resume, out->resume) != 0; // a run's newest
    return FWA_OK;
}

static char *command_line(int argc, char **argv) {
    size_t size = 8;
    for (int i = 0; i < argc; i++) size += strlen(argv[i]) + 1;
    char *text = malloc(size);
    if (!text) return NULL;
    size_t used = (size_t)snprintf(text, size, "fwa");
    for (int i = 0; i < argc; i++) used += (size_t)snprintf(text + used, size - used, " %s", argv[i]);
    return text;
}

fwa_status fwa_run_create(fwa_run **out, fwa_world *world, fwa_config *config, const char *resume, int argc,
                          char **argv) {
    fwa_status status = FWA_OK;
    decision decided;
    memset(&decided, 0, sizeof decided);
    fwa_run *run = calloc(1, sizeof *run);
    FWA_CHECK(run, FWA_MEMORY, "run: out of memory");
    run->world = world;
    run->config = config;
    run->lock = -1;
    run->command = command_line(argc, argv);
    FWA_CHECK_GOTO(run->command, FWA_MEMORY, fail, "run: out of memory for the command line");
    join(run->path, sizeof run->path, config->run.dir, config->run.name);
    FWA_TRY_GOTO(fwa_world_agree(world, decide(run, resume, &decided)), fail);
    FWA_TRY_GOTO(world->all->broadcast(world->all, NULL, &decided, sizeof decided, FWA_U8, 0), fail);
    memcpy(run->resume, decided.resume, sizeof run->resume);
    run->finished = decided.finished != 0;
    run->named = decided.named != 0;
    *out = run;
    return FWA_OK;
fail:
    fwa_run_destroy(run);
    return status;
}

void fwa_run_destroy(fwa_run *run) {
    if (!run) return;
    fwa_metrics_close(run->metrics);
    fwa_metrics_close(run->gates);
    if (run->lock >= 0) close(run->lock);
    free(run->command);
    free(run);
}

static fwa_status check_same_run(const fwa_run *run, const fwa_trainer *trainer, const fwa_checkpoint_state *state) {
    fwa_config *old_config = NULL;
    char *lines = NULL;
    fwa_status status = FWA_OK;
    FWA_TRY(fwa_config_parse(&old_config, state->config, run->resume, NULL, 0));
    FWA_TRY_GOTO(fwa_config_compare(old_config, run->config, &lines), done);
    FWA_CHECK_GOTO(
        !lines[0], FWA_CONFIG, done,
        "cannot resume from %s: the configuration differs in what defines the run:\n%sset these back, or start "
        "another run (run.name) from its weights with --init-from",
        run->resume, lines);
    FWA_CHECK_GOTO(state->data_fingerprint == trainer->source->fingerprint, FWA_CONFIG, done,
                   "cannot resume from %s: the training data is not what it was trained on (fingerprint %016llx, now "
                   "%016llx); point data.train to the same shards",
                   run->resume, (unsigned long long)state->data_fingerprint,
                   (unsigned long long)trainer->source->fingerprint);
done:
    free(lines);
    fwa_config_destroy(old_config);
    return status;
}

static fwa_status restore(fwa_run *run, fwa_trainer *trainer) {
    fwa_checkpoint *checkpoint = NULL;
    fwa_backend *backend = trainer->backend;
    fwa_status status = FWA_OK;
    // Rank 0 looks at every byte, once and for all.
    FWA_TRY(run->world->rank == 0 && !run->checked ? fwa_checkpoint_open(&checkpoint, run->resume)
                                                   : fwa_checkpoint_open_quick(&checkpoint, run->resume));
    const fwa_checkpoint_state *saved = fwa_checkpoint_get_state(checkpoint);
    fwa_step_state state;
    memset(&state, 0, sizeof state);
    FWA_TRY_GOTO(check_same_run(run, trainer, saved), done);
    FWA_TRY_GOTO(fwa_weights_read(trainer->model, backend, checkpoint, true), done);
    state.accepted = saved->accepted;
    state.skipped = saved->skipped;
    state.skipped_in_a_row = saved->skipped_in_a_row;
    state.norm_mean = saved->norm_mean;
    FWA_TRY_GOTO(backend->upload(backend, backend->stream, trainer->state, &state, sizeof state), done);
    FWA_TRY_GOTO(backend->stream_synchronize(backend, backend->stream), done);
    trainer->step = trainer->reported = saved->step;
    trainer->tokens_read = saved->tokens;
    trainer->best_val_loss = saved->best_val_loss;
    FWA_TRY_GOTO(fwa_choices_take(trainer, saved->choices, run->resume), done);
done:
    fwa_checkpoint_close(checkpoint);
    return status;
}

static fwa_status forget(const fwa_run *run, const char *name) {
    char path[1100];
    join(path, sizeof path, run->path, name);
    FWA_CHECK(unlink(path) == 0 || errno == ENOENT, FWA_IO, "cannot remove %s: %s", path, strerror(errno));
    return FWA_OK;
}

static fwa_status keep_origin(const fwa_run *run, int64_t step) {
    char own[1200], path[1100], resolved[PATH_MAX], text[PATH_MAX + 1];
    snprintf(own, sizeof own, "%s/checkpoints/step_%08lld", run->path, (long long)step);
    if (!run->resume[0] || fwa_path_same(own, run->resume)) return forget(run, ORIGIN_FILE);
    FWA_CHECK(realpath(run->resume, resolved), FWA_IO, "%s: %s", run->resume, strerror(errno));
    join(path, sizeof path, run->path, ORIGIN_FILE);
    snprintf(text, sizeof text, "%s\n", resolved);
    return fwa_write_text(path, text);
}

// The folder is that of a run on its way, from this checkpoint on: what says otherwise would end the next start, or
// lead it elsewhere.
static fwa_status go_back(const fwa_run *run, const fwa_trainer *trainer) {
    FWA_TRY(forget(run, "FINISHED"));
    FWA_TRY(keep_origin(run, trainer->step));
    return run->resume[0] ? fwa_checkpoint_set_aside(run->path, trainer->step, run->resume) : FWA_OK;
}

static fwa_status open_folder(fwa_run *run, const fwa_trainer *trainer) {
    char path[1100];
    if (run->world->rank != 0) return FWA_OK;
    FWA_TRY(fwa_make_folders(run->path));
    if (run->lock < 0) {
        FWA_TRY(lock_folder(run));
        if (!run->resume[0]) FWA_TRY(decide_none(run)); // another may have come and gone since the first look
    }
    join(path, sizeof path, run->path, "log.txt");
    FWA_TRY(fwa_log_open_file(path));
    fwa_checkpoint_clear(run->path); // there may be no save that does
    FWA_TRY(go_back(run, trainer));
    char *text = fwa_config_text(run->config);
    FWA_CHECK(text, FWA_MEMORY, "configuration: out of memory");
    join(path, sizeof path, run->path, "config.yaml");
    fwa_status status = fwa_write_text(path, text);
    free(text);
    FWA_TRY(status);
    join(path, sizeof path, run->path, "metrics.jsonl");
    FWA_TRY(fwa_metrics_open(&run->metrics, path, run->resume[0] ? trainer->step : -1));
    join(path, sizeof path, run->path, GATES_FILE);
    if (trainer->gates)
        FWA_TRY(fwa_metrics_open(&run->gates, path, run->resume[0] ? trainer->step : -1));
    else
        FWA_TRY(forget(run, GATES_FILE)); // of a start with another rule, before there was a checkpoint
    if (run->resume[0]) fwa_log_info("resumed from %s at step %lld", run->resume, (long long)trainer->step);
    return FWA_OK;
}

// What an earlier process of this run has chosen; a checkpoint's own choices come after it. A file that cannot be read
// costs another measurement, not the run.
static void read_choices(const fwa_run *run, const fwa_trainer *trainer) {
    char path[1100], *json = NULL;
    join(path, sizeof path, run->path, CHOICES_FILE);
    if (run->world->rank != 0 || !fwa_path_exists(path)) return;
    fwa_status status = fwa_read_text(path, &json);
    if (status == FWA_OK) status = fwa_choices_take(trainer, json, path);
    if (status != FWA_OK) fwa_log_warn("algorithms are measured again: %s", fwa_error_message());
    if (status != FWA_OK) fwa_error_clear();
    free(json);
}

fwa_status fwa_run_open(fwa_run *run, fwa_trainer *trainer) {
    read_choices(run, trainer);
    if (run->resume[0]) {
        FWA_TRY(fwa_run_same_checkpoint(run->world, run->resume));
        FWA_TRY(fwa_world_agree(run->world, restore(run, trainer)));
    }
    if (run->resume[0]) FWA_TRY(fwa_trainer_share(trainer));
    FWA_TRY(fwa_choices_share(trainer));
    return fwa_world_agree(run->world, open_folder(run, trainer));
}

void fwa_run_keep_choices(const fwa_run *run, const fwa_trainer *trainer) {
    char path[1100], *json = NULL;
    if (run->world->rank != 0) return;
    join(path, sizeof path, run->path, CHOICES_FILE);
    fwa_status status = fwa_choices_get(trainer, &json);
    if (status == FWA_OK && json[0]) status = fwa_write_text(path, json);
    if (status != FWA_OK) fwa_log_warn("measured algorithms are not kept: %s", fwa_error_message());
    if (status != FWA_OK) fwa_error_clear();
    free(json);
}

// The file that is locked is in it.
fwa_status fwa_run_check_folder(const fwa_run *run) {
    char path[1100];
    struct stat own, there;
    join(path, sizeof path, run->path, "lock");
    FWA_CHECK(fstat(run->lock, &own) == 0, FWA_IO, "%s: %s", path, strerror(errno));
    FWA_CHECK(
        stat(path, &there) == 0 && own.st_dev == there.st_dev && own.st_ino == there.st_ino, FWA_IO,
        "run folder %s is not the one that this run was started in: it, or its file lock, was removed, moved, or made "
        "anew; nothing is saved there",
        run->path);
    return FWA_OK;
}

static fwa_status write_finished(const fwa_run *run, const fwa_trainer *trainer) {
    char path[1100], text[32];
    if (run->world->rank != 0) return FWA_OK;
    FWA_TRY(fwa_run_check_folder(run));
    join(path, sizeof path, run->path, "FINISHED");
    snprintf(text, sizeof text, "%lld\n", (long long)trainer->step);
    return fwa_write_text(path, text);
}

fwa_status fwa_run_finish(fwa_run *run, const fwa_trainer *trainer) {
    return fwa_world_agree(run->world, write_finished(run, trainer));
}
