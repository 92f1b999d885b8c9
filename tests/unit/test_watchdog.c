// The watchdog ends a process that does not come back in time, and no other. Each case is a child process.
#include "check.h"

#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "dist/watchdog.h"

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

typedef struct child_end {
    int code;        // of exit; -1: a signal
    double seconds;  // it lived
    char text[1024]; // on stderr
} child_end;

static child_end run_child(void (*body)(void)) {
    child_end end = {0};
    int ends[2], status = 0;
    double start = now();
    assert_int_equal(pipe(ends), 0);
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        dup2(ends[1], STDERR_FILENO);
        close(ends[0]);
        close(ends[1]);
        alarm(20);
        body();
        _exit(0);
    }
    close(ends[1]);
    const size_t room = sizeof end.text - 1;
    for (size_t used = 0; used < room;) {
        const ssize_t got = read(ends[0], end.text + used, room - used);
        if (got <= 0) break;
        used += (size_t)got;
    }
    close(ends[0]);
    assert_int_equal(waitpid(child, &status, 0), child);
    end.seconds = now() - start;
    end.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    return end;
}

static void start(void) {
    if (fwa_watchdog_start() != FWA_OK) _exit(99);
}

static void never_comes_back(void) {
    start();
    char what[16] = "step 17";
    fwa_watchdog_expect(0.5, what);
    memset(what, 'x', sizeof what); // the text was copied
    pause();
}

static void stuck_in_a_loop(void) {
    start();
    fwa_watchdog_expect(60, "step 1");
    fwa_watchdog_expect(0.3, "step 2");
    for (volatile int forever = 1; forever;) continue;
}

// stderr full to the brim, with nobody reading until the end: printing must not hold the watchdog.
static void stderr_is_stuck(void) {
    int ends[2];
    if (pipe(ends) != 0) _exit(99);
    dup2(ends[1], STDERR_FILENO);
    char block[4096] = {0};
    for (int i = 0; i < 16; i++) {
        if (write(STDERR_FILENO, block, sizeof block) < 0) _exit(99);
    }
    start();
    fwa_watchdog_expect(0.3, "step");
    pause();
}

static void nap(void) {
    usleep(100000);
}

static void comes_back_each_time(void) {
    start();
    for (int i = 0; i < 8; i++) {
        fwa_watchdog_expect(1.5, "step");
        nap();
    }
    fwa_watchdog_expect(0, "save"); // no limit, for longer than the last one
    for (int i = 0; i < 18; i++) nap();
    fwa_watchdog_expect(0.5, "end");
    fwa_watchdog_stop();
    for (int i = 0; i < 8; i++) nap();
    start(); // again, and nothing left of the old limit
    for (int i = 0; i < 4; i++) nap();
    if (fwa_watchdog_start() != FWA_ERROR) _exit(98);
    fwa_watchdog_stop();
    fwa_watchdog_stop();
}

static volatile sig_atomic_t in_main;
static _Thread_local volatile sig_atomic_t is_main;
static void note(int signal_number) {
    (void)signal_number;
    in_main = is_main;
}

static void signals_reach_the_main_thread(void) {
    start();
    is_main = 1;
    sigset_t usr1;
    sigemptyset(&usr1);
    sigaddset(&usr1, SIGUSR1);
    signal(SIGUSR1, note);
    sigprocmask(SIG_BLOCK, &usr1, NULL);
    kill(getpid(), SIGUSR1);
    nap();
    if (in_main) _exit(97);
    sigprocmask(SIG_UNBLOCK, &usr1, NULL);
    if (!in_main) _exit(96);
    fwa_watchdog_stop();
}

// Stopped for longer than the limit, by a child process that wakes it up again.
static void stopped_for_a_while(void) {
    start();
    fwa_watchdog_expect(2, "step");
    nap();
    if (fork() == 0) {
        for (int i = 0; i < 25; i++) nap();
        kill(getppid(), SIGCONT);
        _exit(0);
    }
    kill(getpid(), SIGSTOP);
    for (int i = 0; i < 6; i++) nap();
    fwa_watchdog_stop();
}

static void stopped_process_lives(void **state) {
    (void)state;
    child_end end = run_child(stopped_for_a_while);
    assert_int_equal(end.code, 0);
    assert_true(end.seconds > 2.5);
}

static void late_process_ends_with_4(void **state) {
    (void)state;
    child_end end = run_child(never_comes_back);
    assert_int_equal(end.code, 4);
    assert_true(end.seconds >= 0.45 && end.seconds < 5);
    assert_non_null(strstr(end.text, "step 17 took longer than 0.5 s"));
    assert_ptr_equal(strchr(end.text, '\n'), end.text + strlen(end.text) - 1); // one line
    end = run_child(stuck_in_a_loop);
    assert_int_equal(end.code, 4);
    assert_true(end.seconds < 5);
    assert_non_null(strstr(end.text, "step 2 took"));
}

static void full_stderr_does_not_hold_it(void **state) {
    (void)state;
    child_end end = run_child(stderr_is_stuck);
    assert_int_equal(end.code, 4);
    assert_true(end.seconds < 4);
}

static void punctual_process_lives(void **state) {
    (void)state;
    child_end end = run_child(comes_back_each_time);
    assert_int_equal(end.code, 0);
    assert_string_equal(end.text, "");
}

static void signals_are_left_alone(void **state) {
    (void)state;
    assert_int_equal(run_child(signals_reach_the_main_thread).code, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(late_process_ends_with_4), cmocka_unit_test(full_stderr_does_not_hold_it),
        cmocka_unit_test(punctual_process_lives),   cmocka_unit_test(stopped_process_lives),
        cmocka_unit_test(signals_are_left_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
