// fwa eval --task addition: exact match by operand width.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/shape.h"
#include "io/files.h"
#include "train/eval/eval.h"
#include "train/eval/evaluation.h"

#define STANDARD_EXAMPLES 1000 // a width

static const char *const measure_name[2] = {[FWA_ADDITION_UPTO] = "upto", [FWA_ADDITION_EXACT] = "exact"};

typedef struct table {
    const fwa_loaded *loaded;
    const fwa_eval_request *request;
    int64_t low, high, examples;
    fwa_addition_score *scores; // [high - low + 1]
} table;

// Widths to report where none are asked for: all of a small range, beyond the trained range by half of it otherwise.
static void choose_widths(table *t) {
    const int64_t top = t->loaded->config->task.width_max;
    t->low = t->request->low;
    t->high = t->request->high;
    if (t->high > 0) return;
    t->low = top <= 8 ? 1 : fwa_min(top + 1, FWA_ADDITION_MAX_WIDTH);
    t->high = fwa_min(top + (top + 1) / 2, FWA_ADDITION_MAX_WIDTH);
}

static int rows(const table *t) {
    return (int)(t->high - t->low + 1);
}

// Share of row i, teacher-forced or decoded greedily.
static double share(const table *t, int i, int measure, bool greedy) {
    const fwa_addition_score *s = &t->scores[i];
    return (double)(greedy ? s->greedy : s->right)[measure] / (double)s->examples;
}

static void print_row(const table *t, int row) {
    const int first = row < 0 ? 0 : row, end = row < 0 ? rows(t) : row + 1;
    for (int m = 0; m < 2; m++)
        for (int greedy = 0; greedy <= t->request->greedy; greedy++) {
            double sum = 0.0;
            for (int i = first; i < end; i++) sum += share(t, i, m, greedy);
            if (t->request->measured[m]) printf("  %6.1f%%", 100.0 * sum / (end - first));
        }
    printf("\n");
}

static void print_table(const table *t) {
    const fwa_config *config = t->loaded->config;
    printf("\naddition, %s format, trained on widths %lld-%lld; exact match of the answer, %lld example%s a width\n",
           config->task.format == FWA_ADDITION_PAPER ? "paper" : "bracket", (long long)config->task.width_min,
           (long long)config->task.width_max, (long long)t->examples, fwa_plural(t->examples));
    printf("  width");
    for (int m = 0; m < 2; m++)
        if (t->request->measured[m]) printf("  %7s%s", measure_name[m], t->request->greedy ? "   greedy" : "");
    printf("\n");
    for (int i = 0; i < rows(t); i++) {
        printf("  %5lld", (long long)t->scores[i].width);
        print_row(t, i);
    }
    printf("   mean");
    print_row(t, -1);
    if (t->request->measured[FWA_ADDITION_UPTO]) printf("upto: operand widths drawn from 1..width\n");
    if (t->request->measured[FWA_ADDITION_EXACT]) printf("exact: both operands have exactly that width\n");
    if (t->request->greedy) printf("greedy: decoded token by token; the others given the right answer so far\n");
}

static fwa_status write_json(const table *t) {
    char *text = NULL;
    size_t size = 0;
    const char *path = t->request->json;
    FILE *out = open_memstream(&text, &size);
    FWA_CHECK(out, FWA_MEMORY, "%s: out of memory", path);
    fprintf(out, "{\"task\": \"addition\", \"step\": %lld, \"widths\": [", (long long)t->loaded->step);
    for (int i = 0; i < rows(t); i++) {
        fprintf(out, "%s\n  {\"width\": %lld, \"examples\": %lld", i ? "," : "", (long long)t->scores[i].width,
                (long long)t->examples);
        for (int m = 0; m < 2; m++) {
            if (!t->request->measured[m]) continue;
            fprintf(out, ", \"%s\": %.6f", measure_name[m], share(t, i, m, false));
            if (t->request->greedy) fprintf(out, ", \"%s_greedy\": %.6f", measure_name[m], share(t, i, m, true));
        }
        fprintf(out, "}");
    }
    fprintf(out, "\n]}\n");
    return fwa_write_stream(path, out, &text);
}

static fwa_status measure(fwa_world *world, table *t) {
    const fwa_eval_request *q = t->request;
    double said = 0.0;
    for (int i = 0; i < rows(t); i++) {
        fwa_eval_progress(world, &said, i, rows(t), "widths");
        t->scores[i].width = t->low + i;
        t->scores[i].examples = t->examples;
        for (int m = 0; m < 2; m++)
            if (q->measured[m])
                FWA_TRY(fwa_evaluate_addition(world, t->loaded, (fwa_addition_measure)m, q->batch, q->greedy,
                                              &t->scores[i]));
    }
    return FWA_OK;
}

fwa_status fwa_eval_addition(fwa_world *world, const fwa_loaded *l, const fwa_eval_request *q) {
    table t = {.loaded = l, .request = q, .examples = q->examples > 0 ? q->examples : STANDARD_EXAMPLES};
    if (q->grid[0] > 0) return fwa_eval_grid(world, l, q);
    choose_widths(&t);
    t.scores = calloc((size_t)rows(&t), sizeof *t.scores);
    FWA_CHECK(t.scores, FWA_MEMORY, "no memory for %d widths", rows(&t));
    fwa_status status = measure(world, &t), written = FWA_OK;
    if (status == FWA_OK && world->rank == 0) {
        print_table(&t);
        if (q->json) written = write_json(&t);
    }
    if (status == FWA_OK) status = fwa_world_agree(world, written);
    free(t.scores);
    return status;
}
