// A folder that is whole or not there: filled beside the one wanted, which a rename puts in place. Not collective.
#ifndef FWA_TRAIN_CONVERT_EXPORT_FOLDER_H
#define FWA_TRAIN_CONVERT_EXPORT_FOLDER_H

#include "io/files.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct fwa_folder {
    char path[FWA_PATH_MAX];      // the one wanted
    char temporary[FWA_PATH_MAX]; // path.tmp: files go here
} fwa_folder;

// FWA_CONFIG where `path` is there and has files. An older path.tmp is emptied, unless it holds a run or a checkpoint.
FWA_MUST_CHECK fwa_status fwa_folder_begin(fwa_folder *folder, const char *path);
// Renames the temporary folder. After a failure, here or before, the caller drops that (fwa_drop_folder).
FWA_MUST_CHECK fwa_status fwa_folder_end(const fwa_folder *folder);
// temporary/name into `path`.
FWA_MUST_CHECK fwa_status fwa_folder_file(const fwa_folder *folder, const char *name, char path[FWA_PATH_MAX]);

#ifdef __cplusplus
}
#endif
#endif
