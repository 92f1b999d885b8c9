// A folder for the files of one test, made before and removed after it (cmocka set-up and tear-down).
#ifndef FWA_TESTS_TEMP_FOLDER_H
#define FWA_TESTS_TEMP_FOLDER_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "io/files.h"
#include "tests/check.h"

static char temp_folder[64];

static inline int temp_setup(void **state) {
    (void)state;
    snprintf(temp_folder, sizeof temp_folder, "/tmp/fwa_test_XXXXXX");
    return mkdtemp(temp_folder) ? 0 : -1;
}

static inline int temp_teardown(void **state) {
    fwa_status status = fwa_remove_folder(temp_folder);
    return check_release(state) != 0 || status != FWA_OK;
}

// temp_folder/<name>; valid until the eighth call after this one.
static inline const char *temp_path(const char *name) {
    static char paths[8][512];
    static int next;
    char *path = paths[next++ % 8];
    snprintf(path, sizeof paths[0], "%s/%s", temp_folder, name);
    return path;
}

static inline void temp_write(const char *path, const void *bytes, size_t size) {
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
}

// The message of the last error holds `part`.
static inline void check_message(const char *part) {
    if (!strstr(fwa_error_message(), part)) fail_msg("\"%s\" is not in: %s", part, fwa_error_message());
}

#define temp_test(test) cmocka_unit_test_setup_teardown(test, temp_setup, temp_teardown)

#endif
