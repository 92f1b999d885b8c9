// The table of a report as Markdown and CSV.
#include "train/report/export.h"

#include <string.h>

#include "io/csv.h"
#include "train/report/compare.h"

// What Markdown would take for markup, a bar above all, is escaped.
static void print_name(const char *name, FILE *out) {
    fputc(' ', out);
    for (; *name; name++) {
        if (strchr("|*_`<[\\", *name)) fputc('\\', out);
        fputc((unsigned char)*name < 0x20 ? ' ' : *name, out);
    }
    fputs(" |", out);
}

static void print_cell(const fwa_compare *t, int group, int column, FILE *out) {
    fputc(' ', out);
    fwa_compare_print(t, group, column, out);
    fputs(" |", out);
}

static void end_head(int columns, FILE *out) {
    fputs("\n|", out);
    for (int i = 0; i < columns; i++) fputs("---|", out);
    fputc('\n', out);
}

static void print_groups(const fwa_compare *t, FILE *out) {
    int shown = 1;
    fputs("| run |", out);
    for (int c = 0; c < t->columns; c++) {
        if (t->column[c].kind == FWA_COMPARE_RESULT) continue;
        print_name(t->column[c].title, out);
        shown++;
    }
    end_head(shown, out);
    for (int g = 0; g < t->report->groups; g++) {
        fputc('|', out);
        print_name(t->report->group[g].name, out);
        for (int c = 0; c < t->columns; c++)
            if (t->column[c].kind != FWA_COMPARE_RESULT) print_cell(t, g, c, out);
        fputc('\n', out);
    }
}

static void print_results(const fwa_compare *t, FILE *out) {
    bool begun = false;
    for (int c = 0; c < t->columns; c++) {
        if (t->column[c].kind != FWA_COMPARE_RESULT) continue;
        if (!begun) fputs("\n| result |", out);
        for (int g = 0; g < t->report->groups && !begun; g++) print_name(t->report->group[g].name, out);
        if (!begun) end_head(t->report->groups + 1, out);
        begun = true;
        fputc('|', out);
        print_name(t->column[c].title, out);
        for (int g = 0; g < t->report->groups; g++) print_cell(t, g, c, out);
        fputc('\n', out);
    }
}

fwa_status fwa_report_markdown(const fwa_report *report, FILE *out) {
    fwa_compare t;
    FWA_TRY(fwa_compare_make(&t, report));
    print_groups(&t, out);
    print_results(&t, out);
    fputc('\n', out);
    fwa_compare_meaning(&t, FWA_COMPARE_SEEDS, FWA_COMPARE_RESULT, out);
    fputc('\n', out);
    fwa_compare_free(&t);
    return FWA_OK;
}

static void print_csv_head(const fwa_compare *t, FILE *out) {
    char title[sizeof t->column->title + 8];
    fputs("run,runs", out);
    for (int c = 0; c < t->columns; c++) {
        fputc(',', out);
        fwa_csv_field(t->column[c].title, out);
        if (!fwa_compare_spreads(t->column[c].kind)) continue;
        snprintf(title, sizeof title, "± %s", t->column[c].title);
        fputc(',', out);
        fwa_csv_field(title, out);
    }
    fputc('\n', out);
}

static void print_csv_cell(const fwa_compare *t, int group, int column, FILE *out) {
    const fwa_compare_cell *cell = &t->cell[group * t->columns + column];
    if (t->column[column].kind == FWA_COMPARE_SEEDS) {
        fputs(",\"", out);
        fwa_compare_print(t, group, column, out);
        fputc('"', out);
        return;
    }
    fwa_csv_number(cell->value, out);
    if (fwa_compare_spreads(t->column[column].kind)) fwa_csv_number(cell->spread, out);
}

fwa_status fwa_report_csv(const fwa_report *report, FILE *out) {
    fwa_compare t;
    FWA_TRY(fwa_compare_make(&t, report));
    print_csv_head(&t, out);
    for (int g = 0; g < report->groups; g++) {
        fwa_csv_field(report->group[g].name, out);
        fprintf(out, ",%d", report->group[g].count);
        for (int c = 0; c < t.columns; c++) print_csv_cell(&t, g, c, out);
        fputc('\n', out);
    }
    fwa_compare_free(&t);
    return FWA_OK;
}
