// fwa sweep SWEEP.yaml [key.path=value ...] [--base CONFIG.yaml] [--list | --table | --point N | --words N]
//           [--launch COMMAND] [--eval WORDS] [--csv FILE]
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/log.h"
#include "io/files.h"
#include "train/arguments.h"
#include "train/child.h"
#include "train/commands.h"
#include "train/sweep_runs.h"
#include "train/sweep_table.h"

#define WORDS_MAX 64

// A text of words, such as 'mpirun -np 4'.
typedef struct word_list {
    char *text; // own copy, cut into words
    const char *at[WORDS_MAX];
    int count;
} word_list;

typedef struct session {
    fwa_sweep *sweep;
    fwa_sweep_runs *runs;
    word_list launch, eval;
    bool evaluates;
    char program[FWA_PATH_MAX]; // this one
} session;

static fwa_status read_words(word_list *w, const char *option, const char *text) {
    if (!text) return FWA_OK;
    w->text = strdup(text);
    FWA_CHECK(w->text, FWA_MEMORY, "no memory for %s", option);
    for (char *at = w->text; *(at += strspn(at, " \t"));) {
        FWA_CHECK(w->count < WORDS_MAX, FWA_USAGE, "%s: more than %d words", option, WORDS_MAX);
        w->at[w->count++] = at;
        at += strcspn(at, " \t");
        if (*at) *at++ = '\0';
    }
    return FWA_OK;
}

static fwa_status read_launch(session *s, const char *text) {
    FWA_TRY(read_words(&s->launch, "--launch", text));
    FWA_CHECK(!text || s->launch.count, FWA_USAGE, "--launch '%s': expected a command, such as 'mpirun -np 4'", text);
    return FWA_OK;
}

static fwa_status find_program(session *s) {
    ssize_t length = readlink("/proc/self/exe", s->program, sizeof s->program - 1);
    FWA_CHECK(length > 0, FWA_ERROR, "cannot find this program in /proc/self/exe");
    s->program[length] = '\0';
    return FWA_OK;
}

// A setting of the command line that every point overrides would be lost.
static fwa_status check_words(const fwa_sweep *sweep, const char *const *words, int count) {
    for (int w = 0; w < count; w++) {
        size_t length = strcspn(words[w], "=");
        FWA_CHECK(strncmp(words[w], "run.name=", 9) != 0, FWA_USAGE,
                  "run.name: the sweep itself names the runs; choose run.dir, or another name: in %s", sweep->path);
        for (int p = 0; p < sweep->count; p++)
            for (int i = 0; i < sweep->points[p].setting_count; i++) {
                const fwa_setting *own = &sweep->points[p].settings[i];
                FWA_CHECK(strncmp(own->text, words[w], length + 1) != 0 || !words[w][length], FWA_USAGE,
                          "%s: point %s has a value of its own (%s:%d); change it there", words[w],
                          sweep->points[p].name, own->file, own->line);
            }
    }
    return FWA_OK;
}

// Results must be those of the file as it is now.
static fwa_status check_folders(const fwa_sweep_runs *runs) {
    for (int i = 0; i < runs->count; i++) {
        const fwa_sweep_run *run = &runs->run[i];
        FWA_CHECK(run->state != FWA_SWEEP_OTHER, FWA_CONFIG,
                  "%s holds a run of another configuration:\n%sset these back, remove the folder, or choose another "
                  "run.dir or name:",
                  run->path, run->differences);
    }
    return FWA_OK;
}

// This program with these words, behind those of --launch.
static fwa_status start_program(session *s, char *const *list, int *code) {
    int n = 0, count = 0;
    while (list[count]) count++;
    char **all = calloc((size_t)(s->launch.count + count) + 2, sizeof *all);
    FWA_CHECK(all, FWA_MEMORY, "no memory for the words of a point");
    for (int i = 0; i < s->launch.count; i++) all[n++] = (char *)s->launch.at[i];
    all[n++] = s->program;
    for (int i = 0; i < count; i++) all[n++] = list[i];
    fwa_status status = fwa_child_run(all, code);
    free(all);
    return status;
}

static fwa_status start_point(session *s, int index, int *code) {
    char **list = NULL;
    FWA_TRY(fwa_sweep_words(s->runs, index, &list));
    fwa_status status = start_program(s, list, code);
    fwa_sweep_words_free(list);
    return status;
}

// fwa eval of a finished point, once: into its run folder.
static fwa_status evaluate_point(session *s, int index, int *code) {
    fwa_sweep_run *run = &s->runs->run[index];
    char json[FWA_PATH_MAX];
    char *list[WORDS_MAX + 5] = {"eval", run->path}; // --json, its value, NULL
    int n = 2;
    FWA_TRY(fwa_path_format(json, "%s/eval.json", run->path));
    if (!s->evaluates || run->state != FWA_SWEEP_FINISHED || fwa_path_exists(json)) return FWA_OK;
    for (int i = 0; i < s->eval.count; i++) list[n++] = (char *)s->eval.at[i];
    list[n++] = "--json";
    list[n++] = json;
    FWA_TRY(start_program(s, list, code));
    FWA_CHECK(!*code || !fwa_child_stop_requested(), FWA_PREEMPTED,
              "stopped while point %d was evaluated; the same command continues", index + 1);
    if (*code) fwa_log_warn("point %d, %s: fwa eval failed with exit code %d", index + 1, run->point->name, *code);
    return fwa_sweep_run_update(run);
}

// The status whose exit code is `code`.
static fwa_status status_of(int code) {
    switch (code) {
    case 2:
        return FWA_CONFIG;
    case 3:
        return FWA_NONFINITE;
    case 4:
        return FWA_TIMEOUT;
    default:
        return FWA_ERROR;
    }
}

// Trains one point if there is something to do. FWA_PREEMPTED where a signal ended it; *code otherwise says how it
// ended.
static fwa_status run_point(session *s, int index, int *code) {
    fwa_sweep_run *run = &s->runs->run[index];
    char state[64];
    *code = 0;
    fwa_sweep_state_text(run, state);
    fwa_log_info("point %d of %d, %s: %s", index + 1, s->runs->count, run->point->name, state);
    if (run->state == FWA_SWEEP_RUNNING) return FWA_OK;
    if (run->state == FWA_SWEEP_FINISHED) return evaluate_point(s, index, code);
    FWA_TRY(fwa_make_folders(s->runs->folder));
    FWA_TRY(fwa_sweep_run_note(run, 0));
    FWA_TRY(start_point(s, index, code));
    bool stopped = *code == fwa_status_exit_code(FWA_PREEMPTED) || (*code && fwa_child_stop_requested());
    if (!stopped) FWA_TRY(fwa_sweep_run_note(run, *code));
    FWA_TRY(fwa_sweep_run_update(run));
    FWA_CHECK(!stopped, FWA_PREEMPTED, "point %d stopped at step %lld after a signal; the same command continues",
              index + 1, (long long)run->step);
    if (*code) fwa_log_warn("point %d, %s: failed with exit code %d", index + 1, run->point->name, *code);
    return *code ? FWA_OK : evaluate_point(s, index, code);
}

static fwa_status report(const fwa_sweep_runs *runs, const char *csv) {
    char path[FWA_PATH_MAX];
    FWA_TRY(fwa_path_format(path, "%s/results.csv", runs->folder));
    if (!csv) FWA_TRY(fwa_make_folders(runs->folder));
    FWA_TRY(fwa_sweep_csv(runs, csv ? csv : path));
    FWA_TRY(fwa_sweep_table(runs, stdout));
    printf("every point: %s\n", csv ? csv : path);
    return FWA_OK;
}

static fwa_status run_all(session *s, const char *csv) {
    int failed = 0, code = 0;
    for (int i = 0; i < s->runs->count; i++) {
        FWA_CHECK(!fwa_child_stop_requested(), FWA_PREEMPTED, "stopped before point %d; the same command continues",
                  i + 1);
        FWA_TRY(run_point(s, i, &code));
        failed += code != 0;
    }
    FWA_TRY(report(s->runs, csv));
    FWA_CHECK(!failed, FWA_ERROR, "%d of %d points failed", failed, s->runs->count);
    return FWA_OK;
}

static fwa_status run_one(session *s, int index) {
    int code = 0;
    FWA_TRY(run_point(s, index, &code));
    FWA_CHECK(!code, status_of(code), "point %d, %s: exit code %d", index + 1, s->runs->run[index].point->name, code);
    return FWA_OK;
}

static fwa_status print_words(const fwa_sweep_runs *runs, int index) {
    char **words = NULL;
    FWA_TRY(fwa_sweep_words(runs, index, &words));
    for (int i = 0; words[i]; i++) puts(words[i]);
    fwa_sweep_words_free(words);
    return FWA_OK;
}

static fwa_status act(session *s, const fwa_arguments *arguments) {
    const char *csv = fwa_arguments_value(arguments, "--csv", NULL);
    int64_t point = 0, words = 0;
    FWA_TRY(fwa_arguments_integer(arguments, "--point", 0, 1, s->runs->count, &point));
    FWA_TRY(fwa_arguments_integer(arguments, "--words", 0, 1, s->runs->count, &words));
    if (fwa_arguments_flag(arguments, "--list")) {
        fwa_sweep_list(s->runs, stdout);
        return FWA_OK;
    }
    if (csv) FWA_TRY(fwa_file_check_target("--csv", csv));
    FWA_TRY(check_folders(s->runs));
    if (words) return print_words(s->runs, (int)words - 1);
    if (fwa_arguments_flag(arguments, "--table")) return report(s->runs, csv);
    FWA_TRY(read_launch(s, fwa_arguments_value(arguments, "--launch", NULL)));
    s->evaluates = fwa_arguments_flag(arguments, "--eval");
    FWA_TRY(read_words(&s->eval, "--eval", fwa_arguments_value(arguments, "--eval", NULL)));
    FWA_TRY(find_program(s));
    FWA_TRY(fwa_child_hold_signals());
    return point ? run_one(s, (int)point - 1) : run_all(s, csv);
}

static fwa_status check_options(const fwa_arguments *arguments) {
    static const char *const modes[] = {"--list", "--table", "--point", "--words"};
    int count = 0;
    for (int i = 0; i < 4; i++) count += fwa_arguments_flag(arguments, modes[i]);
    FWA_CHECK(arguments->count >= 1, FWA_USAGE, "fwa sweep: expected a sweep file (fwa help sweep)");
    FWA_CHECK(count <= 1, FWA_USAGE, "fwa sweep: --list, --table, --point and --words exclude each other");
    return FWA_OK;
}

static fwa_status prepare(session *s, const fwa_world *world, const fwa_arguments *arguments) {
    const char *const *words = arguments->at + 1;
    FWA_TRY(fwa_sweep_load(&s->sweep, arguments->at[0]));
    FWA_TRY(check_words(s->sweep, words, arguments->count - 1));
    const char *base = fwa_arguments_value(arguments, "--base", s->sweep->base);
    return fwa_sweep_runs_create(&s->runs, s->sweep, base, world, words, arguments->count - 1);
}

fwa_status fwa_cmd_sweep(fwa_world *world, int argc, char **argv) {
    static const fwa_option options[] = {{"--list", false}, {"--table", false}, {"--point", true},
                                         {"--words", true}, {"--launch", true}, {"--base", true},
                                         {"--csv", true},   {"--eval", true},   {NULL, false}};
    fwa_arguments arguments;
    session s;
    memset(&s, 0, sizeof s);
    FWA_TRY(fwa_arguments_parse(&arguments, options, argc, argv));
    FWA_TRY(check_options(&arguments));
    FWA_CHECK(!world->mpi, FWA_USAGE,
              "fwa sweep: start it without mpirun or srun; --launch 'mpirun -np %d' gives every point its ranks",
              world->size);
    fwa_status status = prepare(&s, world, &arguments);
    if (status == FWA_OK) status = act(&s, &arguments);
    free(s.launch.text);
    free(s.eval.text);
    fwa_sweep_runs_destroy(s.runs);
    fwa_sweep_destroy(s.sweep);
    return status;
}
