// Results of fwa eval in a run folder.
#include "train/report_scores.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "core/log.h"
#include "io/files.h"

static int is_json(const struct dirent *entry) {
    const char *dot = strrchr(entry->d_name, '.');
    return entry->d_name[0] != '.' && dot && !strcmp(dot, ".json");
}

static bool read_score(const json_t *item, fwa_report_score *score) {
    const json_t *width = json_object_get(item, "width"), *upto = json_object_get(item, "upto"),
                 *exact = json_object_get(item, "exact");
    *score = (fwa_report_score){.width = json_integer_value(width),
                                .examples = json_integer_value(json_object_get(item, "examples")),
                                .upto = json_number_value(upto),
                                .exact = json_number_value(exact)};
    return json_is_integer(width) && json_is_number(upto) && json_is_number(exact);
}

static int by_width(const void *a, const void *b) {
    const fwa_report_score *one = a, *other = b;
    return (one->width > other->width) - (one->width < other->width);
}

static fwa_status take_scores(fwa_report_run *run, const json_t *root, const char *path) {
    const json_t *widths = json_object_get(root, "widths");
    const char *task = json_string_value(json_object_get(root, "task"));
    const int64_t step = json_integer_value(json_object_get(root, "step"));
    const size_t count = json_array_size(widths);
    if (!task || strcmp(task, "addition") != 0 || !count || (run->scores && step < run->score_step)) return FWA_OK;
    fwa_report_score *scores = calloc(count, sizeof *scores);
    FWA_CHECK(scores, FWA_MEMORY, "no memory for the scores in %s", path);
    bool good = true;
    for (size_t i = 0; i < count; i++) good &= read_score(json_array_get(widths, i), &scores[i]);
    if (!good) {
        fwa_log_warn("%s: not the scores of every width, left out", path);
        free(scores);
        return FWA_OK;
    }
    qsort(scores, count, sizeof *scores, by_width);
    free(run->scores);
    run->scores = scores;
    run->score_count = (int)count;
    run->score_step = step;
    return FWA_OK;
}

static fwa_status read_file(fwa_report_run *run, const char *name) {
    char path[FWA_PATH_MAX];
    json_error_t error;
    FWA_TRY(fwa_path_format(path, "%s/%s", run->path, name));
    json_t *root = json_load_file(path, 0, &error);
    if (!root) fwa_log_warn("%s:%d: left out: %s", path, error.line, error.text);
    fwa_status status = root ? take_scores(run, root, path) : FWA_OK;
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
