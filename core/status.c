// The last error of each thread: one message and the places it passed through.
#include "core/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { MESSAGE_BYTES = 8192, TRACE_BYTES = 4096 };

static _Thread_local char error_message[MESSAGE_BYTES];
static _Thread_local char error_trace[TRACE_BYTES];
static _Thread_local bool error_remote;

int fwa_status_exit_code(fwa_status status) {
    switch (status) {
    case FWA_OK:
        return 0;
    case FWA_USAGE:
    case FWA_CONFIG:
    case FWA_FORMAT:
    case FWA_UNSUPPORTED:
        return 2;
    case FWA_NONFINITE:
        return 3;
    case FWA_TIMEOUT:
        return 4;
    case FWA_PREEMPTED:
        return 75;
    default:
        return 1;
    }
}

const char *fwa_status_name(fwa_status status) {
    static const char *const names[FWA_STATUS_COUNT] = {
        [FWA_OK] = "ok",
        [FWA_ERROR] = "error",
        [FWA_FAULTY] = "faulty",
        [FWA_USAGE] = "usage",
        [FWA_CONFIG] = "config",
        [FWA_IO] = "io",
        [FWA_FORMAT] = "format",
        [FWA_MEMORY] = "memory",
        [FWA_UNSUPPORTED] = "unsupported",
        [FWA_NONFINITE] = "nonfinite",
        [FWA_TIMEOUT] = "timeout",
        [FWA_COMM] = "comm",
        [FWA_BACKEND] = "backend",
        [FWA_PREEMPTED] = "preempted",
    };
    return (unsigned)status < FWA_STATUS_COUNT ? names[status] : "unknown";
}

// Marks text that did not fit, so that nobody takes half a message for a whole one.
static void mark_if_cut(char *text, size_t bytes, int wanted) {
    if (wanted >= 0 && (size_t)wanted >= bytes) memcpy(text + bytes - 4, "...", 4);
}

static void trace_add(const char *file, int line, const char *function) {
    size_t used = strlen(error_trace), room = sizeof error_trace - used;
    int wanted = snprintf(error_trace + used, room, "%s%s:%d %s", used ? "\n" : "", file, line, function);
    if (wanted >= 0 && (size_t)wanted >= room) mark_if_cut(error_trace, sizeof error_trace, (int)sizeof error_trace);
}

fwa_status fwa_error_raise(fwa_status code, const char *file, int line, const char *function, const char *format, ...) {
    char text[MESSAGE_BYTES]; // an argument may be the message that is being replaced
    va_list arguments;
    va_start(arguments, format);
    int wanted = vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (wanted < 0) text[0] = '\0';
    mark_if_cut(text, sizeof text, wanted);
    memcpy(error_message, text, strlen(text) + 1);
    error_trace[0] = '\0';
    error_remote = false;
    trace_add(file, line, function);
    return code;
}

fwa_status fwa_error_pass(fwa_status code, const char *file, int line, const char *function) {
    trace_add(file, line, function);
    return code;
}

const char *fwa_error_message(void) {
    return error_message;
}

const char *fwa_error_trace(void) {
    return error_trace;
}

void fwa_error_clear(void) {
    error_message[0] = error_trace[0] = '\0';
    error_remote = false;
}

void fwa_error_mark_remote(void) {
    error_remote = true;
}

bool fwa_error_is_remote(void) {
    return error_remote;
}
