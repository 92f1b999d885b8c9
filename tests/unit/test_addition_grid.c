// Exact match over pairs of widths: which widths, what is counted of a wrong answer, sums by region, the file.
#include <math.h>

#include "tests/check.h"
#include "train/eval/addition_grid.h"
#include "train/tasks/addition.h"

enum { LENGTH = 24 };

static void check_widths(int64_t low, int64_t high, int64_t step, int count, const int64_t *expected) {
    fwa_addition_grid grid = {.count = 0};
    check_ok(fwa_addition_grid_widths(&grid, low, high, step));
    assert_int_equal(grid.count, count);
    for (int i = 0; i < count; i++) assert_int_equal(grid.width[i], expected[i]);
}

static void test_widths(void **state) {
    (void)state;
    check_widths(1, 4, 1, 4, (const int64_t[]){1, 2, 3, 4});
    check_widths(4, 12, 4, 3, (const int64_t[]){4, 8, 12});
    check_widths(1, 12, 5, 4, (const int64_t[]){1, 6, 11, 12}); // the last one always
    check_widths(7, 7, 3, 1, (const int64_t[]){7});
    check_widths(1, 1024, 1024, 2, (const int64_t[]){1, 1024});
    check_widths(1, 1024, INT64_MAX, 2, (const int64_t[]){1, 1024});
    fwa_addition_grid grid;
    check_ok(fwa_addition_grid_widths(&grid, 5, 68, 1));
    assert_int_equal(grid.count, 64);
    static const int64_t bad[][3] = {{4, 3, 1},  {0, 3, 1},      {-1, 3, 1}, {1, 1025, 100},         {1, 3, 0},
                                     {1, 3, -1}, {1, 65, 1},     {1, 66, 1}, {1, INT64_MAX, 1 << 9}, {1, 1024, 16},
                                     {4, 3, 0},  {1025, 1025, 1}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        check_status(fwa_addition_grid_widths(&grid, bad[i][0], bad[i][1], bad[i][2]), FWA_USAGE);
    check_status(fwa_addition_grid_widths(&grid, 1, 66, 1), FWA_USAGE);
    assert_non_null(strstr(fwa_error_message(), "66 widths"));
}

// Counts an example with the answer `target` where `prediction` was read; '.' is the end token.
static fwa_addition_cell count(int64_t shorter, const char *target, const char *prediction) {
    fwa_addition_cell cell = {0, 0, 0};
    int32_t targets[LENGTH], predictions[LENGTH];
    for (int t = 0; t < LENGTH; t++) { // the answer begins at 3; what is predicted elsewhere does not matter
        const int at = t - 3, size = (int)strlen(target);
        targets[t] = at < 0 || at >= size ? FWA_NO_TARGET : target[at] == '.' ? FWA_ADDITION_END : target[at];
        predictions[t] = at < 0 || at >= size ? 'x' : prediction[at] == '.' ? FWA_ADDITION_END : prediction[at];
    }
    fwa_addition_cell_count(&cell, shorter, LENGTH, targets, predictions);
    return cell;
}

static void test_counts(void **state) {
    static const struct {
        const char *prediction; // of " [12345].", whose shorter operand has 2 digits
        fwa_addition_cell cell;
    } cases[] = {
        {" [12345].", {1, 0, 0}}, {"x[12345].", {0, 0, 0}}, {"7[12345].", {0, 0, 0}}, {" 912345].", {0, 0, 0}},
        {" [92345].", {0, 0, 0}}, {" [19345].", {0, 0, 0}}, {" [12945].", {0, 1, 0}}, {" [12349].", {0, 1, 0}},
        {" [1]345].", {0, 0, 1}}, {" [12]45].", {0, 1, 1}}, {" [123456.", {0, 1, 1}}, {" [12345]]", {0, 1, 0}},
        {" [12345]7", {0, 1, 1}}, {" [92]459.", {0, 0, 0}}, // the first wrong token alone counts
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const fwa_addition_cell cell = count(2, " [12345].", cases[i].prediction);
        if (memcmp(&cell, &cases[i].cell, sizeof cell) != 0)
            fail_msg("%s: %d right, %d beyond, %d of wrong length", cases[i].prediction, (int)cell.right,
                     (int)cell.beyond, (int)cell.length);
    }
}

// Widths 1, 3, 5, 7, trained on 3 to 5; right are 10 times the row plus the column, of 100.
static fwa_addition_grid sample(void) {
    fwa_addition_grid grid = {.examples = 100, .trained = {3, 5}};
    check_ok(fwa_addition_grid_widths(&grid, 1, 7, 2));
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 4; j++) grid.cell[i * 4 + j] = (fwa_addition_cell){10 * i + j, i + 2 * j, j};
    return grid;
}

static void test_sums(void **state) {
    (void)state;
    const fwa_addition_grid grid = sample();
    assert_false(fwa_addition_grid_trained(&grid, 0));
    assert_true(fwa_addition_grid_trained(&grid, 1) && fwa_addition_grid_trained(&grid, 2));
    assert_false(fwa_addition_grid_trained(&grid, 3));
    const fwa_addition_sum both = fwa_addition_grid_sum(&grid, FWA_ADDITION_BOTH_TRAINED);
    assert_int_equal(both.cells, 4);
    assert_int_equal(both.examples, 400);
    assert_int_equal(both.counts.right, 11 + 12 + 21 + 22);
    assert_int_equal(both.counts.beyond, 3 + 5 + 4 + 6);
    assert_int_equal(both.counts.length, 6);
    assert_true(fabs(both.share - 66.0 / 400.0) < 1e-12);
    const double squares = (0.11 * 0.89 + 0.12 * 0.88 + 0.21 * 0.79 + 0.22 * 0.78) / 99.0;
    assert_true(fabs(both.error - sqrt(squares) / 4.0) < 1e-12);
    const fwa_addition_sum one = fwa_addition_grid_sum(&grid, FWA_ADDITION_ONE_BEYOND);
    assert_int_equal(one.cells, 8);
    assert_int_equal(one.counts.right, 1 + 2 + 10 + 13 + 20 + 23 + 31 + 32);
    const fwa_addition_sum none = fwa_addition_grid_sum(&grid, FWA_ADDITION_BOTH_BEYOND);
    assert_int_equal(none.cells, 4);
    assert_int_equal(none.counts.right, 0 + 3 + 30 + 33);
    fwa_addition_grid all = sample();
    all.trained[0] = 1;
    all.trained[1] = 9;
    assert_true(isnan(fwa_addition_grid_sum(&all, FWA_ADDITION_BOTH_BEYOND).share));
    for (int i = 0; i < 16; i++) all.cell[i].right = 100;
    assert_true(isnan(fwa_addition_grid_sum(&all, FWA_ADDITION_BOTH_TRAINED).error));
}

static json_t *written(const fwa_addition_grid *grid) {
    char *text = NULL;
    size_t size = 0;
    json_error_t error;
    FILE *out = open_memstream(&text, &size);
    fwa_addition_grid_write(grid, out);
    fclose(out);
    json_t *object = json_loads(text, 0, &error);
    if (!object) fail_msg("%s\n%s", error.text, text);
    free(text);
    return object;
}

static void test_file(void **state) {
    (void)state;
    const fwa_addition_grid grid = sample();
    fwa_addition_grid back;
    memset(&back, 0xAB, sizeof back);
    json_t *object = written(&grid);
    assert_int_equal(json_integer_value(json_array_get(json_array_get(json_object_get(object, "right"), 2), 3)), 23);
    assert_true(fwa_addition_grid_read(&back, object));
    json_decref(object);
    assert_int_equal(back.count, 4);
    assert_int_equal(back.examples, 100);
    assert_memory_equal(back.trained, grid.trained, sizeof back.trained);
    assert_memory_equal(back.width, grid.width, 4 * sizeof *back.width);
    assert_memory_equal(back.cell, grid.cell, 16 * sizeof *back.cell);
}

// The sample with one member replaced by a JSON text, or left out.
static bool reads(const char *member, const char *text) {
    const fwa_addition_grid grid = sample();
    fwa_addition_grid back;
    json_t *object = written(&grid);
    if (text)
        json_object_set_new(object, member, json_loads(text, JSON_DECODE_ANY, NULL));
    else
        json_object_del(object, member);
    const bool good = fwa_addition_grid_read(&back, object);
    json_decref(object);
    return good;
}

static void test_refused_files(void **state) {
    (void)state;
    static const char *const rows = "[[0,0,0,0],[0,0,0,0],[0,0,0,0],[0,0,0,0]]";
    static const char *const bad[][2] = {
        {"right", NULL},
        {"first", NULL},
        {"second", NULL},
        {"examples", NULL},
        {"trained", NULL},
        {"beyond", "3"},
        {"examples", "0"},
        {"examples", "32"}, // fewer than there are right ones
        {"examples", "\"100\""},
        {"first", "[1, 3, 5, 9]"},
        {"first", "[]"},
        {"trained", "[3]"},
        {"trained", "[5, 3]"},
        {"right", "[[0,0,0,0],[0,0,0,0],[0,0,0,0]]"},
        {"right", "[[0,0,0,0],[0,0,0],[0,0,0,0],[0,0,0,0]]"},
        {"right", "[[0,0,0,0],[0,0,0,-1],[0,0,0,0],[0,0,0,0]]"},
        {"right", "[[0,0,0,0],[0,0,0,0.5],[0,0,0,0],[0,0,0,0]]"},
        {"right", "[[0,0,0,0],[0,0,0,101],[0,0,0,0],[0,0,0,0]]"},
        {"right", "[[100,0,0,0],[0,0,0,100],[0,0,0,0],[0,0,0,0]]"}, // and others wrong
    };
    assert_true(reads("right", rows) && reads("beyond", rows));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (reads(bad[i][0], bad[i][1])) fail_msg("%s: %s was read", bad[i][0], bad[i][1] ? bad[i][1] : "none");
    for (int members = 0; members < 2; members++) { // widths out of order, or too many
        const fwa_addition_grid grid = sample();
        fwa_addition_grid back;
        json_t *object = written(&grid), *widths = json_array();
        for (int i = 0; i < (members ? 70 : 4); i++)
            json_array_append_new(widths, json_integer(members ? 1 + i : 8 - i));
        json_object_set(object, "first", widths);
        json_object_set_new(object, "second", widths);
        assert_false(fwa_addition_grid_read(&back, object));
        json_decref(object);
    }
    assert_false(fwa_addition_grid_read(&(fwa_addition_grid){.count = 0}, NULL));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_widths), cmocka_unit_test(test_counts),        cmocka_unit_test(test_sums),
        cmocka_unit_test(test_file),   cmocka_unit_test(test_refused_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
