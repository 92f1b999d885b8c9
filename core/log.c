// The log: one lock, one line at a time, to stderr and to the log file.
#include "core/log.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "core/rng.h"

static struct {
    pthread_mutex_t lock;
    int rank, size;
    char host[64];
    FILE *file;
    char path[512]; // of the file
    int64_t unread; // lines that stderr did not take since it last took one
    bool lost;      // the file did not take a line, and stderr was told
    uint64_t *once; // hashes of the keys logged so far
    size_t once_count, once_capacity;
} state = {.lock = PTHREAD_MUTEX_INITIALIZER, .size = 1};

static const char *level_name(fwa_log_level level) {
    static const char *const names[] = {"info", "warning", "error"};
    return names[level];
}

void fwa_log_init(int rank, int size, const char *host) {
    pthread_mutex_lock(&state.lock);
    state.rank = rank;
    state.size = size;
    snprintf(state.host, sizeof state.host, "%s", host);
    pthread_mutex_unlock(&state.lock);
}

fwa_status fwa_log_open_file(const char *path) {
    FILE *file = NULL;
    if (path != NULL) {
        file = fopen(path, "ae");
        FWA_CHECK(file != NULL, FWA_IO, "%s: cannot open the log file: %s", path, strerror(errno));
    }
    pthread_mutex_lock(&state.lock);
    FILE *before = state.file;
    state.file = file;
    state.lost = false;
    snprintf(state.path, sizeof state.path, "%s", path ? path : "");
    pthread_mutex_unlock(&state.lock);
    if (before != NULL) fclose(before);
    return FWA_OK;
}

static bool wanted(fwa_log_level level) {
    return state.rank == 0 || level >= FWA_LOG_WARN;
}

// "warning (rank 3 on node7): " in front of what a person must notice; nothing in front of plain lines.
static void prefix_write(FILE *stream, fwa_log_level level) {
    if (level == FWA_LOG_INFO) return;
    if (state.size > 1)
        fprintf(stream, "%s (rank %d on %s): ", level_name(level), state.rank, state.host);
    else
        fprintf(stream, "%s: ", level_name(level));
}

// Whether all of it was written, with what the caller has put in front.
static bool line_write(FILE *stream, fwa_log_level level, const char *format, va_list arguments) {
    prefix_write(stream, level);
    vfprintf(stream, format, arguments);
    fputc('\n', stream);
    return fflush(stream) == 0 && !ferror(stream);
}

static void time_write(FILE *stream) {
    char text[32];
    struct tm local;
    time_t now = time(NULL);
    if (localtime_r(&now, &local) && strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S%z", &local) > 0)
        fprintf(stream, "%s ", text);
}

// Negative where a signal came first: it may ask for a save, which has no time to lose.
static int poll_stderr(int wait_ms) {
    struct pollfd stream = {.fd = STDERR_FILENO, .events = POLLOUT};
    return poll(&stream, 1, wait_ms);
}

// Says once, where stderr takes it, that the file takes no more lines; the next ones are tried all the same. The lock
// is held.
static void report_loss(int error) {
    clearerr(state.file);
    if (state.lost || poll_stderr(0) <= 0) return;
    state.lost = true;
    prefix_write(stderr, FWA_LOG_WARN);
    fprintf(stderr, "cannot write to %s: %s; lines may be missing there from now on, all of them stand here\n",
            state.path, strerror(error));
}

bool fwa_log_flows(void) {
    return poll_stderr(0) != 0;
}

// Whether stderr takes a line; the file holds those that it does not. The lock is held.
static bool stderr_takes(void) {
    if (state.file == NULL) return true;
    if (poll_stderr(state.unread > 0 ? 0 : FWA_LOG_PATIENCE_MS) <= 0) {
        state.unread++;
        return false;
    }
    if (state.unread > 0) {
        prefix_write(stderr, FWA_LOG_WARN);
        fprintf(stderr, "%lld line%s not shown here, where nobody read: to be found in %s\n", (long long)state.unread,
                fwa_plural(state.unread), state.path);
    }
    state.unread = 0;
    return true;
}

// The lock is held.
static void log_locked(fwa_log_level level, const char *format, va_list arguments) {
    if (!wanted(level)) return;
    if (state.file != NULL) {
        va_list again;
        va_copy(again, arguments);
        time_write(state.file);
        const bool whole = line_write(state.file, level, format, again);
        if (!whole) report_loss(errno);
        va_end(again);
    }
    if (stderr_takes()) (void)line_write(stderr, level, format, arguments);
}

void fwa_log(fwa_log_level level, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    pthread_mutex_lock(&state.lock);
    log_locked(level, format, arguments);
    pthread_mutex_unlock(&state.lock);
    va_end(arguments);
}

// Whether `key` is new. Without memory to remember it the line is printed again rather than lost.
static bool once_add(const char *key) {
    uint64_t hash = fwa_rng_hash(key);
    for (size_t i = 0; i < state.once_count; i++)
        if (state.once[i] == hash) return false;
    if (state.once_count == state.once_capacity) {
        size_t capacity = state.once_capacity ? 2 * state.once_capacity : 32;
        uint64_t *larger = realloc(state.once, capacity * sizeof *larger);
        if (larger == NULL) return true;
        state.once = larger;
        state.once_capacity = capacity;
    }
    state.once[state.once_count++] = hash;
    return true;
}

void fwa_log_once(const char *key, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    pthread_mutex_lock(&state.lock);
    if (once_add(key)) log_locked(FWA_LOG_INFO, format, arguments);
    pthread_mutex_unlock(&state.lock);
    va_end(arguments);
}
