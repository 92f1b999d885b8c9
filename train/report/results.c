// Tables of what fwa eval measured, in a report's page.
#include "train/report/compare.h"
#include "train/report/figure.h"
#include "train/report/tables.h"

static bool has_kind(const fwa_compare *t, fwa_compare_kind first, fwa_compare_kind last) {
    for (int c = 0; c < t->columns; c++)
        if (t->column[c].kind >= first && t->column[c].kind <= last) return true;
    return false;
}

static void print_word(const char *tag, const char *text, FILE *out) {
    fprintf(out, "<%s>", tag);
    fwa_html_text(text, out);
    fprintf(out, "</%s>", tag);
}

static void print_cell(const fwa_compare *t, int group, int column, FILE *out) {
    fputs("<td>", out);
    fwa_compare_print(t, group, column, out);
    fputs("</td>", out);
}

static void close_table(const fwa_compare *t, fwa_compare_kind first, fwa_compare_kind last, FILE *out) {
    fputs("</tbody></table></div>\n<p class=\"note\">", out);
    fwa_compare_meaning(t, first, last, out);
    fputs("</p>\n", out);
}

static void print_results(const fwa_compare *t, FILE *out) {
    fputs("<h2>Evaluation</h2>\n<div class=\"wide\"><table><thead><tr><th></th>", out);
    for (int g = 0; g < t->report->groups; g++) print_word("th", t->report->group[g].name, out);
    fputs("</tr></thead><tbody>\n", out);
    for (int c = 0; c < t->columns; c++) {
        if (t->column[c].kind != FWA_COMPARE_RESULT) continue;
        fputs("<tr>", out);
        print_word("td", t->column[c].title, out);
        for (int g = 0; g < t->report->groups; g++) print_cell(t, g, c, out);
        fputs("</tr>\n", out);
    }
    close_table(t, FWA_COMPARE_RESULT, FWA_COMPARE_RESULT, out);
}

static bool is_addition(const fwa_compare_column *column) {
    return column->kind == FWA_COMPARE_SHARE || column->kind == FWA_COMPARE_PAIRS;
}

static void print_addition(const fwa_compare *t, FILE *out) {
    fputs("<div class=\"wide\"><table><thead><tr><th>run</th>", out);
    for (int c = 0; c < t->columns; c++)
        if (is_addition(&t->column[c])) print_word("th", t->column[c].title, out);
    fputs("</tr></thead><tbody>\n", out);
    for (int g = 0; g < t->report->groups; g++) {
        fputs("<tr>", out);
        print_word("td", t->report->group[g].name, out);
        for (int c = 0; c < t->columns; c++)
            if (is_addition(&t->column[c])) print_cell(t, g, c, out);
        fputs("</tr>\n", out);
    }
    close_table(t, FWA_COMPARE_SHARE, FWA_COMPARE_PAIRS, out);
}

// With columns of these kinds, their table.
static fwa_status print_kinds(const fwa_report *report, fwa_compare_kind first, fwa_compare_kind last, FILE *out,
                              void (*print)(const fwa_compare *, FILE *)) {
    fwa_compare t;
    FWA_TRY(fwa_compare_make(&t, report));
    if (has_kind(&t, first, last)) print(&t, out);
    fwa_compare_free(&t);
    return FWA_OK;
}

fwa_status fwa_report_results(const fwa_report *report, FILE *out) {
    return print_kinds(report, FWA_COMPARE_RESULT, FWA_COMPARE_RESULT, out, print_results);
}

fwa_status fwa_report_addition(const fwa_report *report, FILE *out) {
    return print_kinds(report, FWA_COMPARE_SHARE, FWA_COMPARE_PAIRS, out, print_addition);
}
