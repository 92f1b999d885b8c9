// Requests to stop, each in a child process: which signal is kept, which one ends the process, which are ignored.
#include "tests/check.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/clock.h"
#include "train/signals.h"

#define LATER (-1)

static void sleep_ns(int64_t ns) {
    const int64_t end = fwa_clock_ns() + ns;
    while (fwa_clock_ns() < end) usleep(1000);
}

// Sends `signals` (0 ends, LATER waits until no echo is expected) to a child after installing; gives its wait status.
// The child leaves with the pending number.
static int run_child(const int *signals) {
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        if (fwa_signals_install() != FWA_OK || fwa_signals_pending() != 0) _exit(100);
        for (; *signals != 0; signals++) {
            if (*signals == LATER)
                sleep_ns(FWA_SIGNAL_ECHO_NS + 50000000);
            else
                raise(*signals);
        }
        _exit(fwa_signals_pending());
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    return status;
}

static void check_pending(const int *signals, int expected) {
    const int status = run_child(signals);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), expected);
}

static void check_killed(const int *signals, int expected) {
    const int status = run_child(signals);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), expected);
}

static void test_pending(void **state) {
    (void)state;
    check_pending((const int[]){0}, 0);
    for (int i = 0; i < 5; i++) {
        const int number = ((const int[]){SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2})[i];
        check_pending((const int[]){number, 0}, number);
    }
}

static void test_first_is_kept(void **state) {
    (void)state;
    check_pending((const int[]){SIGUSR2, SIGTERM, SIGUSR1, SIGUSR1, SIGUSR2, 0}, SIGUSR2);
    check_pending((const int[]){SIGUSR1, SIGINT, 0}, SIGUSR1);
}

static void test_echo_ends_nothing(void **state) {
    (void)state;
    check_pending((const int[]){SIGTERM, SIGTERM, SIGTERM, SIGINT, 0}, SIGTERM);
    check_pending((const int[]){SIGHUP, LATER, SIGHUP, SIGHUP, SIGTERM, 0}, SIGHUP);
}

static void test_second_ends(void **state) {
    (void)state;
    check_killed((const int[]){SIGINT, LATER, SIGINT, 0}, SIGINT);
    check_killed((const int[]){SIGTERM, LATER, SIGTERM, 0}, SIGTERM);
    check_killed((const int[]){SIGTERM, LATER, SIGINT, 0}, SIGINT);
    check_killed((const int[]){SIGINT, SIGUSR1, LATER, SIGTERM, 0}, SIGTERM);
}

static void test_ignored(void **state) {
    (void)state;
    check_pending((const int[]){SIGPIPE, 0}, 0);
    void (*before)(int) = signal(SIGHUP, SIG_IGN); // as nohup does
    check_pending((const int[]){SIGHUP, 0}, 0);
    check_pending((const int[]){SIGHUP, SIGTERM, 0}, SIGTERM);
    signal(SIGHUP, before);
}

static void test_own_request(void **state) {
    (void)state;
    assert_int_equal(fwa_signals_pending(), 0);
    fwa_signals_request();
    assert_int_equal(fwa_signals_pending(), SIGUSR1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pending),           cmocka_unit_test(test_first_is_kept),
        cmocka_unit_test(test_echo_ends_nothing), cmocka_unit_test(test_second_ends),
        cmocka_unit_test(test_ignored),           cmocka_unit_test(test_own_request),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
