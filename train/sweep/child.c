// Child processes; signals are waited for together with their ends.
#include "train/sweep/child.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "core/clock.h"
#include "train/signals.h"

#define CANNOT_START 127

static pid_t children[FWA_CHILDREN_MAX]; // 0: free
static int requests;                     // to stop: signals without their echoes
static int64_t last_request;             // fwa_clock_ns
static sigset_t mask_before;             // of signals, for children

// SIGHUP stays ignored where it was (nohup).
static void stop_signals(sigset_t *set) {
    struct sigaction hangup;
    sigemptyset(set);
    sigaddset(set, SIGTERM);
    sigaddset(set, SIGINT);
    sigaddset(set, SIGUSR1);
    sigaddset(set, SIGUSR2);
    if (sigaction(SIGHUP, NULL, &hangup) == 0 && hangup.sa_handler != SIG_IGN) sigaddset(set, SIGHUP);
}

// What this process was started with may keep SIGCHLD from coming. A reader of the output that ends (tee) is no reason
// to end, for children neither: an evaluation writes its file.
static fwa_status set_actions(void) {
    FWA_CHECK(signal(SIGCHLD, SIG_DFL) != SIG_ERR && signal(SIGPIPE, SIG_IGN) != SIG_ERR, FWA_ERROR,
              "cannot set the action of a signal: %s", strerror(errno));
    return FWA_OK;
}

fwa_status fwa_child_hold_signals(void) {
    sigset_t held;
    FWA_TRY(set_actions());
    stop_signals(&held);
    sigaddset(&held, SIGCHLD);
    requests = 0;
    last_request = 0;
    FWA_CHECK(sigprocmask(SIG_BLOCK, &held, &mask_before) == 0, FWA_ERROR, "cannot hold signals: %s", strerror(errno));
    return FWA_OK;
}

static void signal_all(int number) {
    for (int i = 0; i < FWA_CHILDREN_MAX; i++)
        if (children[i]) kill(children[i], number);
}

void fwa_child_stop_all(void) {
    signal_all(SIGUSR1);
}

// A signal has come: counts it and hands it on, unless it is an echo.
static void take_request(void) {
    const int64_t now = fwa_clock_ns();
    if (requests > 0 && now - last_request <= FWA_SIGNAL_ECHO_NS) return;
    requests++;
    last_request = now;
    signal_all(requests == 1 ? SIGUSR1 : requests == 2 ? SIGTERM : SIGKILL);
}

bool fwa_child_stop_requested(void) {
    sigset_t stops;
    const struct timespec now = {0, 0};
    stop_signals(&stops);
    while (sigtimedwait(&stops, NULL, &now) > 0) take_request();
    return requests > 0;
}

static bool set_up(const fwa_child *child, int output) {
    const char *const *variable = child->environment;
    for (; variable && *variable; variable++)
        if (putenv((char *)*variable)) return false;
    if (child->cores && !fwa_cores_bind(child->cores)) return false;
    return output < 0 || (dup2(output, STDOUT_FILENO) >= 0 && dup2(output, STDERR_FILENO) >= 0);
}

// In the child. `report` tells the parent, by errno, that the program could not be started.
static void become(const fwa_child *child, pid_t parent, int output, int report) {
    int empty = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (empty >= 0) dup2(empty, STDIN_FILENO);
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGUSR1);
    if (getppid() != parent) _exit(CANNOT_START);
    if (set_up(child, output)) {
        sigprocmask(SIG_SETMASK, &mask_before, NULL);
        execvp(child->argv[0], child->argv);
    }
    int code = errno;
    ssize_t written = write(report, &code, sizeof code);
    _exit(written == sizeof code ? CANNOT_START : CANNOT_START - 1);
}

// *problem: errno of what kept the program from running, 0 where it runs.
static fwa_status start(const fwa_child *child, int output, pid_t *process, int *problem) {
    int report[2];
    const pid_t parent = getpid();
    *problem = 0;
    FWA_CHECK(pipe2(report, O_CLOEXEC) == 0, FWA_IO, "cannot start %s: %s", child->argv[0], strerror(errno));
    fflush(NULL);
    *process = fork();
    if (*process == 0) become(child, parent, output, report[1]);
    const int fork_problem = errno;
    close(report[1]);
    // Nothing comes once the program runs.
    if (*process > 0 && read(report[0], problem, sizeof *problem) <= 0) *problem = 0;
    close(report[0]);
    FWA_CHECK(*process > 0, FWA_IO, "cannot start %s: %s", child->argv[0], strerror(fork_problem));
    return FWA_OK;
}

fwa_status fwa_child_start(int slot, const fwa_child *child) {
    int problem = 0, output = -1;
    pid_t process = 0;
    FWA_CHECK(slot >= 0 && slot < FWA_CHILDREN_MAX && !children[slot], FWA_ERROR, "child %d is none that is free",
              slot);
    if (child->output) {
        output = open(child->output, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
        FWA_CHECK(output >= 0, FWA_IO, "cannot write %s: %s", child->output, strerror(errno));
    }
    fwa_status status = start(child, output, &process, &problem);
    if (output >= 0) close(output);
    FWA_TRY(status);
    if (problem) waitpid(process, NULL, 0);
    FWA_CHECK(!problem, FWA_IO, "cannot start %s: %s", child->argv[0], strerror(problem));
    children[slot] = process;
    return FWA_OK;
}

static int code_of(int status) {
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

// A child that has ended into *slot; -1: none.
static fwa_status find_ended(int *slot, int *code) {
    *slot = -1;
    for (int i = 0; i < FWA_CHILDREN_MAX && *slot < 0; i++) {
        int status = 0;
        const pid_t ended = children[i] ? waitpid(children[i], &status, WNOHANG) : 0;
        FWA_CHECK(ended >= 0 || errno == EINTR, FWA_ERROR, "cannot wait for a child process: %s", strerror(errno));
        if (ended <= 0) continue;
        children[i] = 0;
        *slot = i;
        *code = code_of(status);
    }
    return FWA_OK;
}

fwa_status fwa_child_wait(int *slot, int *code) {
    sigset_t held;
    stop_signals(&held);
    sigaddset(&held, SIGCHLD);
    for (;;) {
        FWA_TRY(find_ended(slot, code));
        if (*slot >= 0) return FWA_OK;
        const int number = sigwaitinfo(&held, NULL);
        if (number > 0 && number != SIGCHLD) take_request();
    }
}
