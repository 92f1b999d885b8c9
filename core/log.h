// One log: to stderr and, once a run folder is open, to its log.txt as well. Not collective.
//
// Ranks other than 0 print warnings and errors only. Lines on stderr carry no time stamp; those of the file do.
#ifndef FWA_CORE_LOG_H
#define FWA_CORE_LOG_H

#include <stdbool.h>

#include "core/status.h"

#ifdef __cplusplus
extern "C" {
#endif

#define FWA_LOG_PATIENCE_MS 2000

typedef enum fwa_log_level { FWA_LOG_INFO, FWA_LOG_WARN, FWA_LOG_ERROR } fwa_log_level;

// Rank of this process and host name, shown in front of warnings and errors when `size` > 1. Call once at start.
void fwa_log_init(int rank, int size, const char *host);
// Appends to `path` from now on (NULL closes). The line buffer is flushed after every line. Where that fails, on a full
// disk for instance, stderr is told once and the caller goes on. While a file is open, a stderr that nobody reads
// (Ctrl-S, a launcher that was stopped) holds the caller for FWA_LOG_PATIENCE_MS at most: lines are left out there and
// counted.
FWA_MUST_CHECK fwa_status fwa_log_open_file(const char *path);
bool fwa_log_flows(void); // whether stderr takes something at once
void fwa_log(fwa_log_level level, const char *format, ...) FWA_PRINTF(2, 3);
// Logs the text once per process for each distinct `key` (kernel choices, epochs).
void fwa_log_once(const char *key, const char *format, ...) FWA_PRINTF(2, 3);

#define fwa_log_info(...)  fwa_log(FWA_LOG_INFO, __VA_ARGS__)
#define fwa_log_warn(...)  fwa_log(FWA_LOG_WARN, __VA_ARGS__)
#define fwa_log_error(...) fwa_log(FWA_LOG_ERROR, __VA_ARGS__)

#ifdef __cplusplus
}
#endif
#endif
