// The figures of a report.
#include "train/report/panels.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/log.h"
#include "io/files.h"
#include "train/report/compare.h"
#include "train/report/figure.h"
#include "train/report/output.h"

#define POINTS     240 // of a curve: about one a two pixels
#define BANDS_MOST 3   // bands of single runs that can lie over each other and still be read

typedef struct panel {
    fwa_report_measure measure;
    const char *file, *title;
    bool log, settles, from_zero, per_cent, band;
} panel;

static const panel curves[] = {
    {FWA_REPORT_LOSS, "loss", "Training loss, nats a token", .settles = true, .band = true},
    {FWA_REPORT_VAL_LOSS, "validation", "Validation loss, nats a token", .settles = true},
    {FWA_REPORT_PERPLEXITY, "perplexity", "Validation perplexity", .log = true, .settles = true},
    {FWA_REPORT_LR, "learning_rate", "Learning rate", .from_zero = true},
    {FWA_REPORT_GRAD_NORM, "gradient_norm", "Gradient norm, before clipping", .log = true, .band = true},
    {FWA_REPORT_SPEED, "speed", "Tokens a second", .from_zero = true, .band = true},
};

static const panel widths[] = {
    {FWA_REPORT_UPTO, "upto", "Exact match, per cent: operands up to a width", .per_cent = true, .band = true},
    {FWA_REPORT_EXACT, "exact", "Exact match, per cent: operands of exactly a width", .per_cent = true, .band = true},
};

#define CURVES (int)(sizeof curves / sizeof *curves)
#define WIDTHS (int)(sizeof widths / sizeof *widths)

bool fwa_report_has_seeds(const fwa_report *report) {
    for (int g = 0; g < report->groups; g++)
        if (report->group[g].count > 1) return true;
    return false;
}

// The share of examples of `width` in `upto` whose operands are no longer than the trained ones: what a model has that
// adds no others.
static double floor_at(const fwa_config *config, double width) {
    const double low = (double)config->task.width_min, trained = (double)config->task.width_max;
    const double share = fmin((trained - low + 1.0) / (width - low + 1.0), 1.0);
    return config->task.format == FWA_ADDITION_PAPER ? share : share * share;
}

static bool same_task(const fwa_report *report) {
    const fwa_config *first = report->run[0].config;
    for (int i = 0; i < report->runs; i++) {
        const fwa_config *c = report->run[i].config;
        if (!fwa_report_trained(&report->run[i]) || c->task.format != first->task.format ||
            c->task.width_min != first->task.width_min || c->task.width_max != first->task.width_max)
            return false;
    }
    return true;
}

// The floor under the curves of `upto`, from their first width to their last; nothing where tasks differ.
static fwa_status add_floor(const fwa_report *report, fwa_figure *figure) {
    double low = INFINITY, high = -INFINITY;
    for (int l = 0; l < figure->lines; l++)
        for (int i = 0; i < figure->line[l].curve.count; i++) {
            low = fmin(low, figure->line[l].curve.at[i].x);
            high = fmax(high, figure->line[l].curve.at[i].x);
        }
    if (!(high > low) || !same_task(report)) return FWA_OK;
    fwa_figure_line *line = &figure->line[figure->lines];
    const int count = (int)(high - low) + 1;
    *line = (fwa_figure_line){.name = "no example beyond the trained widths", .label = "floor", .colour = -1};
    line->reference = true;
    line->curve.at = calloc((size_t)count, sizeof *line->curve.at);
    FWA_CHECK(line->curve.at, FWA_MEMORY, "no memory for a curve of %d points", count);
    for (int i = 0; i < count; i++) {
        const double y = 100.0 * floor_at(report->run[0].config, low + i);
        line->curve.at[i] = (fwa_curve_point){low + i, y, y, y};
    }
    line->curve.count = count;
    figure->lines++;
    figure->note = "Floor: every sum of the trained widths right, and none beyond.";
    return FWA_OK;
}

static fwa_status fill_lines(const fwa_report *report, const panel *what, fwa_figure_line *lines) {
    for (int g = 0; g < report->groups; g++) {
        const fwa_report_group *group = &report->group[g];
        const bool few = group->count > 1 ? group->colour >= 0 : what->band && report->groups <= BANDS_MOST;
        lines[g] = (fwa_figure_line){.name = group->name,
                                     .label = report->groups > 1 && group->colour >= 0 ? group->label : NULL,
                                     .colour = group->colour,
                                     .band = few};
        FWA_TRY(fwa_report_curve(&lines[g].curve, report, g, what->measure, POINTS));
    }
    return FWA_OK;
}

static fwa_status draw_panel(const fwa_report *report, const panel *what, int number, bool alone, FILE *out) {
    fwa_figure_line *lines = calloc((size_t)report->groups + 1, sizeof *lines);
    FWA_CHECK(lines, FWA_MEMORY, "no memory for a figure of %d runs", report->runs);
    fwa_figure figure = {.number = number,
                         .alone = alone,
                         .title = what->title,
                         .x_title = what->per_cent       ? "digits"
                                    : report->by_updates ? "updates"
                                                         : "tokens",
                         .log = what->log,
                         .settles = what->settles,
                         .from_zero = what->from_zero,
                         .per_cent = what->per_cent,
                         .marks = what->per_cent,
                         .line = lines,
                         .lines = report->groups};
    fwa_status status = fill_lines(report, what, lines);
    if (status == FWA_OK && what->measure == FWA_REPORT_UPTO) status = add_floor(report, &figure);
    if (status == FWA_OK) fwa_figure_lines(&figure, out);
    for (int l = 0; l < figure.lines; l++) fwa_curve_free(&lines[l].curve);
    free(lines);
    return status;
}

fwa_status fwa_report_ends(const fwa_report *report, bool alone, FILE *out) {
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
    const char *note = "Large dot: mean over seeds; bar: ± standard deviation; small dots: runs.";
    const fwa_figure_list list = {.title = validated ? "Last validation loss" : "Last training loss",
                                  .note = fwa_report_has_seeds(report) ? note : NULL,
                                  .alone = alone,
                                  .row = rows,
                                  .rows = report->groups};
    if (good) fwa_figure_dots(&list, out);
    free(rows);
    free(values);
    FWA_CHECK(good, FWA_MEMORY, "no memory for a figure of %d runs", report->runs);
    return FWA_OK;
}

static fwa_status draw_panels(const fwa_report *report, const panel *panels, int count, int number, FILE *out) {
    fputs("<div class=\"figures\">\n", out);
    for (int i = 0; i < count; i++) FWA_TRY(draw_panel(report, &panels[i], number + i, false, out));
    fputs("</div>\n", out);
    return FWA_OK;
}

fwa_status fwa_report_training(const fwa_report *report, FILE *out) {
    return draw_panels(report, curves, CURVES, 0, out);
}

fwa_status fwa_report_widths(const fwa_report *report, FILE *out) {
    return draw_panels(report, widths, WIDTHS, CURVES, out);
}

// A figure that has functions of its own, other than a panel's.
typedef fwa_status (*figure_function)(const fwa_report *report, bool alone, FILE *out);

// A picture may be written again; nothing else is written over. `what` NULL: by `draw`.
static fwa_status write_picture(const fwa_report *report, const char *folder, const char *name, const panel *what,
                                figure_function draw, int *written) {
    char path[FWA_PATH_MAX];
    fwa_report_output file;
    FWA_TRY(fwa_path_format(path, "%s/%s.svg", folder, name));
    FWA_TRY(fwa_report_output_check("--figures", path, "<svg", "an SVG"));
    FWA_TRY(fwa_report_output_open(&file, path));
    FWA_TRY(fwa_report_output_close(&file,
                                    what ? draw_panel(report, what, 0, true, file.out) : draw(report, true, file.out)));
    *written += file.bytes > 0;
    return FWA_OK;
}

static fwa_status write_panels(const fwa_report *report, const char *folder, const panel *panels, int count,
                               int *written) {
    for (int i = 0; i < count; i++) FWA_TRY(write_picture(report, folder, panels[i].file, &panels[i], NULL, written));
    return FWA_OK;
}

fwa_status fwa_report_figures(const fwa_report *report, const char *folder) {
    int written = 0;
    FWA_TRY(fwa_make_folders(folder));
    FWA_TRY(write_panels(report, folder, curves, CURVES, &written));
    FWA_TRY(write_panels(report, folder, widths, WIDTHS, &written));
    FWA_TRY(write_picture(report, folder, "grid", NULL, fwa_report_grids, &written));
    if (report->groups > 1) FWA_TRY(write_picture(report, folder, "ends", NULL, fwa_report_ends, &written));
    fwa_log_info("%d figure%s in %s", written, fwa_plural(written), folder);
    return FWA_OK;
}
