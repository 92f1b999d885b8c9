// One child process at a time; signals are waited for together with its end.
#include "train/child.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "core/clock.h"
#include "train/signals.h"

#define CANNOT_START 127

static int requests;         // to stop: signals without their echoes
static int64_t last_request; // fwa_clock_ns
static sigset_t mask_before; // of signals, for children

static void stop_signals(sigset_t *set) {
    sigemptyset(set);
    sigaddset(set, SIGTERM);
    sigaddset(set, SIGINT);
    sigaddset(set, SIGUSR1);
    sigaddset(set, SIGUSR2);
}

fwa_status fwa_child_hold_signals(void) {
    sigset_t held;
    stop_signals(&held);
    sigaddset(&held, SIGCHLD);
    requests = 0;
    last_request = 0;
    FWA_CHECK(sigprocmask(SIG_BLOCK, &held, &mask_before) == 0, FWA_ERROR, "cannot hold signals: %s", strerror(errno));
    return FWA_OK;
}

// Counts a signal that has come; whether it is a request of its own.
static bool is_request(void) {
    const int64_t now = fwa_clock_ns();
    if (requests > 0 && now - last_request <= FWA_SIGNAL_ECHO_NS) return false;
    requests++;
    last_request = now;
    return true;
}

bool fwa_child_stop_requested(void) {
    sigset_t stops;
    const struct timespec now = {0, 0};
    stop_signals(&stops);
    while (sigtimedwait(&stops, NULL, &now) > 0) is_request();
    return requests > 0;
}

// In the child. `report` tells the parent, by errno, that the program could not be started.
static void become(char *const *argv, pid_t parent, int report) {
    int empty = open("/dev/null", O_RDONLY);
    if (empty >= 0) dup2(empty, STDIN_FILENO);
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGUSR1);
    if (getppid() != parent) _exit(CANNOT_START);
    sigprocmask(SIG_SETMASK, &mask_before, NULL);
    execvp(argv[0], argv);
    int code = errno;
    ssize_t written = write(report, &code, sizeof code);
    _exit(written == sizeof code ? CANNOT_START : CANNOT_START - 1);
}

static void hand_on(pid_t child) {
    if (!is_request()) return;
    int number = requests == 1 ? SIGUSR1 : requests == 2 ? SIGTERM : SIGKILL;
    kill(child, number);
}

static int code_of(int status) {
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static fwa_status wait_for(pid_t child, int *code) {
    sigset_t held;
    stop_signals(&held);
    sigaddset(&held, SIGCHLD);
    for (;;) {
        int status = 0;
        pid_t ended = waitpid(child, &status, WNOHANG);
        FWA_CHECK(ended >= 0 || errno == EINTR, FWA_ERROR, "cannot wait for a child process: %s", strerror(errno));
        if (ended == child) {
            *code = code_of(status);
            return FWA_OK;
        }
        int number = sigwaitinfo(&held, NULL);
        if (number > 0 && number != SIGCHLD) hand_on(child);
    }
}

fwa_status fwa_child_run(char *const *argv, int *code) {
    int report[2], problem = 0;
    pid_t parent = getpid();
    *code = 0;
    FWA_CHECK(pipe2(report, O_CLOEXEC) == 0, FWA_ERROR, "cannot start %s: %s", argv[0], strerror(errno));
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) become(argv, parent, report[1]);
    int fork_problem = errno;
    close(report[1]);
    ssize_t bytes = child > 0 ? read(report[0], &problem, sizeof problem) : 0; // nothing once the program runs
    close(report[0]);
    FWA_CHECK(child > 0, FWA_ERROR, "cannot start %s: %s", argv[0], strerror(fork_problem));
    FWA_TRY(wait_for(child, code));
    FWA_CHECK(bytes <= 0, FWA_ERROR, "cannot start %s: %s", argv[0], strerror(problem));
    return FWA_OK;
}
