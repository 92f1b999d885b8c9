// The table of configurations: columns, and what stands in them.
#include "train/report/compare.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/shape.h"
#include "train/progress.h"
#include "train/report/axis.h"
#include "train/report/figure.h"
#include "train/report/scores.h"
#include "train/sweep/table.h"

#define CELL 96
#define GROW 16 // columns more at a time

int64_t fwa_report_trained(const fwa_report_run *run) {
    return run->config && run->config->task.name == FWA_TASK_ADDITION ? run->config->task.width_max : 0;
}

// Hours of updates, without start, validation and checkpoints: rows tell the rate of the tokens since the one before.
static double hours_of(const fwa_report_run *run) {
    double seconds = 0.0;
    for (int64_t i = 0; i < run->count; i++) {
        const int64_t tokens = run->rows[i].tokens - (i ? run->rows[i - 1].tokens : 0);
        seconds += (double)tokens / run->rows[i].tokens_per_s;
    }
    return seconds / 3600.0;
}

static const fwa_report_result *result_of(const fwa_report_run *run, const char *name) {
    for (int i = 0; i < run->result_count; i++)
        if (!strcmp(run->results[i].name, name)) return &run->results[i];
    return NULL;
}

static fwa_report_estimate value_of(const fwa_report_run *run, const fwa_compare_column *c) {
    const fwa_metrics_row *last = fwa_report_last(run), *lowest = fwa_report_lowest(run);
    if (c->kind == FWA_COMPARE_UPDATES) return (fwa_report_estimate){(double)last->step, NAN};
    if (c->kind == FWA_COMPARE_TOKENS) return (fwa_report_estimate){(double)last->tokens, NAN};
    if (c->kind == FWA_COMPARE_HOURS) return (fwa_report_estimate){hours_of(run), NAN};
    if (c->kind == FWA_COMPARE_VAL_LOSS) return (fwa_report_estimate){run->last_val_loss, NAN};
    if (c->kind == FWA_COMPARE_PERPLEXITY) return (fwa_report_estimate){exp(run->last_val_loss), NAN};
    if (c->kind == FWA_COMPARE_LOWEST) return (fwa_report_estimate){lowest ? lowest->val_loss : NAN, NAN};
    if (c->kind == FWA_COMPARE_LOWEST_AT) return (fwa_report_estimate){lowest ? (double)lowest->tokens : NAN, NAN};
    if (c->kind == FWA_COMPARE_SHARE) {
        const fwa_report_estimate share = fwa_report_share_mean(run, c->exact, c->low, c->high);
        return (fwa_report_estimate){100.0 * share.value, 100.0 * share.error};
    }
    if (c->kind == FWA_COMPARE_PAIRS) {
        if (!run->grid || !fwa_addition_grid_same_widths(run->grid, c->grid)) return (fwa_report_estimate){NAN, NAN};
        const fwa_addition_sum sum = fwa_addition_grid_sum(run->grid, c->region);
        return (fwa_report_estimate){100.0 * sum.share, 100.0 * sum.error};
    }
    const fwa_report_result *result = c->kind == FWA_COMPARE_RESULT ? result_of(run, c->title) : NULL;
    return result ? (fwa_report_estimate){result->value, result->error} : (fwa_report_estimate){NAN, NAN};
}

bool fwa_compare_spreads(fwa_compare_kind kind) {
    return kind == FWA_COMPARE_VAL_LOSS || kind == FWA_COMPARE_PERPLEXITY || kind == FWA_COMPARE_LOWEST ||
           kind == FWA_COMPARE_SHARE || kind == FWA_COMPARE_PAIRS || kind == FWA_COMPARE_RESULT;
}

static bool add_column(fwa_compare *t, fwa_compare_column c) {
    bool any = c.kind == FWA_COMPARE_SEEDS;
    for (int i = 0; i < t->report->runs; i++) any |= isfinite(value_of(&t->report->run[i], &c).value);
    for (int i = 0; i < t->columns; i++) any &= strcmp(t->column[i].title, c.title) != 0;
    if (!any) return true;
    if (t->columns % GROW == 0) {
        fwa_compare_column *more = realloc(t->column, (size_t)(t->columns + GROW) * sizeof *more);
        if (!more) return false;
        t->column = more;
    }
    t->column[t->columns++] = c;
    return true;
}

static bool add_share(fwa_compare *t, bool exact, int64_t low, int64_t high) {
    fwa_compare_column c = {.kind = FWA_COMPARE_SHARE, .exact = exact, .low = low, .high = high};
    const char *measure = exact ? "exact" : "upto";
    if (low < high)
        snprintf(c.title, sizeof c.title, "%s, mean of %lld to %lld, %%", measure, (long long)low, (long long)high);
    else
        snprintf(c.title, sizeof c.title, "%s at %lld, %%", measure, (long long)low);
    return add_column(t, c);
}

// The widths that any run was measured at, of runs that were measured beyond `trained` digits.
static void find_widths(const fwa_report *report, int64_t trained, int64_t *low, int64_t *high) {
    int64_t from, to;
    *low = INT64_MAX;
    *high = 0;
    for (int i = 0; i < report->runs; i++) {
        if (!fwa_report_widths_beyond(&report->run[i], trained, &from, &to) || to <= trained) continue;
        *low = fwa_min(*low, from);
        *high = fwa_max(*high, to);
    }
}

// In distribution, the means beyond it, and both ends.
static bool add_shares(fwa_compare *t) {
    int64_t trained = 0, low, high;
    for (int i = 0; i < t->report->runs; i++) trained = fwa_max(trained, fwa_report_trained(&t->report->run[i]));
    find_widths(t->report, trained, &low, &high);
    bool good = !trained || (add_share(t, false, trained, trained) && add_share(t, true, trained, trained));
    for (int exact = 0; exact < 2 && high; exact++)
        good =
            good && add_share(t, exact, low, high) && add_share(t, exact, low, low) && add_share(t, exact, high, high);
    return good;
}

// Means over the pairs of a run's grid, by how many of both widths are trained ones.
static bool add_pairs(fwa_compare *t, const fwa_addition_grid *g) {
    static const char *const names[FWA_ADDITION_REGIONS] = {"both", "one", "none"};
    const int64_t step = g->count > 2 ? g->width[1] - g->width[0] : 1;
    char steps[32] = "";
    bool good = true;
    if (step > 1) snprintf(steps, sizeof steps, " by %lld", (long long)step);
    for (int r = 0; r < FWA_ADDITION_REGIONS; r++) {
        fwa_compare_column c = {.kind = FWA_COMPARE_PAIRS, .grid = g, .region = (fwa_addition_region)r};
        snprintf(c.title, sizeof c.title, "pairs of %d width%s, %lld to %lld%s: %s trained, %%", g->count,
                 fwa_plural(g->count), (long long)g->width[0], (long long)g->width[g->count - 1], steps, names[r]);
        good = good && add_column(t, c);
    }
    return good;
}

static bool add_columns(fwa_compare *t) {
    bool language = false, good = true;
    for (int i = 0; i < t->report->runs; i++) language |= !fwa_report_trained(&t->report->run[i]);
    good = add_column(t, (fwa_compare_column){.kind = FWA_COMPARE_SEEDS, .title = "seeds"}) &&
           add_column(t, (fwa_compare_column){.kind = FWA_COMPARE_UPDATES, .title = "updates"}) &&
           add_column(t, (fwa_compare_column){.kind = FWA_COMPARE_TOKENS, .title = "tokens"}) &&
           add_column(t, (fwa_compare_column){.kind = FWA_COMPARE_HOURS, .title = "hours of updates"}) &&
           add_column(t, (fwa_compare_column){.kind = FWA_COMPARE_VAL_LOSS, .title = "validation loss"});
    if (language)
        good = good && add_column(t, (fwa_compare_column){.kind = FWA_COMPARE_PERPLEXITY, .title = "perplexity"});
    if (fwa_report_rose(t->report))
        good = good &&
               add_column(t, (fwa_compare_column){.kind = FWA_COMPARE_LOWEST, .title = "lowest validation loss"}) &&
               add_column(t, (fwa_compare_column){.kind = FWA_COMPARE_LOWEST_AT, .title = "lowest after, tokens"});
    good = good && add_shares(t);
    for (int r = 0; r < t->report->runs; r++)
        if (t->report->run[r].grid) good = good && add_pairs(t, t->report->run[r].grid);
    for (int r = 0; r < t->report->runs; r++)
        for (int i = 0; i < t->report->run[r].result_count; i++) {
            fwa_compare_column c = {.kind = FWA_COMPARE_RESULT};
            snprintf(c.title, sizeof c.title, "%s", t->report->run[r].results[i].name);
            good = good && add_column(t, c);
        }
    return good;
}

static fwa_compare_cell join(const fwa_report *report, const fwa_report_group *group, const fwa_compare_column *c,
                             double *values) {
    fwa_compare_cell joined;
    double error = NAN;
    for (int i = 0; i < group->count; i++) {
        const fwa_report_estimate single = value_of(&report->run[group->first + i], c);
        values[i] = single.value;
        if (!isnan(single.value)) error = single.error;
    }
    joined.runs = fwa_sweep_mean(values, group->count, &joined.value, &joined.spread);
    if (joined.runs < 2) joined.spread = error;
    if (!fwa_compare_spreads(c->kind)) joined.spread = NAN;
    return joined;
}

void fwa_compare_free(fwa_compare *t) {
    free(t->column);
    free(t->cell);
}

fwa_status fwa_compare_make(fwa_compare *t, const fwa_report *report) {
    double *values = calloc((size_t)report->runs, sizeof *values);
    *t = (fwa_compare){.report = report};
    bool good = values && add_columns(t);
    if (good) t->cell = calloc((size_t)report->groups * (size_t)t->columns, sizeof *t->cell);
    good = good && t->cell;
    for (int g = 0; good && g < report->groups; g++)
        for (int c = 0; c < t->columns; c++)
            t->cell[g * t->columns + c] = join(report, &report->group[g], &t->column[c], values);
    free(values);
    if (!good) fwa_compare_free(t);
    FWA_CHECK(good, FWA_MEMORY, "no memory for a table of %d runs", report->runs);
    return FWA_OK;
}

// "0, 1, 2"; empty where a configuration is not known.
static void print_seeds(const fwa_report *report, int group, FILE *out) {
    const fwa_report_group *g = &report->group[group];
    for (int i = 0; i < g->count; i++) {
        const char *seed = fwa_report_value(&report->run[g->first + i], "run.seed");
        if (seed) fprintf(out, "%s%s", i ? ", " : "", seed);
    }
}

static void print_fixed(const fwa_compare_cell *x, int decimals, FILE *out) {
    fprintf(out, fabs(x->value) < 1e9 ? "%.*f" : "%.*g", decimals, x->value);
    if (isfinite(x->spread)) fprintf(out, " ± %.*f", decimals, x->spread);
}

void fwa_compare_print(const fwa_compare *t, int group, int c, FILE *out) {
    const fwa_compare_cell *x = &t->cell[group * t->columns + c];
    const fwa_compare_kind kind = t->column[c].kind;
    char text[CELL];
    if (kind == FWA_COMPARE_SEEDS) {
        print_seeds(t->report, group, out);
    } else if (!isfinite(x->value)) {
        fputs("–", out);
    } else if (kind == FWA_COMPARE_UPDATES) {
        fputs(fwa_text_count(llround(x->value), text), out);
    } else if (kind == FWA_COMPARE_TOKENS || kind == FWA_COMPARE_LOWEST_AT) {
        fputs(fwa_axis_text(x->value, text), out);
    } else if (kind == FWA_COMPARE_VAL_LOSS || kind == FWA_COMPARE_LOWEST) {
        fwa_report_number(x->value, x->spread, text);
        fputs(text, out);
    } else {
        const double size = fabs(x->value);
        const bool per_cent = strchr(t->column[c].title, '%') != NULL;
        print_fixed(x,
                    kind == FWA_COMPARE_SHARE || kind == FWA_COMPARE_PAIRS ? 1
                    : per_cent                                             ? 2
                    : size < 10.0                                          ? 3
                    : size < 1000.0                                        ? 2
                                                                           : 0,
                    out);
    }
}

void fwa_compare_meaning(const fwa_compare *t, fwa_compare_kind first, fwa_compare_kind last, FILE *out) {
    bool several = false, single = false;
    for (int g = 0; g < t->report->groups; g++)
        for (int c = 0; c < t->columns; c++) {
            if (t->column[c].kind < first || t->column[c].kind > last) continue;
            const fwa_compare_cell *cell = &t->cell[g * t->columns + c];
            several |= isfinite(cell->spread) && cell->runs > 1;
            single |= isfinite(cell->spread) && cell->runs == 1;
        }
    if (several) fputs("± is the standard deviation (n - 1) over seeds", out);
    if (single) fprintf(out, several ? ", of one seed the standard error" : "± is the standard error of one run");
    if (several || single) fputc('.', out);
}
