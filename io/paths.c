// Lists of files, as patterns name them.
#include "io/paths.h"

#include <glob.h>
#include <stdlib.h>
#include <string.h>

#include "io/files.h"

fwa_status fwa_paths_add(fwa_paths *paths, const char *path) {
    char **grown = realloc(paths->at, ((size_t)paths->count + 1) * sizeof *grown);
    FWA_CHECK(grown, FWA_MEMORY, "no memory for %d file names", paths->count + 1);
    paths->at = grown;
    grown[paths->count] = strdup(path);
    FWA_CHECK(grown[paths->count], FWA_MEMORY, "no memory for the name of %s", path);
    paths->count++;
    return FWA_OK;
}

static int by_path(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

void fwa_paths_sort(fwa_paths *paths) {
    if (paths->count > 1) qsort(paths->at, (size_t)paths->count, sizeof *paths->at, by_path);
}

fwa_status fwa_paths_find(fwa_paths *paths, const char *pattern, const char *expected) {
    glob_t found = {0};
    if (fwa_path_exists(pattern)) return fwa_paths_add(paths, pattern);
    const int failed = glob(pattern, GLOB_NOSORT | GLOB_BRACE | GLOB_TILDE, NULL, &found);
    fwa_status status = FWA_OK;
    FWA_CHECK_GOTO(failed != GLOB_NOSPACE, FWA_MEMORY, done, "no memory for the files of %s", pattern);
    FWA_CHECK_GOTO(failed == 0 && found.gl_pathc > 0, FWA_CONFIG, done, "no file matches \"%s\": expected %s", pattern,
                   expected);
    qsort(found.gl_pathv, found.gl_pathc, sizeof *found.gl_pathv, by_path);
    for (size_t i = 0; i < found.gl_pathc; i++) FWA_TRY_GOTO(fwa_paths_add(paths, found.gl_pathv[i]), done);
done:
    globfree(&found);
    return status;
}

void fwa_paths_free(fwa_paths *paths) {
    for (int i = 0; i < paths->count; i++) free(paths->at[i]);
    free(paths->at);
    memset(paths, 0, sizeof *paths);
}
