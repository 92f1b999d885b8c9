// A profile's rows as a table and as JSON.
#include "train/bench/profile_rows.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "io/files.h"
#include "kernels/registry.h"

int fwa_profile_row_find(fwa_profile_rows *rows, const char *part, int op) {
    int i = 0;
    while (i < rows->count && (rows->at[i].op != op || strcmp(rows->at[i].part, part) != 0)) i++;
    if (i == FWA_PROFILE_ROWS) return FWA_PROFILE_ROWS - 1;
    if (i == rows->count) rows->at[rows->count++] = (fwa_profile_row){.part = part, .op = op};
    return i;
}

void fwa_profile_row_add(fwa_profile_rows *rows, int row, fwa_cost cost) {
    fwa_profile_row *r = &rows->at[row];
    r->cost.bytes += cost.bytes;
    r->cost.flops += cost.flops;
    r->floor_seconds += fwa_floor_seconds(&rows->floor, cost);
}

// Rows of a part together, and of the whole step where `part` is NULL.
static fwa_profile_row sum_of(const fwa_profile_rows *rows, const char *part) {
    fwa_profile_row sum = {.part = part, .op = FWA_PROFILE_REST};
    for (int i = 0; i < rows->count; i++) {
        const fwa_profile_row *r = &rows->at[i];
        if (part && strcmp(r->part, part) != 0) continue;
        if (r->op == FWA_PROFILE_REST) sum.calls += r->calls;
        sum.seconds += r->seconds;
        sum.cost.bytes += r->cost.bytes;
        sum.cost.flops += r->cost.flops;
        sum.floor_seconds += r->floor_seconds;
    }
    return sum;
}

static int longer(const void *a, const void *b) {
    const double x = ((const fwa_profile_row *)a)->seconds, y = ((const fwa_profile_row *)b)->seconds;
    return (x < y) - (x > y);
}

// Sums of the parts, the longest first.
static int parts_of(const fwa_profile_rows *rows, fwa_profile_row *parts) {
    int count = 0;
    for (int i = 0; i < rows->count; i++) {
        bool seen = false;
        for (int p = 0; p < count && !seen; p++) seen = strcmp(parts[p].part, rows->at[i].part) == 0;
        if (!seen) parts[count++] = sum_of(rows, rows->at[i].part);
    }
    qsort(parts, (size_t)count, sizeof *parts, longer);
    return count;
}

// Operators of a part, the longest first.
static int ops_of(const fwa_profile_rows *rows, const char *part, fwa_profile_row *ops) {
    int count = 0;
    for (int i = 0; i < rows->count; i++)
        if (rows->at[i].op != FWA_PROFILE_REST && strcmp(rows->at[i].part, part) == 0) ops[count++] = rows->at[i];
    qsort(ops, (size_t)count, sizeof *ops, longer);
    return count;
}

static void print_line(FILE *out, const fwa_profile_rows *rows, const char *indent, const char *name,
                       const fwa_profile_row *r, double total) {
    const double steps = (double)rows->steps;
    const bool known = r->cost.bytes > 0 && r->seconds > 0;
    fprintf(out, "  %s%-*s %7.4g %9.3f %6.1f%%", indent, 26 - (int)strlen(indent), name, (double)r->calls / steps,
            1e3 * r->seconds / steps, 100.0 * r->seconds / total);
    if (known)
        fprintf(out, " %8.1f %8.2f %7.1f%%\n", 1e-9 * r->cost.bytes / r->seconds, 1e-12 * r->cost.flops / r->seconds,
                100.0 * r->floor_seconds / r->seconds);
    else
        fprintf(out, " %8s %8s %8s\n", "-", "-", "-");
}

// Of the rows, as the functions below print them.
typedef struct selection {
    fwa_profile_row parts[FWA_PROFILE_ROWS], ops[FWA_PROFILE_ROWS];
} selection;

static void print_table(FILE *out, const fwa_profile_rows *rows, selection *of) {
    const double shown = 0.001; // of the step
    fwa_profile_row *parts = of->parts, *ops = of->ops;
    fwa_profile_row total = sum_of(rows, NULL);
    const int count = parts_of(rows, parts);
    total.calls = rows->steps;
    fprintf(out,
            "where the time goes: %.3f ms a step, mean of %lld run call by call on %s in %s; copy %.1f GB/s, product "
            "%lld^3 %.2f TFLOP/s\n",
            1e3 * total.seconds / (double)rows->steps, (long long)rows->steps, rows->backend->name,
            fwa_dtype_name(rows->backend->compute), 1e-9 * rows->floor.copy, (long long)rows->floor.size,
            1e-12 * rows->floor.product);
    fprintf(out, "  %-26s %7s %9s %7s %8s %8s %8s\n", "part, operator", "calls", "ms", "of step", "GB/s", "TFLOP/s",
            "of floor");
    for (int p = 0; p < count; p++) {
        print_line(out, rows, "", parts[p].part, &parts[p], total.seconds);
        const int n = ops_of(rows, parts[p].part, ops);
        for (int i = 0; i < n && n > 1; i++)
            if (ops[i].seconds >= shown * total.seconds)
                print_line(out, rows, "  ", fwa_op_name(ops[i].op), &ops[i], total.seconds);
    }
    print_line(out, rows, "", "all", &total, total.seconds);
}

static void print_fields(FILE *out, const fwa_profile_rows *rows, const fwa_profile_row *r, double total) {
    const double steps = (double)rows->steps;
    fprintf(out,
            "\"calls\": %.6g, \"ms\": %.6g, \"percent\": %.4g, \"bytes\": %.0f, \"flops\": %.0f, \"floor_ms\": %.6g",
            (double)r->calls / steps, 1e3 * r->seconds / steps, total > 0 ? 100.0 * r->seconds / total : 0.0,
            r->cost.bytes / steps, r->cost.flops / steps, 1e3 * r->floor_seconds / steps);
}

static void print_json(FILE *out, const fwa_profile_rows *rows, selection *of) {
    fwa_profile_row *parts = of->parts, *ops = of->ops;
    const fwa_profile_row total = sum_of(rows, NULL);
    const int count = parts_of(rows, parts);
    fprintf(out,
            "{\"steps\": %lld, \"backend\": \"%s\", \"dtype\": \"%s\", \"ms\": %.6g, \"copy_gb_per_s\": %.1f, "
            "\"product_tflop_per_s\": %.3f, \"parts\": [",
            (long long)rows->steps, rows->backend->name, fwa_dtype_name(rows->backend->compute),
            1e3 * total.seconds / (double)rows->steps, 1e-9 * rows->floor.copy, 1e-12 * rows->floor.product);
    for (int p = 0; p < count; p++) {
        fprintf(out, "%s\n  {\"part\": \"%s\", ", p ? "," : "", parts[p].part);
        print_fields(out, rows, &parts[p], total.seconds);
        fprintf(out, ", \"operators\": [");
        const int n = ops_of(rows, parts[p].part, ops);
        for (int i = 0; i < n; i++) {
            fprintf(out, "%s\n    {\"operator\": \"%s\", ", i ? "," : "", fwa_op_name(ops[i].op));
            print_fields(out, rows, &ops[i], total.seconds);
            fprintf(out, "}");
        }
        fprintf(out, "]}");
    }
    fprintf(out, "\n]}\n");
}

static char *text_of(const fwa_profile_rows *rows, void (*print)(FILE *, const fwa_profile_rows *, selection *)) {
    char *text = NULL;
    size_t size = 0;
    selection *of = calloc(1, sizeof *of);
    FILE *out = of ? open_memstream(&text, &size) : NULL;
    if (out) print(out, rows, of);
    free(of);
    return out && fwa_stream_end(out, &text) ? text : NULL;
}

char *fwa_profile_rows_table(const fwa_profile_rows *rows) {
    return text_of(rows, print_table);
}

char *fwa_profile_rows_json(const fwa_profile_rows *rows) {
    return text_of(rows, print_json);
}
