// Tables of a report.
#include "train/report/tables.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "train/progress.h"
#include "train/report/axis.h"
#include "train/report/curve.h"
#include "train/report/figure.h"
#include "train/sweep/table.h"

#define CELL 96

typedef enum column {
    STATE,
    STEPS,
    TOKENS,
    LOSS,
    VAL_LOSS,
    PERPLEXITY,
    LOWEST,    // validation loss
    LOWEST_AT, // tokens
    SPEED,
    MFU,
    SKIPPED,
    PARAMETERS,
    COLUMNS
} column;

static const char *const titles[COLUMNS] = {"state",
                                            "step",
                                            "tokens",
                                            "loss",
                                            "validation loss",
                                            "perplexity",
                                            "lowest validation loss",
                                            "lowest after, tokens",
                                            "tokens/s",
                                            "share of peak",
                                            "skipped steps",
                                            "parameters"};

static double number_of(const fwa_report_run *run, column which) {
    const fwa_metrics_row *last = fwa_report_last(run), *lowest = fwa_report_lowest(run);
    switch (which) {
    case STEPS:
        return (double)last->step;
    case TOKENS:
        return (double)last->tokens;
    case LOSS:
        return last->loss;
    case VAL_LOSS:
        return run->last_val_loss;
    case PERPLEXITY:
        return exp(run->last_val_loss);
    case LOWEST:
        return lowest ? lowest->val_loss : NAN;
    case LOWEST_AT:
        return lowest ? (double)lowest->tokens : NAN;
    case SPEED:
        return last->tokens_per_s;
    case MFU:
        return 100.0 * last->mfu;
    case SKIPPED:
        return (double)last->skipped;
    case PARAMETERS:
        return run->parameters ? (double)run->parameters : NAN;
    default:
        return NAN;
    }
}

static bool measured(column which) {
    return which == LOSS || which == VAL_LOSS || which == PERPLEXITY || which == LOWEST;
}

static void print_number(double mean, double spread, column which, char text[CELL]) {
    if (measured(which))
        fwa_report_number(mean, spread, text);
    else if (which == TOKENS || which == LOWEST_AT || which == SPEED)
        fwa_axis_text(round(mean), text);
    else if (which == MFU)
        snprintf(text, CELL, "%.1f %%", mean);
    else
        fwa_text_count(llround(mean), text);
}

static void print_state(const fwa_report *report, const fwa_report_group *group, char text[CELL]) {
    int finished = 0;
    for (int i = 0; i < group->count; i++) finished += report->run[group->first + i].finished >= 0;
    if (group->count > 1)
        snprintf(text, CELL, "%d of %d finished", finished, group->count);
    else
        snprintf(text, CELL, "%s", finished ? "finished" : "not finished");
}

static fwa_status print_cell(const fwa_report *report, const fwa_report_group *group, column which, char text[CELL]) {
    double mean, spread, *values = calloc((size_t)group->count, sizeof *values);
    FWA_CHECK(values, FWA_MEMORY, "no memory for a table of runs");
    for (int i = 0; i < group->count; i++) values[i] = number_of(&report->run[group->first + i], which);
    const int n = fwa_sweep_mean(values, group->count, &mean, &spread);
    free(values);
    text[0] = '\0';
    if (which == STATE) print_state(report, group, text);
    if (!n || !isfinite(mean)) return FWA_OK;
    print_number(mean, spread, which, text);
    return FWA_OK;
}

// Columns that say something: where all cells are empty, no step was skipped, or the last validation is the lowest,
// there is none.
static bool shown(const fwa_report *report, column which) {
    if ((which == LOWEST || which == LOWEST_AT) && !fwa_report_rose(report)) return false;
    for (int i = 0; i < report->runs; i++) {
        const double number = number_of(&report->run[i], which);
        if (which == STATE || (isfinite(number) && (which != SKIPPED || number > 0))) return true;
    }
    return false;
}

static fwa_status print_facts(const fwa_report *report, FILE *out) {
    char text[CELL];
    fputs("<dl class=\"facts\">\n", out);
    for (int c = 0; c < COLUMNS; c++) {
        if (!shown(report, (column)c)) continue;
        FWA_TRY(print_cell(report, &report->group[0], (column)c, text));
        fprintf(out, "<div><dt>%s</dt><dd>%s</dd></div>\n", titles[c], text);
    }
    fputs("</dl>\n", out);
    return FWA_OK;
}

static void print_name(const fwa_report *report, int g, FILE *out) {
    const fwa_report_group *group = &report->group[g];
    char colour[16];
    fprintf(out, "<span class=\"key %s\"></span>", fwa_figure_class(group->colour, colour));
    fwa_html_text(group->name, out);
    if (group->count > 1) fprintf(out, " (%d seeds)", group->count);
}

static fwa_status print_groups(const fwa_report *report, FILE *out) {
    char text[CELL];
    fputs("<div class=\"wide\"><table><thead><tr><th>run</th>", out);
    for (int c = 0; c < COLUMNS; c++)
        if (shown(report, (column)c)) fprintf(out, "<th>%s</th>", titles[c]);
    fputs("</tr></thead><tbody>\n", out);
    for (int g = 0; g < report->groups; g++) {
        fputs("<tr><td>", out);
        print_name(report, g, out);
        fputs("</td>", out);
        for (int c = 0; c < COLUMNS; c++) {
            if (!shown(report, (column)c)) continue;
            FWA_TRY(print_cell(report, &report->group[g], (column)c, text));
            fprintf(out, "<td>%s</td>", text);
        }
        fputs("</tr>\n", out);
    }
    fputs("</tbody></table></div>\n", out);
    return FWA_OK;
}

fwa_status fwa_report_summary(const fwa_report *report, FILE *out) {
    return report->groups == 1 ? print_facts(report, out) : print_groups(report, out);
}

static bool hidden(const char *key) {
    return !strcmp(key, "run.name") || !strcmp(key, "run.dir") || !strcmp(key, "run.seed");
}

static const fwa_report_run *first_run(const fwa_report *report, int group) {
    return &report->run[report->group[group].first];
}

static const char *value_or_dash(const fwa_report *report, int group, const char *key) {
    const char *value = fwa_report_value(first_run(report, group), key);
    return value ? value : "–";
}

static bool differs(const fwa_report *report, const char *key) {
    for (int g = 1; g < report->groups; g++)
        if (first_run(report, g)->config && first_run(report, 0)->config &&
            strcmp(value_or_dash(report, 0, key), value_or_dash(report, g, key)) != 0)
            return true;
    return false;
}

// Keys that differ, of all groups, each once; the caller frees the list.
static fwa_status find_differences(const fwa_report *report, const char ***keys, int *count) {
    int most = 0;
    *count = 0;
    for (int g = 0; g < report->groups; g++) most += first_run(report, g)->key_count;
    *keys = calloc((size_t)most + 1, sizeof **keys);
    FWA_CHECK(*keys, FWA_MEMORY, "no memory for %d keys", most);
    for (int g = 0; g < report->groups; g++)
        for (int i = 0; i < first_run(report, g)->key_count; i++) {
            const char *key = first_run(report, g)->keys[i].key;
            bool known = hidden(key) || !differs(report, key);
            for (int k = 0; k < *count && !known; k++) known = !strcmp((*keys)[k], key);
            if (!known) (*keys)[(*count)++] = key;
        }
    return FWA_OK;
}

static void print_head(const char *text, FILE *out) {
    fputs("<th>", out);
    fwa_html_text(text, out);
    fputs("</th>", out);
}

static void print_value(const fwa_report *report, int group, const char *key, FILE *out) {
    fputs("<td>", out);
    fwa_html_text(value_or_dash(report, group, key), out);
    fputs("</td>", out);
}

// The longer list goes down.
static void print_differences(const fwa_report *report, const char *const *keys, int count, FILE *out) {
    const bool keys_down = count > report->groups;
    fputs("<div class=\"wide\"><table class=\"words\"><thead><tr><th></th>", out);
    for (int i = 0; i < (keys_down ? report->groups : count); i++)
        print_head(keys_down ? report->group[i].name : keys[i], out);
    fputs("</tr></thead><tbody>\n", out);
    for (int row = 0; row < (keys_down ? count : report->groups); row++) {
        fputs("<tr><td>", out);
        if (keys_down)
            fwa_html_text(keys[row], out);
        else
            print_name(report, row, out);
        fputs("</td>", out);
        for (int i = 0; i < (keys_down ? report->groups : count); i++)
            print_value(report, keys_down ? i : row, keys_down ? keys[row] : keys[i], out);
        fputs("</tr>\n", out);
    }
    fputs("</tbody></table></div>\n", out);
}

// Keys of the first group that others share: those that were set, or all of them.
static void print_keys(const fwa_report *report, bool all, FILE *out) {
    const fwa_report_run *run = first_run(report, 0);
    fputs("<div class=\"wide\"><table class=\"words\"><tbody>\n", out);
    for (int i = 0; i < run->key_count; i++) {
        const fwa_config_entry *entry = &run->keys[i];
        if (differs(report, entry->key) || (!all && (!entry->changed || hidden(entry->key)))) continue;
        fputs("<tr><td>", out);
        fwa_html_text(entry->key, out);
        fputs("</td><td>", out);
        fwa_html_text(entry->value, out);
        fputs("</td></tr>\n", out);
    }
    fputs("</tbody></table></div>\n", out);
}

static void print_shared(const fwa_report *report, FILE *out) {
    const bool one = report->groups == 1;
    if (!first_run(report, 0)->config) return;
    if (one) {
        fputs("<p class=\"note\">What is not at its default.</p>\n", out);
        print_keys(report, false, out);
    }
    fprintf(out, "<details><summary>%s</summary>\n", one ? "Every key" : "What they share, defaults left out");
    print_keys(report, one, out);
    fputs("</details>\n", out);
}

fwa_status fwa_report_configuration(const fwa_report *report, FILE *out) {
    const char **keys = NULL;
    int count = 0, known = 0;
    for (int g = 0; g < report->groups; g++) known += first_run(report, g)->config != NULL;
    if (!known) return FWA_OK;
    FWA_TRY(find_differences(report, &keys, &count));
    fprintf(out, "<h2>%s</h2>\n", report->groups == 1 ? "Configuration" : "Differences in configuration");
    if (count) print_differences(report, keys, count, out);
    if (!count && report->groups > 1) fputs("<p class=\"note\">None but the seed.</p>\n", out);
    print_shared(report, out);
    free(keys);
    return FWA_OK;
}
