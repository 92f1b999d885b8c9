// A rank that is stopped, killed or gives up must not leave the others waiting. The test starts itself under mpirun:
// with arguments it is one of two ranks, without it is the judge of their end.
#include "check.h"

#include <ftw.h>
#include <limits.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "dist/watchdog.h"
#include "dist/world.h"

#define TIMEOUT_S "2"

// One of two ranks.

static void leave(fwa_world *world, fwa_status status) {
    fprintf(stderr, "%s\n", fwa_error_message());
    fwa_world_abort(world, fwa_status_exit_code(status));
}

static void write_pid(const char *folder, int rank) {
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/pid.%d", folder, rank);
    FILE *file = fopen(path, "w");
    if (!file) _exit(90);
    fprintf(file, "%ld\n", (long)getpid());
    fclose(file);
}

static void fail_as_told(fwa_world *world, const char *fault) {
    if (!strcmp(fault, "kill")) raise(SIGKILL);
    if (!strncmp(fault, "stop", 4)) raise(SIGSTOP);
    if (!strcmp(fault, "abort")) fwa_world_abort(world, 3);
}

static int be_a_rank(int argc, char **argv) {
    const char *fault = argv[1], *folder = argv[2];
    fwa_world *world;
    fwa_status status = fwa_world_create(&world, &argc, &argv);
    if (status != FWA_OK) leave(NULL, status);
    bool dog = !strcmp(fault, "stop-watchdog");
    fwa_world_set_timeout(world, strcmp(fault, "stop-timeout") ? 0 : atof(TIMEOUT_S));
    write_pid(folder, world->rank);
    status = world->all->barrier(world->all);
    if (dog && fwa_watchdog_start() != FWA_OK) _exit(91);
    if (world->rank == 1) fail_as_told(world, fault);
    float x[1000] = {1};
    for (int step = 0; status == FWA_OK; step++) {
        if (dog) fwa_watchdog_expect(atof(TIMEOUT_S), "step");
        status = world->all->all_reduce(world->all, NULL, x, 1000, FWA_F32, FWA_REDUCE_MAX);
        usleep(1000);
    }
    leave(world, status);
    return 0;
}

// The judge.

static char folder[64];

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void exec_mpirun(const char *fault) {
    char self[PATH_MAX] = "", output[PATH_MAX];
    if (readlink("/proc/self/exe", self, sizeof self - 1) < 0) _exit(92);
    snprintf(output, sizeof output, "%s/output", folder);
    if (!freopen(output, "w", stdout) || dup2(STDOUT_FILENO, STDERR_FILENO) < 0) _exit(93);
    execlp("mpirun", "mpirun", "--allow-run-as-root", "--oversubscribe", "-np", "2", self, fault, folder, (char *)NULL);
    _exit(94);
}

// Exit code of mpirun; -1 if it had to be ended.
static int run_ranks(const char *fault, double *seconds) {
    double start = now();
    int status = 0;
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) exec_mpirun(fault);
    while (waitpid(child, &status, WNOHANG) == 0) {
        usleep(20000);
        if (now() - start < 30) continue;
        kill(child, SIGKILL);
        waitpid(child, &status, 0);
        return -1;
    }
    *seconds = now() - start;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

// Neither running nor stopped; a process that only its new parent has not noticed is gone.
static bool is_gone(int rank) {
    char path[PATH_MAX], state = 'Z';
    long pid = 0;
    snprintf(path, sizeof path, "%s/pid.%d", folder, rank);
    FILE *file = fopen(path, "r");
    if (!file) return false;
    bool read = fscanf(file, "%ld", &pid) == 1;
    fclose(file);
    if (!read) return false;
    snprintf(path, sizeof path, "/proc/%ld/stat", pid);
    file = fopen(path, "r");
    if (!file) return true;
    read = fscanf(file, "%*d (%*[^)]) %c", &state) == 1;
    fclose(file);
    return !read || state == 'Z' || state == 'X';
}

static bool all_gone_within(double seconds) {
    for (double start = now(); now() - start < seconds; usleep(20000)) {
        if (is_gone(0) && is_gone(1)) return true;
    }
    return false;
}

static bool output_has(const char *text) {
    char path[PATH_MAX], line[4096];
    bool found = false;
    snprintf(path, sizeof path, "%s/output", folder);
    FILE *file = fopen(path, "r");
    while (file && fgets(line, sizeof line, file)) found |= strstr(line, text) != NULL;
    if (file) fclose(file);
    return found;
}

static void stopped_rank_is_a_time_out(void **state) {
    (void)state;
    double seconds = 0;
    assert_int_equal(run_ranks("stop-timeout", &seconds), 4);
    assert_true(seconds < 10);
    assert_true(all_gone_within(3));
    assert_true(output_has("no answer from rank 1"));
}

static void stopped_rank_wakes_the_watchdog(void **state) {
    (void)state;
    double seconds = 0;
    assert_int_equal(run_ranks("stop-watchdog", &seconds), 4);
    assert_true(seconds < 10);
    assert_true(all_gone_within(3));
    assert_true(output_has("watchdog on host"));
}

static void killed_rank_takes_all_with_it(void **state) {
    (void)state;
    double seconds = 0;
    int code = run_ranks("kill", &seconds);
    assert_true(code > 0);
    assert_true(seconds < 10);
    assert_true(all_gone_within(3));
}

static void abort_ends_all_with_its_code(void **state) {
    (void)state;
    double seconds = 0;
    assert_int_equal(run_ranks("abort", &seconds), 3);
    assert_true(seconds < 10);
    assert_true(all_gone_within(3));
}

static int make_folder(void **state) {
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/fwa-faults-XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_entry(const char *path, const struct stat *info, int type, struct FTW *at) {
    (void)info, (void)type, (void)at;
    return remove(path);
}

static int remove_folder(void **state) {
    (void)state;
    return nftw(folder, remove_entry, 8, FTW_DEPTH | FTW_PHYS);
}

int main(int argc, char **argv) {
    if (argc == 3) return be_a_rank(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(stopped_rank_is_a_time_out, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(stopped_rank_wakes_the_watchdog, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(killed_rank_takes_all_with_it, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(abort_ends_all_with_its_code, make_folder, remove_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
