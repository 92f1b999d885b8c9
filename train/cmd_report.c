// fwa report RUN ... [-o FILE] [--title TEXT] [--figures FOLDER] [--tensorboard FOLDER]
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "core/log.h"
#include "io/files.h"
#include "io/tfevents.h"
#include "train/arguments.h"
#include "train/commands.h"
#include "train/report/export.h"
#include "train/report/output.h"
#include "train/report/page.h"
#include "train/report/panels.h"

// What a run's event file stands under: the last two parts of its path, of a single run the last one.
static const char *events_name(const fwa_report *report, int i) {
    const char *path = report->run[i].path, *slash = strrchr(path, '/'), *above = slash;
    while (above && above > path && above[-1] != '/') above--; // the folder that holds it
    const char *name = report->runs == 1 && slash ? slash + 1 : above ? above : path;
    return name + strspn(name, "/");
}

static fwa_status check_events_name(const fwa_report *report, int i) {
    const char *name = events_name(report, i), *path = report->run[i].path;
    FWA_CHECK(!strstr(name, ".."), FWA_USAGE, "--tensorboard: %s: name the run by a path without ..", path);
    for (int j = 0; j < i; j++)
        FWA_CHECK(strcmp(name, events_name(report, j)) != 0, FWA_CONFIG,
                  "--tensorboard: %s and %s would both stand under %s: report them one at a time, into two folders",
                  report->run[j].path, path, name);
    return FWA_OK;
}

static fwa_status write_events(const fwa_report *report, const char *folder) {
    char path[FWA_PATH_MAX];
    for (int i = 0; i < report->runs; i++) FWA_TRY(check_events_name(report, i));
    for (int i = 0; i < report->runs; i++) {
        const fwa_report_run *run = &report->run[i];
        const char *name = events_name(report, i);
        const double time = run->count ? run->rows[0].time : 0;
        const long long started = time >= 0 && time < 1e10 ? (long long)time : 0; // of its ten digits; NaN is none
        FWA_TRY(fwa_path_format(path, "%s/%s", folder, name));
        FWA_TRY(fwa_make_folders(path));
        FWA_TRY(fwa_path_format(path, "%s/%s/events.out.tfevents.%010lld.fwa", folder, name, started));
        FWA_TRY(fwa_tfevents_write(path, run->rows, run->count));
    }
    fwa_log_info("%d event file%s in %s", report->runs, fwa_plural(report->runs), folder);
    return FWA_OK;
}

static bool ends_with(const char *path, const char *end) {
    const size_t bytes = strlen(path), last = strlen(end);
    return bytes >= last && !strcasecmp(path + bytes - last, end);
}

// What -o names: the page, or by its ending the table of configurations.
typedef struct form {
    const char *ending, *begin; // of the file's name; of what this program writes there
    fwa_status (*table)(const fwa_report *report, FILE *out);
} form;

static const form *form_of(const char *path) {
    static const form forms[] = {{".md", "| run |", fwa_report_markdown}, {".csv", "run,runs,", fwa_report_csv}};
    static const form page = {"", "<!DOCTYPE html>", NULL};
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
        if (ends_with(path, forms[i].ending)) return &forms[i];
    return &page;
}

static fwa_status write_table(const fwa_report *report, const form *what, const char *path) {
    fwa_report_output file;
    FWA_TRY(fwa_report_output_open(&file, path));
    return fwa_report_output_close(&file, what->table(report, file.out));
}

static fwa_status write_page(const fwa_report *report, const fwa_arguments *arguments, const char *path) {
    const char *given = report->groups == 1 ? report->group[0].name : arguments->at[0];
    char title[FWA_PATH_MAX];
    FWA_TRY(fwa_path_format(title, "%s", given));
    fwa_path_trim(title);
    const char *name = strrchr(title, '/') ? strrchr(title, '/') + 1 : title;
    if (report->groups > 1 && arguments->count > 1) name = "Comparison of runs";
    return fwa_report_page(report, fwa_arguments_value(arguments, "--title", name), path);
}

static fwa_status write_all(const fwa_report *report, const fwa_arguments *arguments, const char *path) {
    const char *events = fwa_arguments_value(arguments, "--tensorboard", NULL);
    const char *figures = fwa_arguments_value(arguments, "--figures", NULL);
    const form *what = form_of(path);
    FWA_TRY(what->table ? write_table(report, what, path) : write_page(report, arguments, path));
    fwa_log_info("%s: %d run%s", path, report->runs, fwa_plural(report->runs));
    if (figures) FWA_TRY(fwa_report_figures(report, figures));
    return events ? write_events(report, events) : FWA_OK;
}

// A report may be written again; metrics, a configuration or a page of notes named by mistake stay.
static fwa_status check_target(const char *path) {
    const form *what = form_of(path);
    return fwa_report_output_check("-o", path, what->begin, what->table ? "a table of fwa report" : "a page of HTML");
}

fwa_status fwa_cmd_report(fwa_world *world, int argc, char **argv) {
    static const fwa_option options[] = {
        {"-o", true}, {"--title", true}, {"--figures", true}, {"--tensorboard", true}, {NULL, false}};
    fwa_arguments arguments;
    fwa_report *report = NULL;
    FWA_TRY(fwa_arguments_parse(&arguments, options, argc, argv));
    FWA_CHECK(arguments.count >= 1, FWA_USAGE, "fwa report: expected run folders (fwa help report)");
    FWA_CHECK(world->size == 1, FWA_USAGE, "fwa report: start it without mpirun or srun");
    const char *path = fwa_arguments_value(&arguments, "-o", "report.html");
    FWA_TRY(fwa_file_check_target("-o", path));
    FWA_TRY(check_target(path));
    FWA_TRY(fwa_report_load(&report, world, arguments.at, arguments.count));
    fwa_status status = write_all(report, &arguments, path);
    fwa_report_destroy(report);
    return status;
}
