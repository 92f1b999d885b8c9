// Numbers as text, the log line, and the live line on a pseudo-terminal and on a file.
#include "tests/check.h"

#include <fcntl.h>
#include <poll.h>
#include <time.h>
#include <unistd.h>

#include "train/progress.h"

static void check_count(int64_t count, const char *expected) {
    char text[32];
    assert_string_equal(fwa_text_count(count, text), expected);
}

static void check_bytes(int64_t bytes, const char *expected) {
    char text[32];
    assert_string_equal(fwa_text_bytes(bytes, text), expected);
}

static void check_seconds(double seconds, const char *expected) {
    char text[32];
    assert_string_equal(fwa_text_seconds(seconds, text), expected);
}

static void test_counts(void **state) {
    (void)state;
    check_count(0, "0");
    check_count(999, "999");
    check_count(1000, "1,000");
    check_count(123587328, "123,587,328");
    check_count(-1234567, "-1,234,567");
    check_count(INT64_MAX, "9,223,372,036,854,775,807");
    check_count(INT64_MIN, "-9,223,372,036,854,775,808");
}

static void test_bytes(void **state) {
    (void)state;
    check_bytes(0, "0 B");
    check_bytes(999, "999 B");
    check_bytes(1000, "1 kB");
    check_bytes(92 * 1000000, "92 MB");
    check_bytes(999499999, "999 MB");
    check_bytes(999500000, "1.00 GB");
    check_bytes(1530000000, "1.53 GB");
    check_bytes(9996000000, "10.0 GB");
    check_bytes(150754820096, "151 GB");
    check_bytes(INT64_MAX, "9.22 EB");
    check_bytes(-2000, "-2 kB");
}

static void test_seconds(void **state) {
    (void)state;
    check_seconds(0, "0 s");
    check_seconds(21.4, "21 s");
    check_seconds(59.7, "1 min 0 s");
    check_seconds(245, "4 min 5 s");
    check_seconds(3599.6, "1 h 0 min");
    check_seconds(7980, "2 h 13 min");
    check_seconds(86399, "1 d 0 h");
    check_seconds(3 * 86400 + 4 * 3600, "3 d 4 h");
    check_seconds(NAN, "n/a");
    check_seconds(INFINITY, "n/a");
    check_seconds(-1, "n/a");
}

static fwa_progress sample(void) {
    return (fwa_progress){.step = 250,
                          .steps = 1000,
                          .loss = 0.3214,
                          .val_loss = 0.3301,
                          .grad_norm = 0.87,
                          .lr = 7e-3,
                          .ms = 28.3,
                          .tokens_per_s = 61200,
                          .mfu = NAN,
                          .mem_bytes = 92000000,
                          .skipped = 0,
                          .eta_s = 21};
}

static void test_line(void **state) {
    (void)state;
    char text[256];
    fwa_progress progress = sample();
    assert_string_equal(fwa_progress_text(&progress, text, sizeof text),
                        "step   250/1000  loss 0.3214  val 0.3301  norm 0.87  lr 7.00e-03  28.3 ms  61.2k tok/s  "
                        "mfu n/a  mem 92 MB  eta 21 s");
    progress.step = 1000;
    progress.val_loss = NAN;
    progress.tokens_per_s = 1.51e6;
    progress.mfu = 0.4127;
    progress.skipped = 3;
    progress.eta_s = 0;
    assert_string_equal(fwa_progress_text(&progress, text, sizeof text),
                        "step  1000/1000  loss 0.3214  norm 0.87  lr 7.00e-03  28.3 ms  1.5M tok/s  mfu 41.3%  "
                        "mem 92 MB  skipped 3  eta 0 s");
}

static void test_line_is_cut(void **state) {
    (void)state;
    char whole[256], text[256];
    const fwa_progress progress = sample();
    fwa_progress_text(&progress, whole, sizeof whole);
    for (size_t size = 1; size <= sizeof text; size++) {
        memset(text, 'x', sizeof text);
        fwa_progress_text(&progress, text, size);
        assert_int_equal(strlen(text), strlen(whole) < size ? strlen(whole) : size - 1);
        assert_memory_equal(text, whole, strlen(text));
        if (size < sizeof text) assert_int_equal(text[size], 'x');
    }
}

// Runs `work` with stderr going to `handle`.
static void with_stderr(int handle, void (*work)(void)) {
    fflush(stderr);
    const int kept = dup(STDERR_FILENO);
    assert_true(kept >= 0 && dup2(handle, STDERR_FILENO) >= 0);
    work();
    fflush(stderr);
    assert_true(dup2(kept, STDERR_FILENO) >= 0);
    close(kept);
}

static void draw_many(void) {
    const fwa_progress progress = sample();
    const struct timespec pause = {0, 120 * 1000 * 1000};
    nanosleep(&pause, NULL);
    for (int i = 0; i < 1000; i++) fwa_progress_live(&progress);
    nanosleep(&pause, NULL);
    fwa_progress_live(&progress);
    fwa_progress_clear();
    fwa_progress_clear();
}

static void log_after_live(void) {
    const fwa_progress progress = sample();
    const struct timespec pause = {0, 120 * 1000 * 1000};
    nanosleep(&pause, NULL);
    fwa_progress_live(&progress);
    fwa_progress_log(&progress);
}

// What `work` writes to a terminal of 80 columns.
static size_t on_terminal(void (*work)(void), char *out, size_t size) {
    const int master = posix_openpt(O_RDWR | O_NOCTTY);
    assert_true(master >= 0 && grantpt(master) == 0 && unlockpt(master) == 0);
    const int slave = open(ptsname(master), O_RDWR | O_NOCTTY);
    assert_true(slave >= 0);
    with_stderr(slave, work);
    size_t used = 0;
    struct pollfd ready = {.fd = master, .events = POLLIN};
    while (used < size - 1 && poll(&ready, 1, 50) == 1) {
        const ssize_t count = read(master, out + used, size - 1 - used);
        if (count <= 0) break;
        used += (size_t)count;
    }
    out[used] = '\0';
    close(slave);
    close(master);
    return used;
}

static int occurrences(const char *text, const char *part) {
    int count = 0;
    for (; (text = strstr(text, part)) != NULL; text += strlen(part)) count++;
    return count;
}

static void test_live_on_terminal(void **state) {
    (void)state;
    char out[4096];
    on_terminal(draw_many, out, sizeof out);
    assert_in_range(occurrences(out, "\rstep   250/1000"), 2, 3); // a slow machine may fit a third
    assert_int_equal(occurrences(out, "\n"), 0);
    assert_int_equal(occurrences(out, "\r\033[K"), 1);
    const char *line = strstr(out, "\rstep");
    assert_in_range(strstr(line, "\033[K") - line - 1, 40, 79);
}

static void test_log_clears_live(void **state) {
    (void)state;
    char out[4096];
    on_terminal(log_after_live, out, sizeof out);
    const char *cleared = strstr(out, "\r\033[K");
    assert_non_null(cleared);
    assert_int_equal(occurrences(cleared, "step   250/1000"), 1);
    assert_int_equal(occurrences(cleared, "eta 21 s"), 1);
}

static void test_no_live_on_file(void **state) {
    (void)state;
    char path[] = "/tmp/fwa_test_progress_XXXXXX";
    const int handle = mkstemp(path);
    assert_true(handle >= 0);
    unlink(path);
    with_stderr(handle, draw_many);
    assert_int_equal(lseek(handle, 0, SEEK_END), 0);
    with_stderr(handle, log_after_live);
    assert_true(lseek(handle, 0, SEEK_END) > 80);
    close(handle);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_counts),          cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_seconds),         cmocka_unit_test(test_line),
        cmocka_unit_test(test_line_is_cut),     cmocka_unit_test(test_live_on_terminal),
        cmocka_unit_test(test_log_clears_live), cmocka_unit_test(test_no_live_on_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
