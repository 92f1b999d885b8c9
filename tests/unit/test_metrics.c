// metrics.jsonl: exact numbers, one line a row, cut back on resume.
#include <jansson.h>

#include "io/metrics.h"
#include "tests/temp_folder.h"

static fwa_metrics_row row_of(int64_t step) {
    return (fwa_metrics_row){.step = step,
                             .tokens = step * 100,
                             .loss = 10.0 / (double)(step + 3),
                             .val_loss = NAN,
                             .grad_norm = 0.1,
                             .lr = 3e-4,
                             .ms = 12.5,
                             .tokens_per_s = 1e6,
                             .mfu = NAN,
                             .time = 1700000000.125,
                             .mem_bytes = (int64_t)1 << 40,
                             .gamma_mean = 0.99,
                             .eta_mean = 1.0 / 3,
                             .ridge_mean = 0.0,
                             .clamp_share = NAN,
                             .token_hash = 0xfedcba9876543210u};
}

static void write_rows(const char *path, int64_t keep_step, int64_t first, int64_t last) {
    fwa_metrics *metrics;
    check_ok(fwa_metrics_open(&metrics, path, keep_step));
    for (int64_t step = first; step <= last; step++) {
        fwa_metrics_row row = row_of(step);
        check_ok(fwa_metrics_write(metrics, &row));
    }
    fwa_metrics_close(metrics);
}

// The file holds exactly the steps first..last, one a line.
static void check_steps(const char *path, int64_t first, int64_t last) {
    char *text, *line, *rest;
    check_ok(fwa_read_text(path, &text));
    rest = text;
    while ((line = strsep(&rest, "\n")) && *line) {
        json_t *row = json_loads(line, JSON_REJECT_DUPLICATES, NULL);
        assert_non_null(row);
        assert_int_equal(json_integer_value(json_object_get(row, "step")), first++);
        json_decref(row);
    }
    assert_true(line && !rest); // the last line is complete
    assert_int_equal(first, last + 1);
    free(text);
}

static void append(const char *path, const char *text, size_t size) {
    FILE *file = fopen(path, "ab");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, size, file), size);
    fclose(file);
}

static void numbers_read_back_exactly(void **state) {
    (void)state;
    const char *path = temp_path("metrics.jsonl");
    write_rows(path, -1, 4, 4);
    char *text;
    check_ok(fwa_read_text(path, &text));
    json_t *row = json_loads(text, 0, NULL);
    assert_non_null(row);
    fwa_metrics_row expected = row_of(4);
    assert_true(json_real_value(json_object_get(row, "loss")) == expected.loss);
    assert_true(json_real_value(json_object_get(row, "lr")) == expected.lr);
    assert_true(json_real_value(json_object_get(row, "time")) == expected.time);
    assert_int_equal(json_integer_value(json_object_get(row, "mem_bytes")), expected.mem_bytes);
    assert_int_equal(json_integer_value(json_object_get(row, "tokens")), 400);
    assert_string_equal(json_string_value(json_object_get(row, "token_hash")), "fedcba9876543210");
    assert_true(json_real_value(json_object_get(row, "eta_mean")) == expected.eta_mean);
    assert_true(json_number_value(json_object_get(row, "gamma_mean")) == 0.99);
    assert_true(json_is_number(json_object_get(row, "ridge_mean")));
    assert_null(json_object_get(row, "clamp_share"));
    assert_null(json_object_get(row, "val_loss"));
    assert_null(json_object_get(row, "mfu"));
    assert_non_null(strstr(text, "\"lr\":0.0003,")); // the shortest text, for people
    json_decref(row);
    free(text);
}

static void unset_fields_are_left_out(void **state) {
    (void)state;
    fwa_metrics *metrics;
    check_ok(fwa_metrics_open(&metrics, temp_path("m"), -1));
    fwa_metrics_row row = row_of(1);
    row.val_loss = 2.5;
    row.loss = INFINITY;
    row.token_hash = 0;
    check_ok(fwa_metrics_write(metrics, &row));
    char *text;
    check_ok(fwa_read_text(temp_path("m"), &text)); // already in the file
    fwa_metrics_close(metrics);
    assert_non_null(strstr(text, "\"val_loss\":2.5"));
    assert_null(strstr(text, "\"loss\""));
    assert_null(strstr(text, "token_hash"));
    free(text);
}

static void gates_have_a_value_a_layer(void **state) {
    (void)state;
    const char *path = temp_path("gates.jsonl");
    const fwa_layer_gates layers[] = {{0.99, 1.0 / 3, 0.0, 0.5}, {NAN, NAN, NAN, NAN}, {0.125, 0.25, INFINITY, 0.0}};
    fwa_metrics *file;
    for (int resumed = 0; resumed < 2; resumed++) { // the second time behind step 1, which cuts two rows
        check_ok(fwa_metrics_open(&file, path, resumed ? 1 : -1));
        for (int64_t step = 1 + resumed; step <= 3; step++) check_ok(fwa_metrics_write_gates(file, step, layers, 3));
        fwa_metrics_close(file);
        check_steps(path, 1, 3);
    }
    char *text;
    check_ok(fwa_read_text(path, &text));
    static const char line[] = "{\"step\":1,\"gamma_mean\":[0.99,null,0.125],\"eta_mean\":[0.333333333,null,0.25],"
                               "\"ridge_mean\":[0.0,null,null],\"clamp_share\":[0.5,null,0.0]}\n";
    assert_memory_equal(text, line, sizeof line - 1);
    free(text);
}

static void resume_cuts_back(void **state) {
    (void)state;
    const char *path = temp_path("metrics.jsonl");
    write_rows(path, -1, 1, 10);
    check_steps(path, 1, 10);
    write_rows(path, 7, 8, 9);
    check_steps(path, 1, 9);
    write_rows(path, 100, 10, 12);
    check_steps(path, 1, 12);
    write_rows(path, -1, 1, 3);
    check_steps(path, 1, 3);
    write_rows(path, 0, 1, 2);
    check_steps(path, 1, 2);
}

static void incomplete_lines_are_cut(void **state) {
    (void)state;
    const char *path = temp_path("metrics.jsonl");
    static const char zeros[] = "\0\0\0\0\0\0\0\0";
    const struct {
        const char *text;
        size_t size;
    } tails[] = {
        {"{\"step\":4,\"lo", 13}, {"{", 1}, {"{\"step\":4}", 10}, {zeros, sizeof zeros}, {"{\"loss\":4}\n", 11}};
    for (size_t i = 0; i < sizeof tails / sizeof tails[0]; i++) {
        write_rows(path, -1, 1, 3);
        append(path, tails[i].text, tails[i].size);
        write_rows(path, 10, 4, 5);
        check_steps(path, 1, 5);
    }
    write_rows(path, -1, 1, 3);
    append(path, "garbage\n{\"step\":4}\n", 19); // a damaged line in the middle goes, the others stay
    write_rows(path, 10, 5, 5);
    check_steps(path, 1, 5);
}

// What a crash of the machine leaves: rows behind NULs are not lost.
static void zeros_in_the_middle_are_dropped(void **state) {
    (void)state;
    static const char garbled[] = "\0\0\0\0\n{\"st\0p\":4}\n", behind[] = "\0\0{\"step\":6}\n{\"step\":7}\n";
    const char *path = temp_path("metrics.jsonl");
    fwa_metrics_row row;
    fwa_metrics_row *rows;
    int64_t count;
    bool found;
    write_rows(path, -1, 1, 3);
    append(path, garbled, sizeof garbled - 1);
    write_rows(path, 10, 4, 5);
    append(path, behind, sizeof behind - 1);
    check_ok(fwa_metrics_last(path, &row, &found));
    assert_true(found && row.step == 7);
    check_ok(fwa_metrics_read(path, &rows, &count));
    assert_int_equal(count, 6);
    free(rows);
    write_rows(path, 5, 6, 6);
    check_steps(path, 1, 6);
}

static void validation_is_made_up(void **state) {
    (void)state;
    const char *path = temp_path("metrics.jsonl");
    fwa_metrics *metrics;
    fwa_metrics_row row = row_of(3), back;
    bool found;
    write_rows(path, -1, 1, 4);
    check_ok(fwa_metrics_open(&metrics, path, 3));
    assert_false(fwa_metrics_lacks_validation(metrics, 4));
    assert_true(fwa_metrics_lacks_validation(metrics, 3));
    check_ok(fwa_metrics_amend(metrics, 1.5));
    assert_false(fwa_metrics_lacks_validation(metrics, 3));
    check_status(fwa_metrics_amend(metrics, 1.5), FWA_ERROR);
    fwa_metrics_close(metrics);
    check_steps(path, 1, 3);
    check_ok(fwa_metrics_last(path, &back, &found));
    assert_true(back.val_loss == 1.5 && back.loss == row.loss && back.token_hash == row.token_hash);
    check_ok(fwa_metrics_open(&metrics, path, 3)); // it has one
    assert_false(fwa_metrics_lacks_validation(metrics, 3));
    row = row_of(4);
    check_ok(fwa_metrics_write(metrics, &row));
    assert_false(fwa_metrics_lacks_validation(metrics, 4)); // of those from before alone
    fwa_metrics_close(metrics);
    check_steps(path, 1, 4);
}

static void unwritable_file_is_named(void **state) {
    (void)state;
    fwa_metrics *metrics;
    check_status(fwa_metrics_open(&metrics, temp_path("none/metrics.jsonl"), -1), FWA_IO);
    check_message("none/metrics.jsonl");
    assert_null(metrics);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        temp_test(numbers_read_back_exactly), temp_test(unset_fields_are_left_out),
        temp_test(resume_cuts_back),          temp_test(zeros_in_the_middle_are_dropped),
        temp_test(validation_is_made_up),     temp_test(incomplete_lines_are_cut),
        temp_test(unwritable_file_is_named),  temp_test(gates_have_a_value_a_layer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
