// Configurations of all points, checked before any of them is started, and what stands in their run folders.
#include "train/sweep/runs.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "io/files.h"
#include "io/metrics.h"
#include "train/report/scores.h"
#include "train/run.h"
#include "train/setup.h"

// Lines that have been said, each once.
typedef struct problems {
    char **line;
    int count;
} problems;

static bool is_known(const problems *p, const char *line, size_t length) {
    for (int i = 0; i < p->count; i++)
        if (strlen(p->line[i]) == length && !memcmp(p->line[i], line, length)) return true;
    return false;
}

static fwa_status add_problem(problems *p, const char *line, size_t length) {
    if (is_known(p, line, length)) return FWA_OK;
    char **grown = realloc(p->line, ((size_t)p->count + 1) * sizeof *grown);
    FWA_CHECK(grown, FWA_MEMORY, "no memory for the problems of a sweep");
    p->line = grown;
    p->line[p->count] = strndup(line, length);
    FWA_CHECK(p->line[p->count], FWA_MEMORY, "no memory for the problems of a sweep");
    p->count++;
    return FWA_OK;
}

// The last error's lines.
static fwa_status add_problems(problems *p, const char *message) {
    char *text = strdup(message);
    FWA_CHECK(text, FWA_MEMORY, "no memory for the problems of a sweep");
    fwa_status status = FWA_OK;
    for (const char *line = text; status == FWA_OK && *line;) {
        size_t length = strcspn(line, "\n");
        status = add_problem(p, line, length);
        line += length + (line[length] == '\n');
    }
    free(text);
    return status;
}

static fwa_status finish(problems *p) {
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = p->count ? open_memstream(&text, &bytes) : NULL;
    FWA_CHECK(out || !p->count, FWA_MEMORY, "no memory for the problems of a sweep");
    for (int i = 0; i < p->count; i++) fprintf(out, "%s%s", i ? "\n" : "", p->line[i]);
    fwa_status status = FWA_OK;
    if (out && !fwa_stream_end(out, &text)) status = FWA_MEMORY;
    if (p->count)
        status = fwa_error_raise(status == FWA_OK ? FWA_CONFIG : status, __FILE__, __LINE__, __func__, "%s",
                                 status == FWA_OK ? text : "no memory for the problems of a sweep");
    free(text);
    return status;
}

static void forget(problems *p) {
    for (int i = 0; i < p->count; i++) free(p->line[i]);
    free(p->line);
}

// Settings of a point in the order in which they are laid over the base; the caller frees the array.
static fwa_status all_settings(const fwa_sweep_runs *runs, const fwa_sweep_point *point, fwa_setting **out,
                               int *count) {
    const fwa_sweep *sweep = runs->sweep;
    fwa_setting *all = calloc((size_t)(sweep->common_count + runs->word_count + point->setting_count) + 1, sizeof *all);
    FWA_CHECK(all, FWA_MEMORY, "no memory for the settings of %s", point->name);
    int n = 0;
    for (int i = 0; i < sweep->common_count; i++) all[n++] = sweep->common[i];
    for (int i = 0; i < runs->word_count; i++) all[n++] = (fwa_setting){.text = runs->words[i]};
    for (int i = 0; i < point->setting_count; i++) all[n++] = point->settings[i];
    *out = all;
    *count = n;
    return FWA_OK;
}

fwa_status fwa_sweep_config(const fwa_sweep_runs *runs, const fwa_sweep_point *point, const fwa_world *world,
                            fwa_config **config) {
    fwa_setting *settings = NULL;
    int count = 0;
    FWA_TRY(all_settings(runs, point, &settings, &count));
    fwa_status status = fwa_config_load_settings(config, runs->base, settings, count);
    free(settings);
    FWA_TRY(status);
    return fwa_setup_check(*config, world);
}

// The failures' file of a point.
static fwa_status failed_path(const fwa_sweep_run *run, char path[FWA_PATH_MAX]) {
    return fwa_path_format(path, "%s.failed", run->path);
}

static fwa_status read_failure(fwa_sweep_run *run) {
    char path[FWA_PATH_MAX], *text = NULL;
    FWA_TRY(failed_path(run, path));
    run->code = 0;
    if (!fwa_path_exists(path)) return FWA_OK;
    FWA_TRY(fwa_read_text(path, &text));
    run->code = atoi(text);
    if (run->code <= 0) run->code = 1;
    free(text);
    return FWA_OK;
}

fwa_status fwa_sweep_run_note(fwa_sweep_run *run, int code) {
    char path[FWA_PATH_MAX], text[32];
    FWA_TRY(failed_path(run, path));
    snprintf(text, sizeof text, "%d\n", code);
    if (code) return fwa_write_text(path, text);
    unlink(path); // there is none most of the time
    return FWA_OK;
}

static fwa_status read_metrics(fwa_sweep_run *run) {
    char path[FWA_PATH_MAX];
    fwa_metrics_row row;
    bool found = false;
    FWA_TRY(fwa_path_format(path, "%s/metrics.jsonl", run->path));
    FWA_TRY(fwa_metrics_last(path, &row, &found));
    run->step = found ? row.step : 0;
    run->skipped = found ? row.skipped : 0;
    run->loss = found ? row.loss : NAN;
    run->val_loss = found ? row.val_loss : NAN;
    run->tokens_per_s = found ? row.tokens_per_s : NAN;
    return FWA_OK;
}

static fwa_status read_scores(fwa_sweep_run *run) {
    fwa_report_run scores = {.path = run->path};
    int64_t low, high;
    fwa_status status = fwa_report_scores_read(&scores);
    const bool measured = fwa_report_widths_beyond(&scores, run->trained, &low, &high);
    run->upto = measured ? fwa_report_share_mean(&scores, false, low, high).value : NAN;
    run->exact = measured ? fwa_report_share_mean(&scores, true, low, high).value : NAN;
    fwa_report_scores_free(&scores);
    return status;
}

// Whether another process trains in the folder.
static fwa_status is_held(const fwa_sweep_run *run, bool *held) {
    char path[FWA_PATH_MAX];
    int lock = -1;
    *held = false;
    FWA_TRY(fwa_path_format(path, "%s/lock", run->path));
    if (!fwa_path_exists(path)) return FWA_OK;
    fwa_status status = fwa_lock_file(path, run->path, &lock);
    if (lock >= 0) close(lock);
    *held = status == FWA_CONFIG;
    if (*held) fwa_error_clear();
    return *held ? FWA_OK : status;
}

fwa_status fwa_sweep_run_update(fwa_sweep_run *run) {
    bool held = false;
    FWA_TRY(read_metrics(run));
    FWA_TRY(read_scores(run));
    FWA_TRY(read_failure(run));
    if (run->differences)
        run->state = FWA_SWEEP_OTHER;
    else if (fwa_run_finished_steps(run->path) >= run->steps)
        run->state = FWA_SWEEP_FINISHED;
    else {
        FWA_TRY(is_held(run, &held));
        run->state = held        ? FWA_SWEEP_RUNNING
                     : run->code ? FWA_SWEEP_FAILED
                     : run->step ? FWA_SWEEP_STOPPED
                                 : FWA_SWEEP_NEW;
    }
    return FWA_OK;
}

static fwa_status set_folder(fwa_sweep_runs *runs, fwa_sweep_run *run, const fwa_config *config) {
    int length = snprintf(runs->folder, sizeof runs->folder, "%s/%s", config->run.dir, runs->sweep->name);
    FWA_CHECK(length < (int)sizeof config->run.dir, FWA_CONFIG,
              "run.dir: %s has %d bytes with the name of the sweep, more than %zu", runs->folder, length,
              sizeof config->run.dir - 1);
    snprintf(run->path, sizeof run->path, "%s/%s", runs->folder, run->point->name);
    return FWA_OK;
}

// FWA_CONFIG and FWA_FORMAT: what was wrong with the point stands among the problems.
static fwa_status create_run(fwa_sweep_runs *runs, fwa_sweep_run *run, const fwa_world *world) {
    fwa_config *config = NULL;
    fwa_status status;
    FWA_TRY_GOTO(fwa_sweep_config(runs, run->point, world, &config), done);
    run->steps = config->train.steps;
    run->backend = config->run.backend;
    run->trained = config->task.name == FWA_TASK_ADDITION ? config->task.width_max : 0;
    FWA_TRY_GOTO(set_folder(runs, run, config), done);
    FWA_TRY_GOTO(fwa_run_differences(run->path, config, &run->differences), done);
    status = fwa_sweep_run_update(run);
done:
    fwa_config_destroy(config);
    return status;
}

static fwa_status create_all(fwa_sweep_runs *runs, const fwa_world *world, problems *p) {
    for (int i = 0; i < runs->count; i++) {
        fwa_sweep_run *run = &runs->run[i];
        run->point = &runs->sweep->points[i];
        fwa_status status = create_run(runs, run, world);
        if (status == FWA_CONFIG || status == FWA_FORMAT || status == FWA_UNSUPPORTED)
            FWA_TRY(add_problems(p, fwa_error_message()));
        else
            FWA_TRY(status);
    }
    return finish(p);
}

fwa_status fwa_sweep_runs_create(fwa_sweep_runs **out, const fwa_sweep *sweep, const char *base, const fwa_world *world,
                                 const char *const *words, int word_count) {
    problems p = {0};
    *out = NULL;
    fwa_sweep_runs *runs = calloc(1, sizeof *runs);
    if (runs) runs->run = calloc((size_t)sweep->count, sizeof *runs->run);
    if (!runs || !runs->run) {
        free(runs);
        FWA_FAIL(FWA_MEMORY, "no memory for %d points", sweep->count);
    }
    runs->sweep = sweep;
    runs->base = base;
    runs->words = words;
    runs->word_count = word_count;
    runs->count = sweep->count;
    fwa_status status = create_all(runs, world, &p);
    forget(&p);
    if (status != FWA_OK) {
        fwa_sweep_runs_destroy(runs);
        return fwa_error_pass(status, __FILE__, __LINE__, __func__);
    }
    *out = runs;
    return FWA_OK;
}

void fwa_sweep_runs_destroy(fwa_sweep_runs *runs) {
    if (!runs) return;
    for (int i = 0; i < runs->count; i++) free(runs->run[i].differences);
    free(runs->run);
    free(runs);
}

static char *joined(const char *key, const char *value) {
    char *text = NULL;
    return asprintf(&text, "%s=%s", key, value) < 0 ? NULL : text;
}

fwa_status fwa_sweep_words(const fwa_sweep_runs *runs, int index, char ***words) {
    const fwa_sweep_point *point = runs->run[index].point;
    fwa_setting *settings = NULL;
    int count = 0, n = 0;
    *words = NULL;
    FWA_TRY(all_settings(runs, point, &settings, &count));
    const size_t size = (size_t)count + 7; // train, base, run.dir, run.name, --resume, auto, NULL
    char **list = calloc(size, sizeof *list);
    if (list) {
        list[n++] = strdup("train");
        list[n++] = strdup(runs->base);
        for (int i = 0; i < count; i++)
            if (strncmp(settings[i].text, "run.dir=", 8) != 0) list[n++] = strdup(settings[i].text);
        list[n++] = joined("run.dir", runs->folder);
        list[n++] = joined("run.name", point->name);
        list[n++] = strdup("--resume");
        list[n++] = strdup("auto");
    }
    free(settings);
    bool good = list != NULL;
    for (int i = 0; i < n; i++) good = good && list[i];
    if (!good) {
        for (int i = 0; i < n; i++) free(list[i]);
        free(list);
        FWA_FAIL(FWA_MEMORY, "no memory for the words of %s", point->name);
    }
    *words = list;
    return FWA_OK;
}

void fwa_sweep_words_free(char **words) {
    for (int i = 0; words && words[i]; i++) free(words[i]);
    free(words);
}

const char *fwa_sweep_state_name(fwa_sweep_state state) {
    static const char *const names[] = {"new", "stopped", "running", "failed", "finished", "other configuration"};
    return names[state];
}

void fwa_sweep_state_text(const fwa_sweep_run *run, char text[64]) {
    if (run->state == FWA_SWEEP_STOPPED)
        snprintf(text, 64, "stopped at %lld", (long long)run->step);
    else if (run->state == FWA_SWEEP_FAILED)
        snprintf(text, 64, "failed (%d)", run->code);
    else
        snprintf(text, 64, "%s", fwa_sweep_state_name(run->state));
}
