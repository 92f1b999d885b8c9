// Messages, traces, exit codes, and the log.
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/log.h"
#include "core/status.h"

static fwa_status inner(int value) {
    FWA_CHECK(value > 0, FWA_CONFIG, "got %d, expected a positive number", value);
    return FWA_OK;
}

static fwa_status outer(int value) {
    FWA_TRY(inner(value));
    return FWA_OK;
}

static fwa_status with_cleanup(int value, int *cleaned) {
    fwa_status status = FWA_OK;
    FWA_TRY_GOTO(outer(value), done);
    FWA_CHECK_GOTO(value < 10, FWA_IO, done, "got %d, expected less than 10", value);
done:
    *cleaned = 1;
    return status;
}

static fwa_status wrap(void) {
    if (inner(-5) != FWA_OK) FWA_FAIL(FWA_ERROR, "outer words (%s)", fwa_error_message());
    return FWA_OK;
}

static int count_lines(const char *text) {
    int lines = *text != '\0';
    for (; *text; text++) lines += *text == '\n';
    return lines;
}

static void test_message_and_trace(void **state) {
    (void)state;
    int cleaned = 0;
    fwa_error_clear();
    assert_int_equal(with_cleanup(3, &cleaned), FWA_OK);
    assert_int_equal(cleaned, 1);
    assert_string_equal(fwa_error_message(), "");
    assert_string_equal(fwa_error_trace(), "");

    cleaned = 0;
    assert_int_equal(with_cleanup(-2, &cleaned), FWA_CONFIG);
    assert_int_equal(cleaned, 1);
    assert_string_equal(fwa_error_message(), "got -2, expected a positive number");
    assert_int_equal(count_lines(fwa_error_trace()), 3);
    const char *first = strstr(fwa_error_trace(), " inner"), *second = strstr(fwa_error_trace(), " outer");
    const char *third = strstr(fwa_error_trace(), " with_cleanup");
    assert_true(first != NULL && second > first && third > second);
    assert_non_null(strstr(fwa_error_trace(), "test_status.c:"));

    assert_int_equal(with_cleanup(12, &cleaned), FWA_IO);
    assert_string_equal(fwa_error_message(), "got 12, expected less than 10");
    assert_int_equal(count_lines(fwa_error_trace()), 1);
    fwa_error_clear();
    assert_string_equal(fwa_error_message(), "");
}

static void test_message_can_quote_the_one_before(void **state) {
    (void)state;
    assert_int_equal(wrap(), FWA_ERROR);
    assert_string_equal(fwa_error_message(), "outer words (got -5, expected a positive number)");
}

static fwa_status fail_with(const char *text) {
    FWA_FAIL(FWA_ERROR, "%s", text);
}

static void test_long_messages_are_marked(void **state) {
    (void)state;
    char *text = malloc(100001);
    assert_non_null(text);
    memset(text, 'x', 100000);
    text[100000] = '\0';
    assert_int_equal(fail_with(text), FWA_ERROR);
    size_t length = strlen(fwa_error_message());
    assert_true(length > 1000 && length < 100000);
    assert_string_equal(fwa_error_message() + length - 3, "...");
    free(text);

    for (int i = 0; i < 1000; i++) fwa_error_pass(FWA_ERROR, "a_rather_long_file_name.c", i, "a_function");
    length = strlen(fwa_error_trace());
    assert_true(length > 1000 && length < 100000);
    assert_string_equal(fwa_error_trace() + length - 3, "...");
}

static void *other_thread(void *result) {
    *(int *)result = strcmp(fwa_error_message(), "") == 0 && inner(0) == FWA_CONFIG;
    return NULL;
}

static void test_errors_belong_to_a_thread(void **state) {
    (void)state;
    pthread_t thread;
    int separate = 0;
    assert_int_equal(inner(-1), FWA_CONFIG);
    assert_int_equal(pthread_create(&thread, NULL, other_thread, &separate), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(separate, 1);
    assert_string_equal(fwa_error_message(), "got -1, expected a positive number");
}

static void test_exit_codes_and_names(void **state) {
    (void)state;
    const struct {
        fwa_status status;
        int code;
    } cases[] = {
        {FWA_OK, 0},      {FWA_ERROR, 1},       {FWA_USAGE, 2},      {FWA_CONFIG, 2},  {FWA_IO, 1},
        {FWA_FORMAT, 2},  {FWA_MEMORY, 1},      {FWA_NONFINITE, 3},  {FWA_TIMEOUT, 4}, {FWA_COMM, 1},
        {FWA_BACKEND, 1}, {FWA_UNSUPPORTED, 2}, {FWA_PREEMPTED, 75}, {FWA_FAULTY, 1},
    };
    assert_int_equal(sizeof cases / sizeof *cases, FWA_STATUS_COUNT);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_int_equal(fwa_status_exit_code(cases[i].status), cases[i].code);
    for (int i = 0; i < FWA_STATUS_COUNT; i++) {
        assert_non_null(fwa_status_name((fwa_status)i));
        for (int j = 0; j < i; j++)
            assert_string_not_equal(fwa_status_name((fwa_status)i), fwa_status_name((fwa_status)j));
    }
    assert_string_equal(fwa_status_name(FWA_STATUS_COUNT), "unknown");
}

static void test_plural(void **state) {
    (void)state;
    assert_string_equal(fwa_plural(0), "s");
    assert_string_equal(fwa_plural(1), "");
    assert_string_equal(fwa_plural(2), "s");
}

static void read_all(const char *path, char *text, size_t bytes) {
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    text[fread(text, 1, bytes - 1, file)] = '\0';
    fclose(file);
}

static int occurrences(const char *text, const char *word) {
    int n = 0;
    for (const char *p = strstr(text, word); p != NULL; p = strstr(p + 1, word)) n++;
    return n;
}

static void test_log_file(void **state) {
    (void)state;
    char folder[] = "/tmp/fwa_log_XXXXXX", path[64], text[4096];
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/log.txt", folder);
    fwa_log_init(0, 2, "node7");
    assert_int_equal(fwa_log_open_file(path), FWA_OK);
    fwa_log_info("plain %d", 1);
    for (int i = 0; i < 100; i++) {
        char key[16];
        snprintf(key, sizeof key, "key %d", i % 50);
        fwa_log_once(key, "once %d,", i % 50);
    }
    fwa_log_init(1, 2, "node7");
    fwa_log_info("hidden on rank 1");
    fwa_log_warn("seen on rank 1");
    fwa_log_init(0, 1, "node7");
    assert_int_equal(fwa_log_open_file(NULL), FWA_OK);
    fwa_log_info("after closing");
    read_all(path, text, sizeof text);
    assert_null(strstr(text, "not shown"));
    assert_null(strstr(text, "hidden"));
    assert_null(strstr(text, "after closing"));
    assert_non_null(strstr(text, " plain 1\n"));
    assert_non_null(strstr(text, " warning (rank 1 on node7): seen on rank 1\n"));
    assert_int_equal(occurrences(text, "once "), 50);
    assert_int_equal(occurrences(text, "once 7,"), 1);

    assert_int_equal(fwa_log_open_file(path), FWA_OK); // appends
    fwa_log_error("second part");
    assert_int_equal(fwa_log_open_file(NULL), FWA_OK);
    read_all(path, text, sizeof text);
    assert_non_null(strstr(text, " plain 1\n"));
    assert_non_null(strstr(text, " error: second part\n"));
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(folder), 0);
    assert_int_equal(fwa_log_open_file(path), FWA_IO);
    assert_non_null(strstr(fwa_error_message(), "No such file"));
}

// What `lines` lines to the log leave on stderr where files may have 100 bytes.
static void log_without_room(int lines, char *text, size_t bytes) {
    int ends[2];
    struct rlimit before, small;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(pipe(ends), 0);
    const int kept = dup(2);
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    small = before;
    small.rlim_cur = 100;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    dup2(ends[1], 2);
    for (int i = 0; i < lines; i++) fwa_log_info("line %d is there", i);
    dup2(kept, 2);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    signal(SIGXFSZ, handler);
    close(ends[1]);
    close(kept);
    size_t got = 0;
    for (ssize_t n; (n = read(ends[0], text + got, bytes - 1 - got)) > 0;) got += (size_t)n;
    text[got] = '\0';
    close(ends[0]);
}

static void test_log_file_without_room(void **state) {
    (void)state;
    char folder[] = "/tmp/fwa_log_XXXXXX", path[64], text[8192], wanted[160];
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/log.txt", folder);
    snprintf(wanted, sizeof wanted, "warning: cannot write to %s: File too large; ", path);
    for (int round = 0; round < 2; round++) { // said once for each file that was opened
        assert_int_equal(fwa_log_open_file(path), FWA_OK);
        log_without_room(50, text, sizeof text);
        assert_int_equal(occurrences(text, "cannot write"), 1);
        assert_non_null(strstr(text, wanted));
        assert_int_equal(occurrences(text, " is there\n"), 50);
    }
    fwa_log_info("room again");
    assert_int_equal(fwa_log_open_file(NULL), FWA_OK);
    read_all(path, text, sizeof text);
    assert_non_null(strstr(text, " line 0 is there\n"));
    assert_null(strstr(text, "line 49"));
    assert_non_null(strstr(text, " room again\n"));
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(folder), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_message_and_trace),
        cmocka_unit_test(test_message_can_quote_the_one_before),
        cmocka_unit_test(test_long_messages_are_marked),
        cmocka_unit_test(test_errors_belong_to_a_thread),
        cmocka_unit_test(test_exit_codes_and_names),
        cmocka_unit_test(test_plural),
        cmocka_unit_test(test_log_file),
        cmocka_unit_test(test_log_file_without_room),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
