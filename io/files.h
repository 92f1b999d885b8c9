// Small file helpers that report errors the way fwa does. Not collective.
#ifndef FWA_IO_FILES_H
#define FWA_IO_FILES_H

#include <stdbool.h>

#include "core/status.h"
#include "core/types.h"

#ifdef __cplusplus
extern "C" {
#endif

FWA_MUST_CHECK fwa_status fwa_make_folders(const char *path);              // mkdir -p
FWA_MUST_CHECK fwa_status fwa_read_text(const char *path, char **text);    // whole file, NUL-terminated; caller frees
// Writes `path`.tmp, syncs, renames: readers see the old or the new text, never a part.
FWA_MUST_CHECK fwa_status fwa_write_text(const char *path, const char *text);
FWA_MUST_CHECK fwa_status fwa_remove_folder(const char *path);             // rm -r; missing is fine
bool fwa_path_exists(const char *path);
int64_t fwa_free_bytes(const char *path);                                  // free for this user on the disk of `path`; -1 unknown
FWA_MUST_CHECK fwa_status fwa_file_digest(const char *path, char hex[33]); // XXH3, 128 bits

#ifdef __cplusplus
}
#endif
#endif
