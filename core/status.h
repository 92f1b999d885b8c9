// Status codes, the error message of the calling thread and its trace.
//
// Every fallible function returns fwa_status. The first failure writes a message (what was got, what was expected, a
// hint) and each caller that passes it on through FWA_TRY adds one line to the trace. Nothing below train/main.c ends
// the process. Not collective, thread-local: an OpenMP region must not raise errors.
#ifndef FWA_CORE_STATUS_H
#define FWA_CORE_STATUS_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define FWA_MUST_CHECK                        __attribute__((warn_unused_result))
#define FWA_PRINTF(format_index, first_index) __attribute__((format(printf, format_index, first_index)))

typedef enum fwa_status {
    FWA_OK = 0,
    FWA_ERROR,       // any other failure at run time
    FWA_FAULTY,      // what the command looked at is not as it should be: damaged, different, failed
    FWA_USAGE,       // command line, or a call that breaks its contract
    FWA_CONFIG,      // configuration, or data that the configuration names
    FWA_IO,          // the operating system refused: file, value and errno text stand in the message
    FWA_FORMAT,      // a file is not what it claims to be
    FWA_MEMORY,      // allocation failed
    FWA_UNSUPPORTED, // this backend, type or shape has no such operator
    FWA_NONFINITE,   // loss or gradients are not finite, several steps in a row
    FWA_TIMEOUT,     // a peer did not answer in time
    FWA_COMM,        // MPI or NCCL failed
    FWA_BACKEND,     // CUDA failed
    FWA_PREEMPTED,   // saved after a signal: requeue
    FWA_STATUS_COUNT
} fwa_status;

// Exit code of the program for a status: 0 ok, 1 run time or FWA_FAULTY, 2 usage, configuration or data (another try
// would end the same way: FWA_FORMAT and FWA_UNSUPPORTED too), 3 non-finite, 4 time-out, 75 pre-empted.
int fwa_status_exit_code(fwa_status status);
const char *fwa_status_name(fwa_status status);

// What follows a noun behind a number, as in "%d rank%s".
static inline const char *fwa_plural(int64_t count) {
    return count == 1 ? "" : "s";
}

// Starts a new error: replaces message and trace of this thread and returns `code`. Use FWA_FAIL instead.
fwa_status fwa_error_raise(fwa_status code, const char *file, int line, const char *function, const char *format, ...)
    FWA_PRINTF(5, 6);
// Adds one line to the trace and returns `code`. Use FWA_TRY instead.
fwa_status fwa_error_pass(fwa_status code, const char *file, int line, const char *function);
// Message of this thread's last error ("" if none), valid until the next error of the thread.
const char *fwa_error_message(void);
// Trace of this thread's last error, one "file:line function" per line, innermost first.
const char *fwa_error_trace(void);
void fwa_error_clear(void);
// Marks this thread's last error as the news of another rank, which reports it; the next error starts without.
void fwa_error_mark_remote(void);
bool fwa_error_is_remote(void);

#define FWA_FAIL(code, ...)                                                                                            \
    do {                                                                                                               \
        fwa_error_raise((code), __FILE__, __LINE__, __func__, __VA_ARGS__);                                            \
        return (code);                                                                                                 \
    } while (0)

// Returns from the calling function with `code` and a message unless `condition` holds.
#define FWA_CHECK(condition, code, ...)                                                                                \
    do {                                                                                                               \
        if (!(condition)) FWA_FAIL(code, __VA_ARGS__);                                                                 \
    } while (0)

// Returns a failed status to the caller, adding this place to the trace.
#define FWA_TRY(call)                                                                                                  \
    do {                                                                                                               \
        fwa_status fwa_try_status_ = (call);                                                                           \
        if (fwa_try_status_ != FWA_OK) {                                                                               \
            fwa_error_pass(fwa_try_status_, __FILE__, __LINE__, __func__);                                             \
            return fwa_try_status_;                                                                                    \
        }                                                                                                              \
    } while (0)

// The same for functions with clean-up: sets the local variable `status` and jumps to `label`.
#define FWA_TRY_GOTO(call, label)                                                                                      \
    do {                                                                                                               \
        status = (call);                                                                                               \
        if (status != FWA_OK) {                                                                                        \
            fwa_error_pass(status, __FILE__, __LINE__, __func__);                                                      \
            goto label;                                                                                                \
        }                                                                                                              \
    } while (0)

#define FWA_CHECK_GOTO(condition, code, label, ...)                                                                    \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            status = fwa_error_raise((code), __FILE__, __LINE__, __func__, __VA_ARGS__);                               \
            goto label;                                                                                                \
        }                                                                                                              \
    } while (0)

#ifdef __cplusplus
}
#endif
#endif
