// Loading the runs of a report.
#include "train/report/runs.h"

#include <dirent.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/log.h"
#include "io/files.h"
#include "io/utf8.h"
#include "train/report/scores.h"
#include "train/run.h"
#include "train/setup.h"

const fwa_metrics_row *fwa_report_last(const fwa_report_run *run) {
    return &run->rows[run->count - 1];
}

const fwa_metrics_row *fwa_report_lowest(const fwa_report_run *run) {
    const fwa_metrics_row *lowest = NULL;
    for (int64_t i = 0; i < run->count; i++)
        if (!isnan(run->rows[i].val_loss) && (!lowest || run->rows[i].val_loss < lowest->val_loss))
            lowest = &run->rows[i];
    return lowest;
}

bool fwa_report_rose(const fwa_report *report) {
    bool rose = false;
    for (int i = 0; i < report->runs; i++) {
        const fwa_report_run *run = &report->run[i];
        const fwa_metrics_row *lowest = fwa_report_lowest(run);
        const bool addition = run->config && run->config->task.name == FWA_TASK_ADDITION;
        rose |= lowest && !addition && lowest->val_loss < run->last_val_loss;
    }
    return rose;
}

const char *fwa_report_value(const fwa_report_run *run, const char *key) {
    for (int i = 0; i < run->key_count; i++)
        if (!strcmp(run->keys[i].key, key)) return run->keys[i].value;
    return NULL;
}

static void free_run(fwa_report_run *run) {
    free(run->path);
    free(run->rows);
    fwa_config_entries_free(run->keys, run->key_count);
    fwa_config_destroy(run->config);
    fwa_report_scores_free(run);
}

void fwa_report_destroy(fwa_report *report) {
    if (!report) return;
    for (int i = 0; i < report->runs; i++) free_run(&report->run[i]);
    for (int i = 0; i < report->groups; i++) free(report->group[i].name);
    free(report->run);
    free(report->group);
    free(report);
}

// Parameters of the model, planned on the CPU whatever it ran on.
static fwa_status count_parameters(const fwa_world *world, const char *path, int64_t *parameters) {
    static const char *const here[] = {"run.backend=cpu", "train.precision=f32"};
    fwa_config *config = NULL;
    fwa_backend *backend = NULL;
    fwa_model *model = NULL;
    fwa_model_spec spec;
    fwa_status status;
    FWA_TRY(fwa_config_load(&config, path, here, 2));
    FWA_TRY_GOTO(fwa_setup_model(&spec, config, fwa_source_vocab(config)), done);
    FWA_TRY_GOTO(fwa_config_finish(config), done);
    FWA_TRY_GOTO(fwa_setup_backend(&backend, config, world, true), done);
    FWA_TRY_GOTO(fwa_model_create(&model, &spec, backend, false), done);
    *parameters = fwa_params_count(&model->params);
done:
    fwa_model_destroy(model);
    if (backend) backend->destroy(backend);
    fwa_config_destroy(config);
    return status;
}

static fwa_status read_config(fwa_report_run *run, const fwa_world *world) {
    char path[FWA_PATH_MAX];
    FWA_TRY(fwa_path_format(path, "%s/config.yaml", run->path));
    FWA_CHECK(fwa_path_is_file(path), FWA_CONFIG, "%s: there is no such file", path);
    FWA_TRY(fwa_config_load(&run->config, path, NULL, 0));
    FWA_TRY(fwa_config_finish(run->config));
    FWA_TRY(fwa_config_entries(run->config, &run->keys, &run->key_count));
    return count_parameters(world, path, &run->parameters);
}

static fwa_status read_run(fwa_report_run *run, const fwa_world *world) {
    char path[FWA_PATH_MAX];
    FWA_TRY(fwa_path_format(path, "%s/metrics.jsonl", run->path));
    FWA_TRY(fwa_metrics_read(path, &run->rows, &run->count));
    run->finished = fwa_run_finished_steps(run->path);
    run->last_val_loss = NAN;
    for (int64_t i = 0; i < run->count; i++)
        if (!isnan(run->rows[i].val_loss)) run->last_val_loss = run->rows[i].val_loss;
    FWA_TRY(fwa_report_scores_read(run));
    fwa_status status = read_config(run, world);
    if (status == FWA_OK || status == FWA_MEMORY) return status;
    // Of another version of this program, or by another hand: its curves are worth showing all the same.
    fwa_log_warn("%s: reported without its configuration: %s", run->path, fwa_error_message());
    fwa_error_clear();
    fwa_config_entries_free(run->keys, run->key_count);
    fwa_config_destroy(run->config);
    run->keys = NULL;
    run->config = NULL;
    run->key_count = 0;
    return FWA_OK;
}

static fwa_status add_run(fwa_report *report, const fwa_world *world, const char *path) {
    for (int i = 0; i < report->runs; i++)
        if (!strcmp(report->run[i].path, path)) return FWA_OK; // named twice
    fwa_report_run *more = realloc(report->run, (size_t)(report->runs + 1) * sizeof *more);
    FWA_CHECK(more, FWA_MEMORY, "no memory for %d runs", report->runs + 1);
    report->run = more;
    fwa_report_run *run = &more[report->runs++];
    memset(run, 0, sizeof *run);
    run->path = strdup(path);
    FWA_CHECK(run->path, FWA_MEMORY, "no memory for %s", path);
    FWA_TRY(read_run(run, world));
    if (run->count) return FWA_OK;
    fwa_log_warn("%s: has no steps yet, left out", path);
    free_run(run);
    report->runs--;
    return FWA_OK;
}

static bool is_run(const char *path) {
    char file[FWA_PATH_MAX];
    return fwa_path_format(file, "%s/metrics.jsonl", path) == FWA_OK && fwa_path_is_file(file);
}

static int not_hidden(const struct dirent *entry) {
    return entry->d_name[0] != '.';
}

static fwa_status add_folder(fwa_report *report, const fwa_world *world, const char *folder) {
    struct dirent **entries;
    char path[FWA_PATH_MAX];
    int found = 0, count = scandir(folder, &entries, not_hidden, versionsort);
    FWA_CHECK(count >= 0, FWA_CONFIG, "%s: there is no such folder", folder);
    fwa_status status = FWA_OK;
    for (int i = 0; i < count; i++) {
        if (status == FWA_OK) status = fwa_path_format(path, "%s/%s", folder, entries[i]->d_name);
        if (status == FWA_OK && is_run(path)) {
            found++;
            status = add_run(report, world, path);
        }
        free(entries[i]);
    }
    free(entries);
    FWA_TRY(status);
    FWA_CHECK(found, FWA_CONFIG, "%s: expected a run folder, with metrics.jsonl, or a folder that holds run folders",
              folder);
    return FWA_OK;
}

static fwa_status add_path(fwa_report *report, const fwa_world *world, const char *given) {
    char path[FWA_PATH_MAX];
    FWA_TRY(fwa_path_format(path, "%s", given));
    fwa_path_trim(path);
    return is_run(path) ? add_run(report, world, path) : add_folder(report, world, path);
}

// What a run is called, and in which portions it takes an update's batch, makes no difference between seeds.
static bool may_differ(const char *key) {
    static const char *const keys[] = {"run.name", "run.dir", "run.seed", "train.micro_batch", NULL};
    for (int i = 0; keys[i]; i++)
        if (!strcmp(key, keys[i])) return true;
    return false;
}

static bool same_but_seed(const fwa_report_run *a, const fwa_report_run *b) {
    if (!a->config || !b->config || a->key_count != b->key_count || a->config->run.seed == b->config->run.seed)
        return false;
    for (int i = 0; i < a->key_count; i++)
        if (!may_differ(a->keys[i].key) &&
            (strcmp(a->keys[i].key, b->keys[i].key) != 0 || strcmp(a->keys[i].value, b->keys[i].value) != 0))
            return false;
    return true;
}

static bool belongs(const fwa_report *report, const fwa_report_group *group, const fwa_report_run *run) {
    for (int i = 0; i < group->count; i++)
        if (!same_but_seed(&report->run[group->first + i], run)) return false;
    return true;
}

// Puts every run behind the others of its group, keeping the order otherwise.
static fwa_status make_groups(fwa_report *report) {
    report->group = calloc((size_t)report->runs, sizeof *report->group);
    FWA_CHECK(report->group, FWA_MEMORY, "no memory for %d runs", report->runs);
    for (int r = 0; r < report->runs;) {
        fwa_report_group *group = &report->group[report->groups++];
        *group = (fwa_report_group){.first = r, .count = 1};
        for (int next = r + 1; next < report->runs; next++) {
            if (!belongs(report, group, &report->run[next])) continue;
            fwa_report_run run = report->run[next];
            int to = group->first + group->count++;
            memmove(&report->run[to + 1], &report->run[to], (size_t)(next - to) * sizeof run);
            report->run[to] = run;
        }
        r += group->count;
    }
    return FWA_OK;
}

static const char *folder_of(const fwa_report_run *run) {
    const char *slash = strrchr(run->path, '/');
    return slash && slash[1] ? slash + 1 : run->path;
}

// Bytes of a name without the digits at its end.
static size_t stem_of(const char *name) {
    size_t bytes = strlen(name);
    while (bytes && strchr("0123456789", name[bytes - 1])) bytes--;
    return bytes;
}

// "1.3-seed1" and "1.3-seed2" are called "1.3-seed1,2"; of other names the first stands for all.
static fwa_status list_folders(const fwa_report *report, const fwa_report_group *group, char **name) {
    const char *first = folder_of(&report->run[group->first]);
    const size_t stem = stem_of(first);
    size_t bytes = 0;
    bool alike = first[stem] != '\0';
    for (int i = 0; i < group->count; i++) {
        const char *other = folder_of(&report->run[group->first + i]);
        alike &= stem_of(other) == stem && !strncmp(first, other, stem) && other[stem];
        bytes += strlen(other) + 1;
    }
    *name = calloc(bytes, 1);
    FWA_CHECK(*name, FWA_MEMORY, "no memory for the name of %s", first);
    char *end = stpcpy(*name, first);
    for (int i = 1; i < group->count && alike; i++) {
        *end++ = ',';
        end = stpcpy(end, folder_of(&report->run[group->first + i]) + stem);
    }
    return FWA_OK;
}

// The folder's name without ",seed=N", or what the folders of several seeds have in common, with their numbers.
static fwa_status name_group(fwa_report *report, fwa_report_group *group) {
    const char *first = folder_of(&report->run[group->first]);
    const char *seed = strstr(first, ",seed=");
    if (!seed || seed[6 + strspn(seed + 6, "0123456789")]) return list_folders(report, group, &group->name);
    group->name = strndup(first, (size_t)(seed - first));
    FWA_CHECK(group->name, FWA_MEMORY, "no memory for the name of %s", first);
    return FWA_OK;
}

// What several groups are called needs the path.
static fwa_status tell_apart(fwa_report *report) {
    for (int a = 0; a < report->groups; a++) {
        bool shared = false;
        for (int b = 0; b < report->groups; b++)
            shared |= a != b && !strcmp(report->group[a].name, report->group[b].name);
        if (!shared) continue;
        for (int b = report->groups - 1; b >= a; b--) {
            if (b > a && strcmp(report->group[a].name, report->group[b].name) != 0) continue;
            char *path = strdup(report->run[report->group[b].first].path);
            FWA_CHECK(path, FWA_MEMORY, "no memory for names of runs");
            free(report->group[b].name);
            report->group[b].name = path;
        }
    }
    return FWA_OK;
}

// Whether `name` has this part, "key=value", between commas.
static bool has_part(const char *name, const char *part, size_t bytes) {
    for (const char *at = name; at; at = strchr(at, ',')) {
        at += *at == ',';
        if (!strncmp(at, part, bytes) && (at[bytes] == ',' || at[bytes] == '\0')) return true;
    }
    return false;
}

static bool all_have(const fwa_report *report, const char *part, size_t bytes) {
    for (int g = 0; g < report->groups; g++)
        if (!has_part(report->group[g].name, part, bytes)) return false;
    return true;
}

// Of points of a sweep what is the same in all of them says nothing.
static fwa_status drop_shared(fwa_report *report) {
    if (report->groups < 2) return FWA_OK;
    for (int g = 0; g < report->groups; g++)
        if (!strchr(report->group[g].name, '=') || strpbrk(report->group[g].name, "/[{")) return FWA_OK;
    char *first = strdup(report->group[0].name), *rest = NULL;
    FWA_CHECK(first, FWA_MEMORY, "no memory for names of runs");
    for (char *part = strtok_r(first, ",", &rest); part; part = strtok_r(NULL, ",", &rest)) {
        const size_t bytes = strlen(part);
        if (!all_have(report, part, bytes)) continue;
        for (int g = 0; g < report->groups; g++) {
            char *name = report->group[g].name, *at = name;
            if (!strchr(name, ',')) continue; // its last part
            while (strncmp(at, part, bytes) != 0 || (at[bytes] && at[bytes] != ',')) at = strchr(at, ',') + 1;
            char *behind = at[bytes] ? at + bytes + 1 : at + bytes;
            if (!*behind && at > name) at--; // and the comma in front of it
            memmove(at, behind, strlen(behind) + 1);
        }
    }
    free(first);
    return FWA_OK;
}

// Appends at most FWA_REPORT_LETTERS characters, the last an ellipsis where there are more.
static void shorten(char label[FWA_REPORT_LABEL], const char *text) {
    size_t used = 0, bytes = strlen(text), letters = 0, keep = 0;
    for (size_t at = 0; at < bytes; letters++) {
        size_t n = fwa_utf8_bytes((const unsigned char *)text + at, bytes - at);
        at += n ? n : 1;
        if (letters + 1 == FWA_REPORT_LETTERS - 1) keep = at;
    }
    used = letters > FWA_REPORT_LETTERS ? keep : bytes;
    if (used > FWA_REPORT_LABEL - 4) used = 0;
    const char *end = letters > FWA_REPORT_LETTERS ? "…" : "";
    memcpy(label, text, used);
    memcpy(label + used, end, strlen(end) + 1);
}

static int letters_of(const char *text) {
    int letters = 0;
    for (; *text; text++) letters += (*text & 0xC0) != 0x80;
    return letters;
}

// "rule=falcon1,recipe=.3" says "falcon1 .3"; "window=4" stays, for 4 alone says little.
static void label_group(fwa_report_group *group) {
    char *text = strdup(group->name), *rest = NULL, *out = text;
    if (!text) return; // a figure without a label
    const char *value = strchr(text, '=');
    const bool number = value && strspn(value + 1, "0123456789.e+-") == strlen(value + 1);
    const bool point = value && !strchr(text, '/') && !(number && letters_of(text) <= FWA_REPORT_LETTERS);
    if (point) {
        char *copy = strdup(text);
        for (char *part = copy ? strtok_r(copy, ",", &rest) : NULL; part; part = strtok_r(NULL, ",", &rest)) {
            const char *said = strchr(part, '=') ? strchr(part, '=') + 1 : part;
            if (out > text) *out++ = ' ';
            memmove(out, said, strlen(said));
            out += strlen(said);
        }
        *out = '\0';
        free(copy);
    }
    const char *slash = strrchr(text, '/');
    shorten(group->label, slash && slash[1] ? slash + 1 : text);
    free(text);
}

// Mean over the group of what ranks it: the validation loss, or else the loss.
static double rank_of(const fwa_report *report, const fwa_report_group *group) {
    double sum = 0.0;
    for (int i = 0; i < group->count; i++) {
        const fwa_report_run *run = &report->run[group->first + i];
        sum += isnan(run->last_val_loss) ? fwa_report_last(run)->loss : run->last_val_loss;
    }
    return isnan(sum) ? INFINITY : sum / group->count;
}

// Where groups are more than can be told apart, the best have a colour.
static void colour_groups(fwa_report *report) {
    int colour = 0;
    for (int a = 0; a < report->groups; a++) {
        int better = 0;
        double mine = rank_of(report, &report->group[a]);
        for (int b = 0; b < report->groups; b++) {
            double other = rank_of(report, &report->group[b]);
            better += other < mine || (other == mine && b < a);
        }
        report->group[a].colour = report->groups <= FWA_REPORT_LINES || better < FWA_REPORT_COLOURS ? colour++ : -1;
    }
}

static fwa_status load(fwa_report *report, const fwa_world *world, const char *const *paths, int count) {
    for (int i = 0; i < count; i++) FWA_TRY(add_path(report, world, paths[i]));
    FWA_CHECK(report->runs, FWA_CONFIG, "nothing to report: no run has made a step");
    FWA_TRY(make_groups(report));
    for (int g = 0; g < report->groups; g++) FWA_TRY(name_group(report, &report->group[g]));
    FWA_TRY(tell_apart(report));
    FWA_TRY(drop_shared(report));
    for (int g = 0; g < report->groups; g++) label_group(&report->group[g]);
    colour_groups(report);
    report->by_updates = true;
    for (int i = 0; i < report->runs; i++) {
        const fwa_config *config = report->run[i].config;
        report->by_updates &= config && config->task.name == FWA_TASK_ADDITION;
    }
    return FWA_OK;
}

fwa_status fwa_report_load(fwa_report **out, const fwa_world *world, const char *const *paths, int count) {
    *out = calloc(1, sizeof **out);
    FWA_CHECK(*out, FWA_MEMORY, "no memory for a report");
    fwa_status status = load(*out, world, paths, count);
    if (status == FWA_OK) return FWA_OK;
    fwa_report_destroy(*out);
    *out = NULL;
    return fwa_error_pass(status, __FILE__, __LINE__, __func__);
}
