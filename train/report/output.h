// A file of a report: made in memory, written as a whole, and over nothing but an earlier one. Not collective.
#ifndef FWA_TRAIN_REPORT_OUTPUT_H
#define FWA_TRAIN_REPORT_OUTPUT_H

#include <stdio.h>

#include "core/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct fwa_report_output {
    const char *path;
    FILE *out; // what is printed to it becomes the file
    char *text;
    size_t bytes; // known once closed
} fwa_report_output;

// FWA_USAGE where `path` is a file, not empty, that does not begin with `begin` in letters of either case. `option`
// names the file, `kind` says what is expected there.
FWA_MUST_CHECK fwa_status fwa_report_output_check(const char *option, const char *path, const char *begin,
                                                  const char *kind);
// `path` must outlive *output. Each successful call is closed.
FWA_MUST_CHECK fwa_status fwa_report_output_open(fwa_report_output *output, const char *path);
// Where `status` is FWA_OK writes what was printed, if anything was; else returns `status`.
FWA_MUST_CHECK fwa_status fwa_report_output_close(fwa_report_output *output, fwa_status status);

#ifdef __cplusplus
}
#endif
#endif
