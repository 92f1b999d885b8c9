// The page of a report.
#include "train/report/page.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "core/version.h"
#include "train/report/figure.h"
#include "train/report/output.h"
#include "train/report/panels.h"
#include "train/report/style.h"
#include "train/report/tables.h"

static bool has_scores(const fwa_report *report) {
    for (int i = 0; i < report->runs; i++)
        if (report->run[i].score_count || report->run[i].grid) return true;
    return false;
}

static fwa_status print_figures(const fwa_report *report, FILE *out) {
    if (report->groups > 1) {
        fputs("<div class=\"ends\">\n", out);
        FWA_TRY(fwa_report_ends(report, false, out));
        fputs("</div>\n", out);
    }
    fputs("<h2>Training</h2>\n", out);
    FWA_TRY(fwa_report_training(report, out));
    FWA_TRY(fwa_report_results(report, out));
    if (!has_scores(report)) return FWA_OK;
    fputs("<h2>Addition by width</h2>\n", out);
    FWA_TRY(fwa_report_addition(report, out));
    FWA_TRY(fwa_report_widths(report, out));
    fputs("<div class=\"grids\">\n", out);
    FWA_TRY(fwa_report_grids(report, false, out));
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
    fputs("<footer>Curves are means over stretches of training; perplexity is e to the validation loss.", out);
    if (fwa_report_has_seeds(report))
        fputs(" Where there are several seeds, ± and bands are one standard deviation (n − 1) over them; other bands "
              "are the range within a stretch.",
              out);
    else
        fputs(" Bands are the range within a stretch.", out);
    if (report->groups > FWA_REPORT_LINES)
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
    fwa_report_output file;
    FWA_TRY(fwa_report_output_open(&file, path));
    return fwa_report_output_close(&file, print_page(report, title, file.out));
}
