// Reports: axes, thinned curves, text that is not markup, groups of runs, event files.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "io/tfevents.h"
#include "tests/temp_folder.h"
#include "train/report/axis.h"
#include "train/report/compare.h"
#include "train/report/curve.h"
#include "train/report/figure.h"
#include "train/report/scores.h"

static void axes_have_round_ticks_within_them(void **state) {
    static const double ranges[][2] = {{0, 1},        {0, 2.4961e6}, {3.017, 3.094}, {-0.3, 0.9}, {1e-5, 1e-3},
                                       {17.1, 38.79}, {1.0, 1e6},    {0.5, 0.5},     {0, 0},      {-2, -1}};
    (void)state;
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++)
        for (int log = 0; log < 2; log++) {
            fwa_axis axis;
            fwa_axis_make(&axis, ranges[i][0], ranges[i][1], log, 5);
            assert_true(axis.low < axis.high && axis.ticks >= 2 && axis.ticks <= 10);
            for (int t = 0; t < axis.ticks; t++) {
                char text[32];
                double place = fwa_axis_place(&axis, axis.tick[t]), read = 0.0;
                assert_true(place > -1e-6 && place < 1.0 + 1e-6);
                assert_true(t == 0 || axis.tick[t] > axis.tick[t - 1]);
                sscanf(fwa_axis_tick_text(&axis, t, text), "%lf", &read);
                if (!strpbrk(text, "kMGTP")) assert_true(fabs(read - axis.tick[t]) <= 1e-6 * fabs(axis.tick[t]));
                assert_true(strlen(text) <= 8);
            }
        }
}

static void ticks_of_an_axis_share_a_unit(void **state) {
    fwa_axis axis;
    char text[32];
    (void)state;
    fwa_axis_make(&axis, 0, 2.4e6, false, 5);
    assert_string_equal(fwa_axis_tick_text(&axis, 0, text), "0");
    assert_string_equal(fwa_axis_tick_text(&axis, 1, text), "0.5 M");
    assert_string_equal(fwa_axis_tick_text(&axis, 2, text), "1 M");
    fwa_axis_make(&axis, 0, 2e-3, false, 4);
    assert_string_equal(fwa_axis_tick_text(&axis, 1, text), "0.0005");
    assert_string_equal(fwa_axis_text(5e-4, text), "5e-4");
    assert_string_equal(fwa_axis_text(49.152e9, text), "49.15 G");
}

// A run whose loss is `slope` x tokens + offset; its rows are the caller's.
static fwa_report_run line(fwa_metrics_row *rows, int64_t count, double slope, double offset) {
    for (int64_t i = 0; i < count; i++)
        rows[i] =
            (fwa_metrics_row){.step = i, .tokens = 10 * i, .loss = slope * 10.0 * (double)i + offset, .val_loss = NAN};
    return (fwa_report_run){.rows = rows, .count = count};
}

static void curves_are_means_over_stretches(void **state) {
    static fwa_metrics_row rows[2][1000];
    (void)state;
    fwa_report_run runs[2] = {line(rows[0], 1000, 1.0, 0.0), line(rows[1], 1000, 1.0, 2.0)};
    rows[0][500].loss = NAN; // left out
    fwa_report_group group = {.first = 0, .count = 1};
    fwa_report report = {.run = runs, .group = &group, .runs = 2, .groups = 1};
    fwa_curve curve;
    check_ok(fwa_report_curve(&curve, &report, 0, FWA_REPORT_LOSS, 50));
    assert_int_equal(curve.count, 50);
    for (int i = 0; i < curve.count; i++) {
        const fwa_curve_point *at = &curve.at[i];
        assert_true(fabs(at->y - at->x) < 1e-9 && at->low < at->y && at->y < at->high);
        assert_true(at->high - at->low < 10000.0 / 50 + 1);
    }
    fwa_curve_free(&curve);
    group.count = 2; // mean is x + 1, standard deviation sqrt(2)
    check_ok(fwa_report_curve(&curve, &report, 0, FWA_REPORT_LOSS, 7));
    assert_int_equal(curve.count, 7);
    assert_true(fabs(curve.at[0].y - curve.at[0].x - 1.0) < 1e-9);
    assert_true(fabs(curve.at[0].high - curve.at[0].y - sqrt(2.0)) < 1e-9);
    fwa_curve_free(&curve);
    check_ok(fwa_report_curve(&curve, &report, 0, FWA_REPORT_VAL_LOSS, 7)); // there are none
    assert_int_equal(curve.count, 0);
    fwa_curve_free(&curve);
}

static void shares_have_the_error_of_their_examples(void **state) {
    static fwa_report_score scores[] = {{3, {1.0, 0.0}, {0.9, 0.03}},
                                        {4, {0.5, 0.05}, {0.0, 0.0}},
                                        {5, {0.25, 0.04}, {0.0, 0.0}},
                                        {6, {0.5, NAN}, {NAN, NAN}}};
    const fwa_report_run run = {.scores = scores, .score_count = 4};
    int64_t low, high;
    (void)state;
    fwa_report_estimate share = fwa_report_share_at(&run, false, 4);
    assert_true(share.value == 0.5 && fabs(share.error - 0.05) < 1e-12);
    share = fwa_report_share_mean(&run, false, 4, 5);
    assert_true(share.value == 0.375 && fabs(share.error - 0.5 * sqrt(0.0025 + 0.0016)) < 1e-12);
    share = fwa_report_share_mean(&run, true, 4, 5); // no example tells anything about the spread
    assert_true(share.value == 0.0 && isnan(share.error));
    assert_true(isnan(fwa_report_share_at(&run, false, 6).error)); // of an unknown number of examples
    assert_true(isnan(fwa_report_share_at(&run, true, 6).value));
    assert_true(isnan(fwa_report_share_mean(&run, false, 5, 7).value)); // 7 is missing
    assert_true(fwa_report_widths_beyond(&run, 3, &low, &high) && low == 4 && high == 6);
    assert_true(fwa_report_widths_beyond(&run, 8, &low, &high) && low == 3 && high == 6);
}

static double cell_of(const fwa_compare *t, const char *title) {
    for (int c = 0; c < t->columns; c++)
        if (!strcmp(t->column[c].title, title)) return t->cell[c].value;
    return NAN;
}

// Hours add up what each row stands for; widths that were trained on are not beyond them, whoever measured them alone.
static void a_table_compares_what_runs_say(void **state) {
    static fwa_metrics_row rows[] = {{.step = 10, .tokens = 3600, .tokens_per_s = 1, .val_loss = NAN},
                                     {.step = 20, .tokens = 7200, .tokens_per_s = 2, .val_loss = 3}};
    static fwa_report_score beyond[] = {{6, {1.0, NAN}, {0.9, NAN}},
                                        {7, {0.5, NAN}, {0.25, NAN}},
                                        {8, {0.25, NAN}, {0.0, NAN}}},
                            within[] = {{5, {0.5, NAN}, {0.5, NAN}}, {6, {1.0, NAN}, {0.5, NAN}}};
    fwa_config config;
    fwa_compare table;
    (void)state;
    memset(&config, 0, sizeof config);
    config.task.name = FWA_TASK_ADDITION;
    config.task.width_max = 6;
    fwa_report_run runs[2] = {
        {.rows = rows, .count = 2, .last_val_loss = 3, .config = &config, .scores = beyond, .score_count = 3},
        {.rows = rows, .count = 1, .last_val_loss = NAN, .config = &config, .scores = within, .score_count = 2}};
    fwa_report_group groups[2] = {{.first = 0, .count = 1}, {.first = 1, .count = 1}};
    const fwa_report report = {.run = runs, .group = groups, .runs = 2, .groups = 2};
    check_ok(fwa_compare_make(&table, &report));
    assert_true(fabs(cell_of(&table, "hours of updates") - 1.5) < 1e-12);
    assert_true(cell_of(&table, "updates") == 20 && cell_of(&table, "tokens") == 7200);
    assert_true(cell_of(&table, "validation loss") == 3);
    assert_true(fabs(cell_of(&table, "upto at 6, %") - 100) < 1e-12);
    assert_true(fabs(cell_of(&table, "upto, mean of 7 to 8, %") - 37.5) < 1e-12);
    assert_true(fabs(cell_of(&table, "exact, mean of 7 to 8, %") - 12.5) < 1e-12);
    fwa_compare_free(&table);
}

// Where a language model's validation loss rises, the lowest stands beside the last, and after how many tokens.
static void a_validation_loss_that_rose_is_shown(void **state) {
    static fwa_metrics_row rows[] = {{.step = 1, .tokens = 10, .tokens_per_s = 1, .val_loss = 4},
                                     {.step = 2, .tokens = 20, .tokens_per_s = 1, .val_loss = 3},
                                     {.step = 3, .tokens = 30, .tokens_per_s = 1, .val_loss = NAN},
                                     {.step = 4, .tokens = 40, .tokens_per_s = 1, .val_loss = 3.5}};
    fwa_compare table;
    (void)state;
    fwa_report_run run = {.rows = rows, .count = 4, .last_val_loss = 3.5};
    fwa_report_group group = {.first = 0, .count = 1};
    const fwa_report report = {.run = &run, .group = &group, .runs = 1, .groups = 1};
    assert_true(fwa_report_rose(&report));
    check_ok(fwa_compare_make(&table, &report));
    assert_true(cell_of(&table, "validation loss") == 3.5);
    assert_true(cell_of(&table, "lowest validation loss") == 3);
    assert_true(cell_of(&table, "lowest after, tokens") == 20);
    fwa_compare_free(&table);
    run.count = 3;
    run.last_val_loss = 3;
    assert_false(fwa_report_rose(&report));
    check_ok(fwa_compare_make(&table, &report));
    assert_true(isnan(cell_of(&table, "lowest validation loss")));
    fwa_compare_free(&table);
    fwa_config config; // additions are measured in exact match
    memset(&config, 0, sizeof config);
    config.task.name = FWA_TASK_ADDITION;
    run = (fwa_report_run){.rows = rows, .count = 4, .last_val_loss = 3.5, .config = &config};
    assert_false(fwa_report_rose(&report));
}

static void text_is_no_markup(void **state) {
    char *text = NULL;
    size_t bytes = 0;
    (void)state;
    FILE *out = open_memstream(&text, &bytes);
    fwa_html_text("<b a='1'>\"x\" & \xC3\xA4\xFF\x01</b>", out);
    fclose(out);
    assert_string_equal(text,
                        "&#60;b a=&#39;1&#39;&#62;&#34;x&#34; &#38; \xC3\xA4\xEF\xBF\xBD\xEF\xBF\xBD&#60;/b&#62;");
    free(text);
}

static void numbers_fit(void **state) {
    char text[64];
    (void)state;
    fwa_report_number(1e308, 1e308, text);
    assert_string_equal(text, "1e+308 ± 1.0e+308");
    fwa_report_number(3.14159, NAN, text);
    assert_string_equal(text, "3.1416");
    fwa_report_number(-3.14159, 0.02, text);
    assert_string_equal(text, "-3.1416 ± 0.0200");
}

// Lines without a point, with one, at the same place, beyond the range: nothing is printed that is no number.
static void figures_take_any_curve(void **state) {
    fwa_curve_point same[3] = {{1, 5, 5, 5}, {1, 5, 5, 5}, {1, 5, 5, 5}}, one[1] = {{1, 0, -1, 1}};
    fwa_figure_line lines[3] = {{.curve = {same, 3}, .name = "<a>", .label = "a&b", .band = true},
                                {.curve = {one, 1}, .name = "one", .label = "one", .colour = -1},
                                {.curve = {NULL, 0}, .name = "none", .label = "none"}};
    (void)state;
    for (int log = 0; log < 2; log++)
        for (int marks = 0; marks < 2; marks++) {
            fwa_figure figure = {
                .title = "t<", .x_title = "x", .log = log, .marks = marks, .settles = true, .line = lines, .lines = 3};
            char *text = NULL;
            size_t bytes = 0;
            FILE *out = open_memstream(&text, &bytes);
            fwa_figure_lines(&figure, out);
            fclose(out);
            assert_non_null(strstr(text, "</svg>"));
            assert_null(strstr(text, "nan"));
            assert_null(strstr(text, "inf"));
            assert_null(strstr(text, "<a>"));
            free(text);
        }
}

static uint64_t little_endian(const unsigned char *at, int bytes) {
    uint64_t value = 0;
    for (int i = bytes - 1; i >= 0; i--) value = value << 8 | at[i];
    return value;
}

static void event_files_are_records_with_checksums(void **state) {
    fwa_metrics_row rows[2] = {{.step = 1, .loss = 3.0, .val_loss = NAN, .lr = NAN, .ridge_mean = NAN, .time = 1.7e9},
                               {.step = 300, .loss = 2.5, .val_loss = 2.25, .lr = 1e-3, .time = 1.7e9 + 1}};
    char *bytes;
    (void)state;
    assert_int_equal(fwa_crc32c("123456789", 9), 0xE3069283u); // the standard's check value
    const char *path = temp_path("events.out.tfevents.1.fwa");
    check_ok(fwa_tfevents_write(path, rows, 2));
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    bytes = calloc(1, 4096);
    const size_t size = fread(bytes, 1, 4096, file);
    fclose(file);
    int records = 0;
    for (size_t at = 0; at < size; records++) {
        const unsigned char *record = (const unsigned char *)bytes + at;
        const uint64_t length = little_endian(record, 8);
        assert_true(at + 16 + length <= size);
        for (int part = 0; part < 2; part++) {
            const uint32_t crc = part ? fwa_crc32c(record + 12, length) : fwa_crc32c(record, 8);
            const uint32_t stored = (uint32_t)little_endian(part ? record + 12 + length : record + 8, 4);
            assert_int_equal(stored, ((crc >> 15) | (crc << 17)) + 0xA282EAD8u);
        }
        if (records == 0)
            assert_memory_equal(record + 12 + 9,
                                "\x1A\x0D"
                                "brain.Event:2",
                                15);
        assert_true((records == 2) == (memmem(record, length, "gates/ridge_mean", 16) != NULL));
        at += 16 + length;
    }
    assert_int_equal(records, 3);
    free(bytes);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(axes_have_round_ticks_within_them),
        cmocka_unit_test(ticks_of_an_axis_share_a_unit),
        cmocka_unit_test(curves_are_means_over_stretches),
        cmocka_unit_test(shares_have_the_error_of_their_examples),
        cmocka_unit_test(a_table_compares_what_runs_say),
        cmocka_unit_test(a_validation_loss_that_rose_is_shown),
        cmocka_unit_test(text_is_no_markup),
        cmocka_unit_test(numbers_fit),
        cmocka_unit_test(figures_take_any_curve),
        temp_test(event_files_are_records_with_checksums),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
