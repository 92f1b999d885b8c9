// Results of fwa eval in a run folder.
#include "train/report/scores.h"

#include <dirent.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "core/log.h"
#include "io/files.h"

static int is_json(const struct dirent *entry) {
    const char *dot = strrchr(entry->d_name, '.');
    return entry->d_name[0] != '.' && dot && !strcmp(dot, ".json");
}

static double number_or_nan(const json_t *value) {
    return json_is_number(value) ? json_number_value(value) : (double)NAN;
}

static fwa_report_estimate read_share(const json_t *item, const char *measure) {
    const double share = number_or_nan(json_object_get(item, measure));
    const json_int_t examples = json_integer_value(json_object_get(item, "examples"));
    return (fwa_report_estimate){share, examples > 1 ? sqrt(share * (1.0 - share) / (double)(examples - 1)) : NAN};
}

static bool read_score(const json_t *item, fwa_report_score *score) {
    const json_t *width = json_object_get(item, "width");
    *score = (fwa_report_score){json_integer_value(width), read_share(item, "upto"), read_share(item, "exact")};
    return json_is_integer(width) && !(isnan(score->upto.value) && isnan(score->exact.value));
}

static int by_width(const void *a, const void *b) {
    const fwa_report_score *one = a, *other = b;
    return (one->width > other->width) - (one->width < other->width);
}

// Takes over what `score` measured; there is room for one more.
static void put_score(fwa_report_run *run, const fwa_report_score *score) {
    int i = 0;
    while (i < run->score_count && run->scores[i].width != score->width) i++;
    fwa_report_score *known = &run->scores[i];
    if (i == run->score_count) {
        run->score_count++;
        *known = *score;
        return;
    }
    if (!isnan(score->upto.value)) known->upto = score->upto;
    if (!isnan(score->exact.value)) known->exact = score->exact;
}

// Adds the widths of a file to those of other files of the same step; a later step puts earlier ones aside.
static fwa_status take_scores(fwa_report_run *run, const json_t *root, int64_t step, const char *path) {
    fwa_report_score score;
    const json_t *widths = json_object_get(root, "widths");
    const size_t count = json_array_size(widths);
    bool good = true;
    if (!count || (run->score_count && step < run->score_step)) return FWA_OK;
    for (size_t i = 0; i < count; i++) good &= read_score(json_array_get(widths, i), &score);
    if (!good) {
        fwa_log_warn("%s: not the scores of every width, left out", path);
        return FWA_OK;
    }
    if (step > run->score_step) run->score_count = 0;
    fwa_report_score *more = realloc(run->scores, ((size_t)run->score_count + count) * sizeof *more);
    FWA_CHECK(more, FWA_MEMORY, "no memory for the scores in %s", path);
    run->scores = more;
    run->score_step = step;
    for (size_t i = 0; i < count; i++)
        if (read_score(json_array_get(widths, i), &score)) put_score(run, &score);
    qsort(run->scores, (size_t)run->score_count, sizeof *run->scores, by_width);
    return FWA_OK;
}

static fwa_status take_grid(fwa_report_run *run, const json_t *object, int64_t step, const char *path) {
    if (run->grid && step < run->grid_step) return FWA_OK;
    fwa_addition_grid *grid = calloc(1, sizeof *grid);
    FWA_CHECK(grid, FWA_MEMORY, "no memory for the scores in %s", path);
    if (!fwa_addition_grid_read(grid, object)) {
        fwa_log_warn("%s: not the counts of every pair of widths, left out", path);
        free(grid);
        return FWA_OK;
    }
    free(run->grid);
    run->grid = grid;
    run->grid_step = step;
    return FWA_OK;
}

// Adds a result, or replaces one of an earlier step; nothing where `value` is no number.
static fwa_status put_result(fwa_report_run *run, int64_t step, double factor, const json_t *value, const json_t *error,
                             const char *format, ...) FWA_PRINTF(6, 7);
static fwa_status put_result(fwa_report_run *run, int64_t step, double factor, const json_t *value, const json_t *error,
                             const char *format, ...) {
    fwa_report_result result = {
        .value = factor * number_or_nan(value), .error = factor * number_or_nan(error), .step = step};
    va_list arguments;
    if (!json_is_number(value)) return FWA_OK;
    va_start(arguments, format);
    vsnprintf(result.name, sizeof result.name, format, arguments);
    va_end(arguments);
    for (int i = 0; i < run->result_count; i++) {
        if (strcmp(run->results[i].name, result.name) != 0) continue;
        if (step >= run->results[i].step) run->results[i] = result;
        return FWA_OK;
    }
    fwa_report_result *more = realloc(run->results, (size_t)(run->result_count + 1) * sizeof *more);
    FWA_CHECK(more, FWA_MEMORY, "no memory for %d results of %s", run->result_count + 1, run->path);
    run->results = more;
    run->results[run->result_count++] = result;
    return FWA_OK;
}

static fwa_status take_choices(fwa_report_run *run, const json_t *root, int64_t step) {
    char shots[32] = "";
    size_t i;
    json_t *item;
    if (json_integer_value(json_object_get(root, "shots")) > 0)
        snprintf(shots, sizeof shots, ", %lld-shot", (long long)json_integer_value(json_object_get(root, "shots")));
    json_array_foreach(json_object_get(root, "results"), i, item) {
        const char *task = json_string_value(json_object_get(item, "task"));
        if (!task) continue;
        FWA_TRY(put_result(run, step, 100.0, json_object_get(item, "accuracy"), json_object_get(item, "accuracy_error"),
                           "%.60s%s: accuracy, %%", task, shots));
        FWA_TRY(put_result(run, step, 100.0, json_object_get(item, "accuracy_by_characters"),
                           json_object_get(item, "accuracy_by_characters_error"), "%.60s%s: by characters, %%", task,
                           shots));
        FWA_TRY(put_result(run, step, 1.0, json_object_get(item, "perplexity"),
                           json_object_get(item, "perplexity_error"), "%.60s%s: perplexity", task, shots));
    }
    return put_result(run, step, 100.0, json_object_get(root, "published_mean"),
                      json_object_get(root, "published_mean_error"), "mean of %lld of the paper's %lld tasks%s, %%",
                      (long long)json_integer_value(json_object_get(root, "published_tasks")),
                      (long long)json_integer_value(json_object_get(root, "published_tasks_of")), shots);
}

// Of texts the file says nothing, but its own name.
static fwa_status take_perplexity(fwa_report_run *run, const json_t *root, int64_t step, const char *name) {
    static const char *const members[][2] = {
        {"perplexity", "perplexity"}, {"word_perplexity", "word perplexity"}, {"bits_per_byte", "bits a byte"}};
    const int length = (int)(strlen(name) - strlen(".json"));
    for (size_t i = 0; i < sizeof members / sizeof *members; i++)
        FWA_TRY(put_result(run, step, 1.0, json_object_get(root, members[i][0]), NULL, "%.*s: %s",
                           length < 60 ? length : 60, name, members[i][1]));
    return FWA_OK;
}

static fwa_status take_file(fwa_report_run *run, const json_t *root, const char *path, const char *name) {
    const char *task = json_string_value(json_object_get(root, "task"));
    const int64_t step = json_integer_value(json_object_get(root, "step"));
    if (!task) return FWA_OK;
    const json_t *grid = json_object_get(root, "grid");
    if (!strcmp(task, "addition")) return grid ? take_grid(run, grid, step, path) : take_scores(run, root, step, path);
    if (!strcmp(task, "mc")) return take_choices(run, root, step);
    return !strcmp(task, "ppl") ? take_perplexity(run, root, step, name) : FWA_OK;
}

static fwa_status read_file(fwa_report_run *run, const char *name) {
    char path[FWA_PATH_MAX];
    json_error_t error;
    FWA_TRY(fwa_path_format(path, "%s/%s", run->path, name));
    if (!fwa_path_is_file(path)) return FWA_OK;
    json_t *root = json_load_file(path, 0, &error);
    if (!root) fwa_log_warn("%s:%d: left out: %s", path, error.line, error.text);
    fwa_status status = root ? take_file(run, root, path, name) : FWA_OK;
    json_decref(root);
    return status;
}

fwa_status fwa_report_scores_read(fwa_report_run *run) {
    struct dirent **entries;
    int count = scandir(run->path, &entries, is_json, alphasort);
    fwa_status status = FWA_OK;
    for (int i = 0; i < count; i++) {
        if (status == FWA_OK) status = read_file(run, entries[i]->d_name);
        free(entries[i]);
    }
    if (count >= 0) free(entries);
    return status;
}

void fwa_report_scores_free(fwa_report_run *run) {
    free(run->scores);
    free(run->grid);
    free(run->results);
}

fwa_report_estimate fwa_report_share_at(const fwa_report_run *run, bool exact, int64_t width) {
    return fwa_report_share_mean(run, exact, width, width);
}

fwa_report_estimate fwa_report_share_mean(const fwa_report_run *run, bool exact, int64_t low, int64_t high) {
    double sum = 0.0, squares = 0.0; // of shares, and of their standard errors: widths have examples of their own
    int64_t count = 0;
    for (int i = 0; i < run->score_count; i++) {
        const fwa_report_score *score = &run->scores[i];
        const fwa_report_estimate share = exact ? score->exact : score->upto;
        if (score->width < low || score->width > high || isnan(share.value)) continue;
        sum += share.value;
        squares += share.error * share.error;
        count++;
    }
    if (low > high || count != high - low + 1) return (fwa_report_estimate){NAN, NAN};
    const double n = (double)count;
    return (fwa_report_estimate){sum / n, squares > 0.0 ? sqrt(squares) / n : NAN};
}

bool fwa_report_widths_beyond(const fwa_report_run *run, int64_t trained, int64_t *low, int64_t *high) {
    if (!run->score_count) return false;
    *high = run->scores[run->score_count - 1].width;
    *low = *high;
    for (int i = run->score_count - 1; i >= 0; i--)
        if (run->scores[i].width > trained || *high <= trained) *low = run->scores[i].width;
    return true;
}
