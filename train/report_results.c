// The table of evaluation results in a report.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "train/report_figure.h"
#include "train/report_tables.h"
#include "train/sweep_table.h"

static const fwa_report_result *result_of(const fwa_report_run *run, const char *name) {
    for (int i = 0; i < run->result_count; i++)
        if (!strcmp(run->results[i].name, name)) return &run->results[i];
    return NULL;
}

// Whether an earlier run has a result of this name.
static bool told(const fwa_report *report, int runs, const char *name) {
    for (int r = 0; r < runs; r++)
        if (result_of(&report->run[r], name)) return true;
    return false;
}

static void print_number(double mean, double spread, FILE *out) {
    const int decimals = fabs(mean) < 10 ? 3 : fabs(mean) < 1000 ? 2 : 0;
    fprintf(out, fabs(mean) < 1e9 ? "%.*f" : "%.*g", decimals, mean);
    if (isfinite(spread)) fprintf(out, " ± %.*f", decimals, spread);
}

static fwa_status print_cell(const fwa_report *report, const fwa_report_group *group, const char *name, FILE *out) {
    double mean, spread, error = NAN, *values = calloc((size_t)group->count, sizeof *values);
    FWA_CHECK(values, FWA_MEMORY, "no memory for results of %d runs", group->count);
    for (int i = 0; i < group->count; i++) {
        const fwa_report_result *result = result_of(&report->run[group->first + i], name);
        values[i] = result ? result->value : NAN;
        if (result) error = result->error;
    }
    const int n = fwa_sweep_mean(values, group->count, &mean, &spread);
    free(values);
    fputs("<td>", out);
    if (n) print_number(mean, n > 1 ? spread : error, out);
    fputs("</td>", out);
    return FWA_OK;
}

static fwa_status print_row(const fwa_report *report, const char *name, FILE *out) {
    fputs("<tr><td>", out);
    fwa_html_text(name, out);
    fputs("</td>", out);
    for (int g = 0; g < report->groups; g++) FWA_TRY(print_cell(report, &report->group[g], name, out));
    fputs("</tr>\n", out);
    return FWA_OK;
}

fwa_status fwa_report_results(const fwa_report *report, FILE *out) {
    int count = 0;
    for (int r = 0; r < report->runs; r++) count += report->run[r].result_count;
    if (!count) return FWA_OK;
    fputs("<h2>Evaluation</h2>\n<div class=\"wide\"><table><thead><tr><th></th>", out);
    for (int g = 0; g < report->groups; g++) {
        fputs("<th>", out);
        fwa_html_text(report->group[g].name, out);
        fputs("</th>", out);
    }
    fputs("</tr></thead><tbody>\n", out);
    for (int r = 0; r < report->runs; r++)
        for (int i = 0; i < report->run[r].result_count; i++)
            if (!told(report, r, report->run[r].results[i].name))
                FWA_TRY(print_row(report, report->run[r].results[i].name, out));
    fputs(
        "</tbody></table></div>\n<p class=\"note\">± is the standard error of one run, or the standard deviation over "
        "several.</p>\n",
        out);
    return FWA_OK;
}
