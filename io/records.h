// Records as JSON: what a backend has chosen by measurement (core/backend.h), as RUN/gemm_algos.json and checkpoints
// hold it. Not collective.
#ifndef FWA_IO_RECORDS_H
#define FWA_IO_RECORDS_H

#include "core/status.h"

#ifdef __cplusplus
extern "C" {
#endif

// records: one a line, name=value pairs parted by tabs. *json: {"format", "version", "choices": [an object a record]},
// whole numbers as such, all else as strings; "" for no record. The caller frees it.
FWA_MUST_CHECK fwa_status fwa_records_to_json(const char *records, char **json);
// The other way; FWA_FORMAT names `place` where json is none of these. "" is no record. The caller frees *records.
FWA_MUST_CHECK fwa_status fwa_records_from_json(const char *json, const char *place, char **records);

#ifdef __cplusplus
}
#endif
#endif
