// fwa sweep SWEEP.yaml [key.path=value ...] [--base CONFIG.yaml] [--list | --table | --point N | --words N]
//           [--jobs N] [--gpus-per-job G] [--launch COMMAND] [--eval WORDS ...] [--csv FILE]
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "io/files.h"
#include "kernels/registry.h"
#include "train/arguments.h"
#include "train/commands.h"
#include "train/sweep/child.h"
#include "train/sweep/jobs.h"
#include "train/sweep/table.h"

typedef struct session {
    fwa_sweep *sweep;
    fwa_sweep_runs *runs;
    fwa_word_list launch;
    fwa_sweep_evals evals;
    fwa_sweep_places places;
    char program[FWA_PATH_MAX]; // this one
} session;

static fwa_status read_launch(session *s, const char *text) {
    if (!text) return FWA_OK;
    FWA_TRY(fwa_word_list_read(&s->launch, "--launch", text));
    FWA_CHECK(s->launch.count, FWA_USAGE, "--launch '%s': expected a command, such as 'mpirun -np 4'", text);
    return FWA_OK;
}

static fwa_status find_program(session *s) {
    ssize_t length = readlink("/proc/self/exe", s->program, sizeof s->program - 1);
    FWA_CHECK(length > 0, FWA_ERROR, "cannot find this program in /proc/self/exe");
    s->program[length] = '\0';
    return FWA_OK;
}

// Nothing is left of `word` behind `own`, which sets the same key, or this key in every entry of model.mixer.
static bool hides(const char *own, const char *word) {
    static const char mixer[] = "model.mixer.";
    const size_t length = strcspn(word, "="), before = strlen(mixer);
    if (!word[length]) return false;
    if (!strncmp(own, word, length + 1)) return true;
    if (strncmp(word, mixer, before) != 0 || strncmp(own, mixer, before) != 0) return false;
    const char *dot = memchr(word + before, '.', length - before);
    return dot && !strncmp(own + before, dot + 1, (size_t)(word + length - dot));
}

// A setting of the command line that a point overrides would be lost.
static fwa_status check_words(const fwa_sweep *sweep, const char *const *words, int count) {
    for (int w = 0; w < count; w++) {
        FWA_CHECK(strncmp(words[w], "run.name=", 9) != 0, FWA_USAGE,
                  "run.name: the sweep itself names the runs; choose run.dir, or another name: in %s", sweep->path);
        for (int p = 0; p < sweep->count; p++)
            for (int i = 0; i < sweep->points[p].setting_count; i++) {
                const fwa_setting *own = &sweep->points[p].settings[i];
                FWA_CHECK(!hides(own->text, words[w]), FWA_USAGE,
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
        return FWA_FAULTY;
    }
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

static fwa_status run_points(session *s, int first, int count, fwa_sweep_failures *failures) {
    const fwa_sweep_jobs jobs = {s->runs, s->program, &s->launch, &s->evals, &s->places};
    return fwa_sweep_jobs_run(&jobs, first, count, failures);
}

static fwa_status run_all(session *s, const char *csv) {
    fwa_sweep_failures failures;
    FWA_TRY(run_points(s, 0, s->runs->count, &failures));
    for (int i = 0; i < s->runs->count; i++) FWA_TRY(fwa_sweep_run_update(&s->runs->run[i]));
    FWA_TRY(report(s->runs, csv));
    FWA_CHECK(!failures.count, FWA_FAULTY, "%d of %d point%s failed", failures.count, s->runs->count,
              fwa_plural(s->runs->count));
    return FWA_OK;
}

static fwa_status run_one(session *s, int index) {
    fwa_sweep_failures failures;
    FWA_TRY(run_points(s, index, 1, &failures));
    FWA_CHECK(!failures.count, status_of(failures.code), "point %d, %s: exit code %d", index + 1,
              s->runs->run[index].point->name, failures.code);
    return FWA_OK;
}

static fwa_status print_words(const fwa_sweep_runs *runs, int index) {
    char **words = NULL;
    FWA_TRY(fwa_sweep_words(runs, index, &words));
    for (int i = 0; words[i]; i++) puts(words[i]);
    fwa_sweep_words_free(words);
    return FWA_OK;
}

// What --jobs and --gpus-per-job make of this machine.
static fwa_status share_machine(session *s, const fwa_arguments *arguments) {
    fwa_sweep_machine machine = {getenv("CUDA_VISIBLE_DEVICES"), 0, {{0}}, fwa_cores_granted()};
    fwa_sweep_request request = {.jobs = fwa_arguments_value(arguments, "--jobs", NULL),
                                 .wants_gpus = s->evals.wants_gpus,
                                 .launches = s->launch.count > 0};
    int64_t gpus;
    FWA_TRY(fwa_arguments_integer(arguments, "--gpus-per-job", 0, 1, 1024, &gpus));
    request.gpus = (int)gpus;
    if (request.jobs || gpus) machine.devices = fwa_backend_device_count(FWA_BACKEND_CUDA);
    for (int i = 0; i < s->runs->count; i++) {
        const fwa_backend_choice backend = s->runs->run[i].backend;
        request.points += fwa_sweep_jobs_due(s->runs, &s->evals, i);
        request.wants_gpus |= backend == FWA_CHOOSE_CUDA || (backend == FWA_CHOOSE_AUTO && machine.devices > 0);
    }
    fwa_cores_usable(&machine.cores);
    return fwa_sweep_places_share(&s->places, &request, &machine);
}

static fwa_status train(session *s, const fwa_world *world, const fwa_arguments *arguments, int point,
                        const char *csv) {
    FWA_TRY(read_launch(s, fwa_arguments_value(arguments, "--launch", NULL)));
    const bool here = s->launch.count == 0; // another command may start points elsewhere
    FWA_TRY(fwa_child_hold_signals());      // first: counting GPUs starts threads
    FWA_TRY(fwa_sweep_evals_check(&s->evals, s->runs, world, here));
    FWA_TRY(share_machine(s, arguments));
    FWA_TRY(find_program(s));
    return point ? run_one(s, point - 1) : run_all(s, csv);
}

static fwa_status act(session *s, const fwa_world *world, const fwa_arguments *arguments) {
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
    return train(s, world, arguments, (int)point, csv);
}

static fwa_status check_options(const fwa_arguments *arguments) {
    static const char *const modes[] = {"--list", "--table", "--point", "--words"};
    int count = 0;
    for (int i = 0; i < 4; i++) count += fwa_arguments_flag(arguments, modes[i]);
    FWA_CHECK(arguments->count >= 1, FWA_USAGE, "fwa sweep: expected a sweep file (fwa help sweep)");
    FWA_CHECK(count <= 1, FWA_USAGE, "fwa sweep: --list, --table, --point and --words exclude each other");
    FWA_CHECK(!count || !fwa_arguments_flag(arguments, "--jobs"), FWA_USAGE,
              "fwa sweep: --jobs is for training all points, not for --list, --table, --point or --words");
    return FWA_OK;
}

static fwa_status prepare(session *s, const fwa_world *world, const fwa_arguments *arguments) {
    const char *const *words = arguments->at + 1;
    FWA_TRY(fwa_sweep_load(&s->sweep, arguments->at[0]));
    FWA_TRY(check_words(s->sweep, words, arguments->count - 1));
    const char *base = fwa_arguments_value(arguments, "--base", s->sweep->base);
    FWA_TRY(fwa_sweep_runs_create(&s->runs, s->sweep, base, world, words, arguments->count - 1));
    return fwa_sweep_evals_read(&s->evals, arguments);
}

fwa_status fwa_cmd_sweep(fwa_world *world, int argc, char **argv) {
    static const fwa_option options[] = {{"--list", false},        {"--table", false}, {"--point", true},
                                         {"--words", true},        {"--launch", true}, {"--base", true},
                                         {"--csv", true},          {"--eval", true},   {"--jobs", true},
                                         {"--gpus-per-job", true}, {NULL, false}};
    fwa_arguments arguments;
    static session s; // large for a stack
    memset(&s, 0, sizeof s);
    FWA_TRY(fwa_arguments_parse(&arguments, options, argc, argv));
    FWA_TRY(check_options(&arguments));
    FWA_CHECK(!world->mpi, FWA_USAGE,
              "fwa sweep: start it without mpirun or srun; --launch 'mpirun -np %d' gives every point its ranks",
              world->size);
    fwa_status status = prepare(&s, world, &arguments);
    if (status == FWA_OK) status = act(&s, world, &arguments);
    fwa_word_list_free(&s.launch);
    fwa_sweep_evals_free(&s.evals);
    fwa_sweep_places_free(&s.places);
    fwa_sweep_runs_destroy(s.runs);
    fwa_sweep_destroy(s.sweep);
    return status;
}
