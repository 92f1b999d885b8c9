// Exact match over pairs of operand widths: counting, sums, and the JSON object.
#include "train/eval/addition_grid.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "core/shape.h"
#include "train/tasks/addition.h"

#define OPENING 2 // tokens of an answer in front of its digits: " ["

fwa_status fwa_addition_grid_widths(fwa_addition_grid *grid, int64_t low, int64_t high, int64_t step) {
    FWA_CHECK(low >= 1 && low <= high && high <= FWA_ADDITION_MAX_WIDTH && step >= 1, FWA_USAGE,
              "--grid: widths from %" PRId64 " to %" PRId64 " in steps of %" PRId64
              "; expected 1 <= from <= to <= %d and a step of 1 or more",
              low, high, step, FWA_ADDITION_MAX_WIDTH);
    const int64_t count = (high - low) / step + ((high - low) % step != 0) + 1;
    FWA_CHECK(count <= FWA_ADDITION_GRID_WIDTHS, FWA_USAGE,
              "--grid: %" PRId64 " widths of an operand; expected at most %d: give a larger step, as in 1-1024:32",
              count, FWA_ADDITION_GRID_WIDTHS);
    grid->count = (int)count;
    for (int i = 0; i < grid->count; i++) grid->width[i] = i + 1 < grid->count ? low + i * step : high;
    return FWA_OK;
}

static bool is_digit(int32_t token) {
    return token >= '0' && token <= '9';
}

void fwa_addition_cell_count(fwa_addition_cell *cell, int64_t shorter, int64_t T, const int32_t *targets,
                             const int32_t *predictions) {
    int64_t place = -OPENING; // of a digit in the answer, 0 the lowest
    for (int64_t t = 0; t < T; t++) {
        if (targets[t] == FWA_NO_TARGET) continue;
        if (targets[t] != predictions[t]) {
            cell->beyond += place >= shorter;
            cell->length += place >= 0 && is_digit(targets[t]) != is_digit(predictions[t]);
            return;
        }
        place++;
    }
    cell->right++;
}

bool fwa_addition_grid_same_widths(const fwa_addition_grid *a, const fwa_addition_grid *b) {
    if (a->count != b->count) return false;
    for (int i = 0; i < a->count; i++)
        if (a->width[i] != b->width[i]) return false;
    return true;
}

bool fwa_addition_grid_trained(const fwa_addition_grid *grid, int i) {
    return grid->width[i] >= grid->trained[0] && grid->width[i] <= grid->trained[1];
}

fwa_addition_sum fwa_addition_grid_sum(const fwa_addition_grid *grid, fwa_addition_region region) {
    fwa_addition_sum sum = {.cells = 0};
    double squares = 0.0; // of standard errors
    for (int i = 0; i < grid->count; i++)
        for (int j = 0; j < grid->count; j++) {
            const int beyond = !fwa_addition_grid_trained(grid, i) + !fwa_addition_grid_trained(grid, j);
            const fwa_addition_cell *cell = &grid->cell[i * grid->count + j];
            const double p = (double)cell->right / (double)grid->examples;
            if (beyond != (int)region) continue;
            sum.cells++;
            sum.examples += grid->examples;
            sum.counts.right += cell->right;
            sum.counts.beyond += cell->beyond;
            sum.counts.length += cell->length;
            if (grid->examples > 1) squares += p * (1.0 - p) / (double)(grid->examples - 1);
        }
    sum.share = sum.cells ? (double)sum.counts.right / (double)sum.examples : (double)NAN;
    sum.error = squares > 0.0 ? sqrt(squares) / (double)sum.cells : (double)NAN;
    return sum;
}

// Members that are matrices, and where their counts stand in a cell.
static const struct {
    const char *name;
    size_t offset;
} members[] = {{"right", offsetof(fwa_addition_cell, right)},
               {"beyond", offsetof(fwa_addition_cell, beyond)},
               {"length", offsetof(fwa_addition_cell, length)}};
#define MEMBERS (sizeof members / sizeof *members)

static int64_t *count_of(fwa_addition_cell *cell, size_t member) {
    return (int64_t *)((char *)cell + members[member].offset);
}

static void write_row(int n, const int64_t *numbers, size_t stride, FILE *out) {
    fputc('[', out);
    for (int i = 0; i < n; i++)
        fprintf(out, "%s%lld", i ? ", " : "",
                (long long)*(const int64_t *)((const char *)numbers + (size_t)i * stride));
    fputc(']', out);
}

void fwa_addition_grid_write(const fwa_addition_grid *grid, FILE *out) {
    fprintf(out, "{\"examples\": %lld, \"trained\": [%lld, %lld]", (long long)grid->examples,
            (long long)grid->trained[0], (long long)grid->trained[1]);
    for (int operand = 0; operand < 2; operand++) {
        fprintf(out, ",\n  \"%s\": ", operand ? "second" : "first");
        write_row(grid->count, grid->width, sizeof *grid->width, out);
    }
    for (size_t m = 0; m < MEMBERS; m++) {
        fprintf(out, ",\n  \"%s\": [", members[m].name);
        for (int i = 0; i < grid->count; i++) {
            fputs(i ? ",\n    " : "\n    ", out);
            write_row(grid->count, count_of((fwa_addition_cell *)&grid->cell[i * grid->count], m), sizeof *grid->cell,
                      out);
        }
        fputc(']', out);
    }
    fputc('}', out);
}

// Whether `array` has n whole numbers of low .. high; takes them over.
static bool read_row(const json_t *array, int n, int64_t low, int64_t high, int64_t *numbers, size_t stride) {
    if (!json_is_array(array) || json_array_size(array) != (size_t)n) return false;
    for (int i = 0; i < n; i++) {
        const json_t *value = json_array_get(array, (size_t)i);
        if (!json_is_integer(value) || json_integer_value(value) < low || json_integer_value(value) > high)
            return false;
        *(int64_t *)((char *)numbers + (size_t)i * stride) = json_integer_value(value);
    }
    return true;
}

static bool read_widths(fwa_addition_grid *grid, const json_t *object) {
    const json_t *first = json_object_get(object, "first");
    const size_t count = json_array_size(first);
    if (count < 1 || count > FWA_ADDITION_GRID_WIDTHS || !json_equal(first, json_object_get(object, "second")))
        return false;
    grid->count = (int)count;
    if (!read_row(first, grid->count, 1, FWA_ADDITION_MAX_WIDTH, grid->width, sizeof *grid->width)) return false;
    for (int i = 1; i < grid->count; i++)
        if (grid->width[i] <= grid->width[i - 1]) return false;
    return true;
}

static bool read_counts(fwa_addition_grid *grid, const json_t *object, size_t member) {
    const json_t *rows = json_object_get(object, members[member].name);
    bool good = json_array_size(rows) == (size_t)grid->count;
    for (int i = 0; good && i < grid->count; i++)
        good = read_row(json_array_get(rows, (size_t)i), grid->count, 0, grid->examples,
                        count_of(&grid->cell[i * grid->count], member), sizeof *grid->cell);
    return good;
}

static bool consistent(const fwa_addition_grid *grid) {
    for (int c = 0; c < grid->count * grid->count; c++) {
        const fwa_addition_cell *cell = &grid->cell[c];
        if (fwa_max(cell->beyond, cell->length) > grid->examples - cell->right) return false;
    }
    return true;
}

bool fwa_addition_grid_read(fwa_addition_grid *grid, const json_t *object) {
    const json_t *examples = json_object_get(object, "examples");
    if (!json_is_integer(examples) || json_integer_value(examples) < 1 ||
        json_integer_value(examples) > FWA_ADDITION_GRID_EXAMPLES)
        return false;
    grid->examples = json_integer_value(examples);
    bool good = read_widths(grid, object) &&
                read_row(json_object_get(object, "trained"), 2, 1, FWA_ADDITION_MAX_WIDTH, grid->trained,
                         sizeof *grid->trained) &&
                grid->trained[0] <= grid->trained[1];
    for (size_t m = 0; good && m < MEMBERS; m++) good = read_counts(grid, object, m);
    return good && consistent(grid);
}
