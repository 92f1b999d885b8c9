// fwa eval --task addition --grid: exact match over pairs of operand widths.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "io/files.h"
#include "train/eval/eval.h"
#include "train/eval/evaluation.h"

#define STANDARD_EXAMPLES 200 // a pair

static const char *const region_names[FWA_ADDITION_REGIONS] = {"both of trained widths", "one of another width",
                                                               "both of other widths"};

// In whole per cent; 100 where all are right and 0 where none is, alone.
static int per_cent(int64_t right, int64_t examples) {
    const int rounded = (int)lround(100.0 * (double)right / (double)examples);
    if (right == 0 || right == examples) return rounded;
    return rounded < 1 ? 1 : rounded > 99 ? 99 : rounded;
}

// Whether trained widths begin or end in front of width i.
static bool at_border(const fwa_addition_grid *g, int i) {
    return i > 0 && fwa_addition_grid_trained(g, i) != fwa_addition_grid_trained(g, i - 1);
}

static void print_border(const fwa_addition_grid *g) {
    fputs("       ", stdout);
    for (int j = 0; j < g->count; j++) printf("%s-----", at_border(g, j) ? "-+" : "");
    fputc('\n', stdout);
}

// Row i, or for -1 the head.
static void print_row(const fwa_addition_grid *g, int i) {
    if (i < 0)
        fputs("       ", stdout);
    else
        printf("  %5lld", (long long)g->width[i]);
    for (int j = 0; j < g->count; j++) {
        const int64_t number = i < 0 ? g->width[j] : per_cent(g->cell[i * g->count + j].right, g->examples);
        printf("%s%5lld", at_border(g, j) ? " |" : "", (long long)number);
    }
    fputc('\n', stdout);
}

// A count's share of the wrong answers.
static void print_part(int64_t count, int64_t wrong) {
    if (wrong)
        printf("  %11.1f%%", 100.0 * (double)count / (double)wrong);
    else
        printf("  %12s", "-");
}

static void print_regions(const fwa_addition_grid *g) {
    printf("  %-22s  %5s  %6s  %12s  %12s\n", "operands", "pairs", "right", "wrong beyond", "wrong length");
    for (int r = 0; r < FWA_ADDITION_REGIONS; r++) {
        const fwa_addition_sum sum = fwa_addition_grid_sum(g, (fwa_addition_region)r);
        const int64_t wrong = sum.examples - sum.counts.right;
        if (sum.cells == 0) continue;
        printf("  %-22s  %5lld  %5.1f%%", region_names[r], (long long)sum.cells, 100.0 * sum.share);
        print_part(sum.counts.beyond, wrong);
        print_part(sum.counts.length, wrong);
        fputc('\n', stdout);
    }
    fputs(
        "wrong beyond: share of the wrong answers whose first wrong token stands behind the digits that both operands "
        "have\n"
        "wrong length: whose first wrong token is a digit where the sum ends, or none where it goes on\n",
        stdout);
}

static void print_grid(const fwa_addition_grid *g) {
    printf("\naddition, bracket format, trained on widths %lld-%lld; exact match of the answer in per cent, %lld "
           "example%s a pair\nrows: digits of the first operand; columns: of the second\n",
           (long long)g->trained[0], (long long)g->trained[1], (long long)g->examples, fwa_plural(g->examples));
    print_row(g, -1);
    for (int i = 0; i < g->count; i++) {
        if (at_border(g, i)) print_border(g);
        print_row(g, i);
    }
    fputc('\n', stdout);
    print_regions(g);
}

static fwa_status write_json(const fwa_addition_grid *g, int64_t step, const char *path) {
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    FWA_CHECK(out, FWA_MEMORY, "%s: out of memory", path);
    fprintf(out, "{\"task\": \"addition\", \"step\": %lld, \"grid\": ", (long long)step);
    fwa_addition_grid_write(g, out);
    fputs("}\n", out);
    return fwa_write_stream(path, out, &text);
}

static fwa_status measure(fwa_world *world, const fwa_loaded *l, const fwa_eval_request *q, fwa_addition_grid *g) {
    fwa_status written = FWA_OK;
    FWA_TRY(fwa_addition_grid_widths(g, q->grid[0], q->grid[1], q->grid[2]));
    g->examples = q->examples > 0 ? q->examples : STANDARD_EXAMPLES;
    g->trained[0] = l->config->task.width_min;
    g->trained[1] = l->config->task.width_max;
    FWA_TRY(fwa_evaluate_grid(world, l, q->batch, g));
    if (world->rank == 0) {
        print_grid(g);
        if (q->json) written = write_json(g, l->step, q->json);
    }
    return fwa_world_agree(world, written);
}

fwa_status fwa_eval_grid(fwa_world *world, const fwa_loaded *l, const fwa_eval_request *q) {
    fwa_addition_grid *g = calloc(1, sizeof *g);
    FWA_CHECK(g, FWA_MEMORY, "no memory for a grid of widths");
    fwa_status status = measure(world, l, q, g);
    free(g);
    return status;
}
