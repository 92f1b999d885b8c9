// The page of a report.
#include "train/report_page.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/version.h"
#include "io/files.h"
#include "train/report_figure.h"
#include "train/report_style.h"
#include "train/report_tables.h"

#define POINTS     240 // of a curve: about one a two pixels
#define BANDS_MOST 3   // ranges of single runs that can lie over each other and still be read

typedef struct panel {
    fwa_report_measure measure;
    const char *title;
    bool log, settles, from_zero, per_cent, band;
} panel;

static const panel curves[] = {
    {.measure = FWA_REPORT_LOSS, .title = "Training loss, nats a token", .settles = true, .band = true},
    {.measure = FWA_REPORT_VAL_LOSS, .title = "Validation loss, nats a token", .settles = true},
    {.measure = FWA_REPORT_PERPLEXITY, .title = "Validation perplexity", .log = true, .settles = true},
    {.measure = FWA_REPORT_LR, .title = "Learning rate", .from_zero = true},
    {.measure = FWA_REPORT_GRAD_NORM, .title = "Gradient norm, before clipping", .log = true, .band = true},
    {.measure = FWA_REPORT_SPEED, .title = "Tokens a second", .from_zero = true, .band = true},
};

static const panel widths[] = {
    {.measure = FWA_REPORT_UPTO, .title = "Exact match, per cent: operands up to a width", .per_cent = true},
    {.measure = FWA_REPORT_EXACT, .title = "Exact match, per cent: operands of exactly a width", .per_cent = true},
};

static bool has_seeds(const fwa_report *report) {
    for (int g = 0; g < report->groups; g++)
        if (report->group[g].count > 1) return true;
    return false;
}

static bool has_scores(const fwa_report *report) {
    for (int i = 0; i < report->runs; i++)
        if (report->run[i].score_count) return true;
    return false;
}

static fwa_status draw_panel(const fwa_report *report, const panel *what, int number, FILE *out) {
    fwa_figure_line *lines = calloc((size_t)report->groups, sizeof *lines);
    fwa_status status = FWA_OK;
    FWA_CHECK(lines, FWA_MEMORY, "no memory for a figure of %d runs", report->groups);
    for (int g = 0; g < report->groups && status == FWA_OK; g++) {
        const fwa_report_group *group = &report->group[g];
        const bool few = group->count > 1 ? group->colour >= 0 : what->band && report->groups <= BANDS_MOST;
        lines[g] = (fwa_figure_line){.name = group->name,
                                     .label = report->groups > 1 && group->colour >= 0 ? group->label : NULL,
                                     .colour = group->colour,
                                     .band = few};
        status = fwa_report_curve(&lines[g].curve, report, g, what->measure, POINTS);
    }
    fwa_figure figure = {.number = number,
                         .title = what->title,
                         .x_title = what->per_cent ? "digits" : "tokens",
                         .log = what->log,
                         .settles = what->settles,
                         .from_zero = what->from_zero,
                         .per_cent = what->per_cent,
                         .marks = what->per_cent,
                         .line = lines,
                         .lines = report->groups};
    if (status == FWA_OK) fwa_figure_lines(&figure, out);
    for (int g = 0; g < report->groups; g++) fwa_curve_free(&lines[g].curve);
    free(lines);
    return status;
}

// Final validation losses, or losses where a run has no validation, a row a group.
static fwa_status draw_ends(const fwa_report *report, FILE *out) {
    bool validated = true;
    fwa_figure_row *rows = calloc((size_t)report->groups, sizeof *rows);
    double *values = calloc((size_t)report->runs, sizeof *values);
    bool good = rows && values;
    for (int i = 0; i < report->runs; i++) validated &= !isnan(report->run[i].last_val_loss);
    for (int i = 0; good && i < report->runs; i++)
        values[i] = fwa_report_end(&report->run[i], validated ? FWA_REPORT_VAL_LOSS : FWA_REPORT_LOSS);
    for (int g = 0; good && g < report->groups; g++)
        rows[g] = (fwa_figure_row){.name = report->group[g].label,
                                   .colour = report->group[g].colour,
                                   .value = &values[report->group[g].first],
                                   .count = report->group[g].count};
    if (good)
        fwa_figure_dots(validated ? "Last validation loss" : "Last training loss",
                        has_seeds(report) ? "Large dot: mean over seeds; bar: ± standard deviation; small dots: runs."
                                          : NULL,
                        rows, report->groups, out);
    free(rows);
    free(values);
    FWA_CHECK(good, FWA_MEMORY, "no memory for a figure of %d runs", report->runs);
    return FWA_OK;
}

static fwa_status draw_panels(const fwa_report *report, const panel *panels, int count, int number, FILE *out) {
    for (int i = 0; i < count; i++) FWA_TRY(draw_panel(report, &panels[i], number + i, out));
    return FWA_OK;
}

static fwa_status print_figures(const fwa_report *report, FILE *out) {
    const int count = (int)(sizeof curves / sizeof *curves);
    if (report->groups > 1) {
        fputs("<div class=\"ends\">\n", out);
        FWA_TRY(draw_ends(report, out));
        fputs("</div>\n", out);
    }
    fputs("<h2>Training</h2>\n<div class=\"figures\">\n", out);
    FWA_TRY(draw_panels(report, curves, count, 0, out));
    fputs("</div>\n", out);
    FWA_TRY(fwa_report_results(report, out));
    if (!has_scores(report)) return FWA_OK;
    fputs("<h2>Addition by width</h2>\n<div class=\"figures\">\n", out);
    FWA_TRY(draw_panels(report, widths, (int)(sizeof widths / sizeof *widths), count, out));
    fputs("</div>\n", out);
    return FWA_OK;
}

// "3 runs of task lm, the last step on 2026-11-30 03:10 UTC"
static void print_lead(const fwa_report *report, FILE *out) {
    double newest = 0.0;
    char date[32] = "";
    for (int i = 0; i < report->runs; i++) newest = fmax(newest, fwa_report_last(&report->run[i])->time);
    const time_t seconds = (time_t)newest;
    struct tm utc;
    if (newest > 0.0 && gmtime_r(&seconds, &utc)) strftime(date, sizeof date, "%Y-%m-%d %H:%M", &utc);
    fputs("<p class=\"lead\">", out);
    if (report->runs > 1) fprintf(out, "%d runs", report->runs);
    if (report->groups > 1 && report->groups < report->runs) fprintf(out, " of %d configurations", report->groups);
    if (report->runs == 1) fwa_html_text(report->run[0].path, out);
    if (date[0]) fprintf(out, "; last step on %s UTC", date);
    fputs("</p>\n", out);
}

static void print_foot(const fwa_report *report, FILE *out) {
    fputs("<footer>Curves are means over stretches of tokens; perplexity is e to the validation loss.", out);
    if (has_seeds(report))
        fputs(" Where there are several seeds, ± and bands are one standard deviation (n − 1) over them; other bands "
              "are the range within a stretch.",
              out);
    else
        fputs(" Bands are the range within a stretch.", out);
    if (report->groups > FWA_REPORT_COLOURS)
        fprintf(out, " Colour marks the %d lowest losses; the others are grey.", FWA_REPORT_COLOURS);
    fputs(" Made by ", out);
    fwa_html_text(fwa_version_text(), out);
    fputs(".</footer>\n", out);
}

static fwa_status print_page(const fwa_report *report, const char *title, FILE *out) {
    fputs("<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
          "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>",
          out);
    fwa_html_text(title, out);
    fprintf(out, "</title>\n<style>\n%s</style></head><body>\n<h1>", fwa_report_style);
    fwa_html_text(title, out);
    fputs("</h1>\n", out);
    print_lead(report, out);
    FWA_TRY(fwa_report_summary(report, out));
    FWA_TRY(print_figures(report, out));
    FWA_TRY(fwa_report_configuration(report, out));
    print_foot(report, out);
    fputs("</body></html>\n", out);
    return FWA_OK;
}

fwa_status fwa_report_page(const fwa_report *report, const char *title, const char *path) {
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    FWA_CHECK(out, FWA_MEMORY, "no memory for %s", path);
    fwa_status status = print_page(report, title, out);
    if (fclose(out) && status == FWA_OK)
        status = fwa_error_raise(FWA_MEMORY, __FILE__, __LINE__, __func__, "no memory for %s", path);
    if (status == FWA_OK) status = fwa_write_bytes(path, text, bytes);
    free(text);
    return status;
}
