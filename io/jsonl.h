// JSON line by line, and numbers that it can hold. Not collective.
#ifndef FWA_IO_JSONL_H
#define FWA_IO_JSONL_H

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

#include "core/status.h"

#ifdef __cplusplus
extern "C" {
#endif

bool fwa_jsonl_blank(const char *line, size_t bytes); // white space alone, to be passed over
// The text that member `field` of the object in line `number` of `path` is, as a JSON string that lives as long as
// *object, which the caller releases, after a failure too; both are NULL for a blank line. FWA_FORMAT names the line
// and what is wrong.
FWA_MUST_CHECK fwa_status fwa_jsonl_text(const char *path, int64_t number, const char *line, size_t bytes,
                                         const char *field, json_t **object, const json_t **text);
void fwa_json_real(double value, FILE *out); // nine digits; null for NaN and infinities, which JSON does not have

#ifdef __cplusplus
}
#endif
#endif
