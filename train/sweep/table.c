// Tables of a sweep's points.
#include "train/sweep/table.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "io/csv.h"
#include "io/files.h"

#define MEASURES 5
#define CELL     48

// In the table a value is multiplied by `factor` and has so many digits; `scored` ones are there where any point has
// one.
static const struct {
    const char *name;
    double factor;
    int digits;
    bool scored;
} measures[MEASURES] = {{"loss", 1.0, 4, false},
                        {"val_loss", 1.0, 4, false},
                        {"tokens_per_s", 1.0, 0, false},
                        {"upto", 100.0, 1, true},
                        {"exact", 100.0, 1, true}};

static double measure(const fwa_sweep_run *run, int which) {
    const double values[MEASURES] = {run->loss, run->val_loss, run->tokens_per_s, run->upto, run->exact};
    return values[which];
}

static int measures_shown(const fwa_sweep_runs *runs) {
    int shown = 0;
    for (int m = 0; m < MEASURES; m++) {
        bool any = !measures[m].scored;
        for (int i = 0; i < runs->count; i++) any |= !isnan(measure(&runs->run[i], m));
        if (any) shown = m + 1;
    }
    return shown;
}

void fwa_sweep_list(const fwa_sweep_runs *runs, FILE *out) {
    char state[64];
    for (int i = 0; i < runs->count; i++) {
        fwa_sweep_state_text(&runs->run[i], state);
        fprintf(out, "%5d  %-20s %s\n", i + 1, state, runs->run[i].point->name);
    }
}

int fwa_sweep_mean(const double *values, int count, double *mean, double *spread) {
    int n = 0;
    double sum = 0.0, squares = 0.0;
    for (int i = 0; i < count; i++) {
        if (isnan(values[i])) continue;
        sum += values[i];
        n++;
    }
    *mean = n ? sum / n : NAN;
    for (int i = 0; i < count; i++)
        if (!isnan(values[i])) squares += (values[i] - *mean) * (values[i] - *mean);
    *spread = n > 1 ? sqrt(squares / (n - 1)) : NAN;
    return n;
}

// A table of text whose columns are as wide as their longest cell.
typedef struct grid {
    char *cell; // [rows, columns, CELL]
    int rows, columns;
} grid;

static char *at(const grid *g, int row, int column) {
    return g->cell + ((size_t)row * (size_t)g->columns + (size_t)column) * CELL;
}

// Characters, of UTF-8.
static int width_of(const char *text) {
    int width = 0;
    for (; *text; text++) width += (*text & 0xC0) != 0x80;
    return width;
}

static void print_grid(const grid *g, FILE *out) {
    for (int r = 0; r < g->rows; r++) {
        for (int c = 0; c < g->columns; c++) {
            int width = 0;
            for (int i = 0; i < g->rows; i++) {
                int one = width_of(at(g, i, c));
                if (one > width) width = one;
            }
            bool last = c + 1 == g->columns;
            fprintf(out, "%s%*s%s", at(g, r, c), last ? 0 : width - width_of(at(g, r, c)), "", last ? "\n" : "  ");
        }
    }
}

static void fill_measure(char cell[CELL], const double *values, int count, int which) {
    double mean, spread;
    const int digits = measures[which].digits;
    int n = fwa_sweep_mean(values, count, &mean, &spread);
    mean *= measures[which].factor;
    spread *= measures[which].factor;
    if (n == 0)
        snprintf(cell, CELL, "-");
    else if (n == 1)
        snprintf(cell, CELL, "%.*f", digits, mean);
    else
        snprintf(cell, CELL, "%.*f ± %.*f", digits, mean, digits, spread);
}

// One line of the table, of the points from `first` on; returns the number of points.
static int fill_row(const fwa_sweep_runs *runs, const grid *g, int row, int first, double *values) {
    const fwa_sweep *sweep = runs->sweep;
    int group = runs->run[first].point->group, count = 0, finished = 0;
    for (int i = first; i < runs->count && runs->run[i].point->group == group; i++) count++;
    for (int i = first; i < first + count; i++) finished += runs->run[i].state == FWA_SWEEP_FINISHED;
    for (int c = 0; c < sweep->column_count; c++) {
        const char *value = runs->run[first].point->value[c];
        snprintf(at(g, row, c), CELL, "%.40s", value ? value : "-");
    }
    snprintf(at(g, row, sweep->column_count), CELL, "%d/%d", finished, count);
    for (int m = 0; m < g->columns - sweep->column_count - 1; m++) {
        for (int i = 0; i < count; i++) {
            const fwa_sweep_run *run = &runs->run[first + i];
            values[i] = run->state == FWA_SWEEP_FINISHED ? measure(run, m) : NAN;
        }
        fill_measure(at(g, row, sweep->column_count + 1 + m), values, count, m);
    }
    return count;
}

static void fill_grid(const fwa_sweep_runs *runs, const grid *g, double *values) {
    const fwa_sweep *sweep = runs->sweep;
    for (int c = 0; c < sweep->column_count; c++) snprintf(at(g, 0, c), CELL, "%.40s", sweep->column[c]);
    snprintf(at(g, 0, sweep->column_count), CELL, "finished");
    for (int m = 0; m < g->columns - sweep->column_count - 1; m++)
        snprintf(at(g, 0, sweep->column_count + 1 + m), CELL, "%s%s", measures[m].name, measures[m].scored ? " %" : "");
    for (int i = 0, row = 1; i < runs->count; row++) i += fill_row(runs, g, row, i, values);
}

// Where it stands why a point failed. One that was refused before it had a run folder has no log.txt, and a file of
// what it printed only where points ran several at once; else that was on the terminal.
static const char *reason(const fwa_sweep_run *run) {
    char path[sizeof run->path + 16];
    if (run->state != FWA_SWEEP_FAILED) return "";
    snprintf(path, sizeof path, "%s/log.txt", run->path);
    if (fwa_path_exists(path)) return " (log.txt says why)";
    snprintf(path, sizeof path, "%s.out", run->path);
    return fwa_path_exists(path) ? " (the file .out beside it says why)" : "";
}

static void print_unfinished(const fwa_sweep_runs *runs, FILE *out) {
    char state[64];
    for (int i = 0; i < runs->count; i++) {
        const fwa_sweep_run *run = &runs->run[i];
        if (run->state == FWA_SWEEP_FINISHED) continue;
        fwa_sweep_state_text(run, state);
        fprintf(out, "%s: %s%s\n", state, run->path, reason(run));
    }
}

fwa_status fwa_sweep_table(const fwa_sweep_runs *runs, FILE *out) {
    int finished = 0;
    for (int i = 0; i < runs->count; i++) finished += runs->run[i].state == FWA_SWEEP_FINISHED;
    grid g = {.rows = runs->sweep->groups + 1, .columns = runs->sweep->column_count + 1 + measures_shown(runs)};
    g.cell = calloc((size_t)g.rows * (size_t)g.columns, CELL);
    double *values = calloc((size_t)runs->count, sizeof *values);
    bool good = g.cell && values;
    if (good) {
        fill_grid(runs, &g, values);
        fprintf(out, "sweep %s: %d of %d point%s finished in %s\n", runs->sweep->name, finished, runs->count,
                fwa_plural(runs->count), runs->folder);
        print_grid(&g, out);
        print_unfinished(runs, out);
    }
    free(g.cell);
    free(values);
    FWA_CHECK(good, FWA_MEMORY, "no memory for a table of %d points", runs->count);
    return FWA_OK;
}

static void print_row(const fwa_sweep_runs *runs, int index, int shown, FILE *out) {
    const fwa_sweep_run *run = &runs->run[index];
    fprintf(out, "%d,", index + 1);
    fwa_csv_field(run->point->name, out);
    for (int c = 0; c < runs->sweep->column_count; c++) {
        fputc(',', out);
        if (run->point->value[c]) fwa_csv_field(run->point->value[c], out);
    }
    fprintf(out, ",%s,%s,", run->point->seed ? run->point->seed : "", fwa_sweep_state_name(run->state));
    if (run->state == FWA_SWEEP_FAILED) fprintf(out, "%d", run->code);
    fprintf(out, ",%lld,%lld", (long long)run->step, (long long)run->skipped);
    for (int m = 0; m < shown; m++) fwa_csv_number(measure(run, m), out);
    fputc('\n', out);
}

fwa_status fwa_sweep_csv(const fwa_sweep_runs *runs, const char *path) {
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    FWA_CHECK(out, FWA_MEMORY, "no memory for %s", path);
    fputs("point,name", out);
    for (int c = 0; c < runs->sweep->column_count; c++) {
        fputc(',', out);
        fwa_csv_field(runs->sweep->column[c], out);
    }
    fputs(",seed,state,exit_code,step,skipped", out);
    const int shown = measures_shown(runs);
    for (int m = 0; m < shown; m++) fprintf(out, ",%s", measures[m].name);
    fputc('\n', out);
    for (int i = 0; i < runs->count; i++) print_row(runs, i, shown, out);
    return fwa_write_stream(path, out, &text);
}
