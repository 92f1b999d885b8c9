// The program: finds the command, runs it on every rank, and is the only place that ends the job.
#include <fcntl.h>
#include <omp.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/cores.h"
#include "core/log.h"
#include "core/version.h"
#include "io/checkpoint.h"
#include "train/agreement.h"
#include "train/commands.h"
#include "train/help.h"

#define LEAST_STACK ((size_t)2 << 20) // of a thread; what glibc gives where there is no limit

static void add_place(fwa_cores *cores, int place) {
    const int count = omp_get_place_num_procs(place);
    int *ids = calloc((size_t)count + 1, sizeof *ids);
    if (ids) omp_get_place_proc_ids(place, ids);
    for (int i = 0; ids && i < count; i++) fwa_cores_add(cores, ids[i]);
    free(ids);
}

// OpenMP has bound this thread to the first of its places, and all that it starts with it: back to all of them. Places
// are taken as the cores of the process, on which the system moves its threads.
static bool leave_place(void) {
    static const char *const names[] = {"OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY"};
    const int places = omp_get_proc_bind() == omp_proc_bind_false ? 0 : omp_get_num_places();
    fwa_cores cores = {0};
    bool bound = false;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        bound |= getenv(names[i]) != NULL;
        unsetenv(names[i]);
    }
    for (int p = 0; p < places; p++) add_place(&cores, p);
    fwa_cores_bind(&cores); // refused where there are none
    return bound;
}

// Threads that wait must sleep: ranks share cores. OpenMP reads its variables when the program is loaded, so it starts
// over once.
static void set_openmp(char **argv) {
    const bool bound = leave_place(), told = getenv("OMP_WAIT_POLICY") != NULL;
    if (told && !bound) return;
    setenv("OMP_WAIT_POLICY", "passive", 0);
    execv("/proc/self/exe", argv);
}

// Threads, those of libraries too, would get stacks of the size that `ulimit -s` allows the first one.
static void widen_stacks(void) {
    pthread_attr_t attributes;
    size_t bytes;
    if (pthread_getattr_default_np(&attributes) != 0) return;
    if (pthread_attr_getstacksize(&attributes, &bytes) == 0 && bytes < LEAST_STACK &&
        pthread_attr_setstacksize(&attributes, LEAST_STACK) == 0)
        pthread_setattr_default_np(&attributes);
    pthread_attr_destroy(&attributes);
}

static int is(const char *word, const char *name) {
    return word && strcmp(word, name) == 0;
}

static int asks_for_help(const char *word) {
    return is(word, "--help") || is(word, "-h");
}

// `fwa train --help`, `fwa train run.yaml --help`, `fwa checkpoint list -h`: not the value of an option.
static int asks_about_command(int argc, char **argv) {
    return argc > 2 && (asks_for_help(argv[2]) || (argc > 3 && argv[2][0] != '-' && asks_for_help(argv[3])));
}

// A stream that was closed gets a place-holder that refuses what it is asked: the next file that is opened would take
// its number, and lines for people would be written into a checkpoint.
static void hold_streams(void) {
    static const int modes[] = {O_WRONLY, O_RDONLY, O_RDONLY};
    for (int i = 0; i < 3; i++) {
        if (fcntl(i, F_GETFD) < 0 && open("/dev/null", modes[i]) < 0) _exit(fwa_status_exit_code(FWA_IO));
    }
}

// Failures that every rank has seen, or would see, in the same way: all can leave by themselves.
static bool agreed(fwa_status status) {
    return status == FWA_USAGE || status == FWA_CONFIG || status == FWA_FORMAT || status == FWA_UNSUPPORTED ||
           status == FWA_NONFINITE || status == FWA_PREEMPTED;
}

static void print_failure(const fwa_world *world, fwa_status status) {
    const char *message = fwa_error_message();
    if (world->rank != 0 && (agreed(status) || fwa_error_is_remote())) return;
    if (status == FWA_PREEMPTED) {
        fwa_log_info("%s", message);
        return;
    }
    fwa_log_error("%s", message);
    // A trace helps where the program may be at fault, not where its input or its machine is.
    const bool ours = status == FWA_ERROR || status == FWA_TIMEOUT || status == FWA_COMM || status == FWA_BACKEND;
    if (ours && fwa_error_trace()[0]) fwa_log_error("at\n%s", fwa_error_trace());
}

// What was printed is a result like any other: a full disk behind it is a failure.
static fwa_status written(fwa_status status) {
    if (status != FWA_OK) return status;
    FWA_CHECK(fflush(stdout) == 0 && !ferror(stdout), FWA_IO, "cannot write to standard output");
    return FWA_OK;
}

static int end_alone(int code) {
    if (code == 0 && written(FWA_OK) != FWA_OK) code = 1;
    if (code == 1) fprintf(stderr, "fwa: %s\n", fwa_error_message());
    return code;
}

static int end(fwa_world *world, fwa_status status) {
    int code = fwa_status_exit_code(status);
    if (status == FWA_OK) {
        fwa_world_destroy(world);
        return 0;
    }
    print_failure(world, status);
    if (fwa_error_is_remote()) usleep(300000); // the rank that failed speaks before the job is ended
    if (world->size > 1 && (!agreed(status) || world->all->barrier(world->all) != FWA_OK)) fwa_world_abort(world, code);
    fwa_world_destroy(world);
    return code;
}

int main(int argc, char **argv) {
    fwa_world *world = NULL;
    hold_streams();
    signal(SIGXFSZ, SIG_IGN); // a file that may not grow (ulimit -f) is a failed write, with a message
    set_openmp(argv);
    widen_stacks();
    if (argc < 2 || is(argv[1], "help") || asks_for_help(argv[1]))
        return end_alone(fwa_help(argc > 2 ? argv[2] : NULL, argc < 2 ? stderr : stdout, argc < 2));
    if (is(argv[1], "--version")) {
        printf("%s\n", fwa_version_text());
        return end_alone(0);
    }
    const fwa_command *command = fwa_command_find(argv[1]);
    if (!command) {
        fprintf(stderr, "fwa: no command '%s'\n\n", argv[1]);
        return fwa_help(NULL, stderr, 1);
    }
    if (asks_about_command(argc, argv)) return end_alone(fwa_help(argv[1], stdout, 0));
    fwa_status status = fwa_world_create(&world, &argc, &argv);
    if (status != FWA_OK) {
        fprintf(stderr, "fwa: %s\n", fwa_error_message());
        return fwa_status_exit_code(status);
    }
    fwa_log_init(world->rank, world->size, world->host);
    status = fwa_agree_program(world, command->name);
    if (status == FWA_OK) status = fwa_hdf5_start();
    if (status == FWA_OK) status = command->run(world, argc - 1, argv + 1);
    return end(world, written(status));
}
