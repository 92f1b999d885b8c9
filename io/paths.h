// Lists of files, as patterns name them. Not collective.
#ifndef FWA_IO_PATHS_H
#define FWA_IO_PATHS_H

#include "core/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct fwa_paths {
    char **at;
    int count;
} fwa_paths;

// Adds the file `pattern` where there is one of this very name, otherwise all that match it as a glob, with braces and
// ~, in byte order. FWA_CONFIG where nothing does; `expected` says what to give instead.
FWA_MUST_CHECK fwa_status fwa_paths_find(fwa_paths *paths, const char *pattern, const char *expected);
FWA_MUST_CHECK fwa_status fwa_paths_add(fwa_paths *paths, const char *path);
void fwa_paths_sort(fwa_paths *paths); // in byte order in every locale
void fwa_paths_free(fwa_paths *paths); // also after a failure; empty is fine

#ifdef __cplusplus
}
#endif
#endif
