// Files that belong to a run folder or a checkpoint (train/run.h, io/checkpoint.h), which no result may replace. Not
// collective.
#ifndef FWA_IO_RUN_FILES_H
#define FWA_IO_RUN_FILES_H

#include "core/status.h"

#ifdef __cplusplus
extern "C" {
#endif

// FWA_CONFIG naming `option` where `path` is there, by its own name or behind a link, and is a file that training or
// saving made: of a run its configuration, metrics, log and so on, of a checkpoint its parts.
FWA_MUST_CHECK fwa_status fwa_run_file_check(const char *option, const char *path);
// Before the folder `path` is emptied: FWA_CONFIG where it is a run folder or a checkpoint. `wanted` is the folder that
// it would be emptied for.
FWA_MUST_CHECK fwa_status fwa_run_folder_check(const char *path, const char *wanted);

#ifdef __cplusplus
}
#endif
#endif
