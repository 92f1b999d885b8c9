// Helpers for tests of the configuration: files in a folder of their own, loading them, the problems that are expected.
#ifndef FWA_TESTS_CONFIG_CHECK_H
#define FWA_TESTS_CONFIG_CHECK_H

#include <sys/stat.h>
#include <unistd.h>

#include "check.h"
#include "io/config.h"
#include "io/files.h"

static char config_folder[64];
static char config_output[16384]; // the last message, without the folder's name

// What every configuration must give.
#define CONFIG_MINIMAL                                                                                                 \
    "model: {layers: 2, d_model: 64, heads: 4, head_dim: 16, ffn: 168}\n"                                              \
    "train: {steps: 4000, micro_batch: 2, global_batch: 8}\n"

static inline int config_setup(void **state) {
    (void)state;
    snprintf(config_folder, sizeof config_folder, "/tmp/fwa-test-config-XXXXXX");
    return mkdtemp(config_folder) ? 0 : -1;
}

static inline int config_teardown(void **state) {
    (void)state;
    return fwa_remove_folder(config_folder) == FWA_OK ? 0 : -1;
}

static inline const char *config_path(const char *name) {
    static char path[512];
    snprintf(path, sizeof path, "%s/%s", config_folder, name);
    return path;
}

// Writes a file into the folder; `name` may have folders in front.
static inline void config_write(const char *name, const char *text) {
    char folder[512];
    snprintf(folder, sizeof folder, "%s", config_path(name));
    *strrchr(folder, '/') = 0;
    check_ok(fwa_make_folders(folder));
    FILE *file = fopen(config_path(name), "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

// Keeps the message of the last error, with "FOLDER/" taken out.
static inline const char *config_message(void) {
    const char *from = fwa_error_message();
    char prefix[80];
    size_t length = (size_t)snprintf(prefix, sizeof prefix, "%s/", config_folder), used = 0;
    while (*from && used + 1 < sizeof config_output) {
        if (!strncmp(from, prefix, length))
            from += length;
        else
            config_output[used++] = *from++;
    }
    config_output[used] = 0;
    return config_output;
}

// Loads a file of the folder; overrides end with NULL. Problems, if any, stay inside.
static inline fwa_config *config_load(const char *name, const char *const *overrides) {
    fwa_config *config = NULL;
    int count = 0;
    while (overrides && overrides[count]) count++;
    check_ok(fwa_config_load(&config, config_path(name), overrides, count));
    return config;
}

#define OVERRIDES(...) ((const char *const[]){__VA_ARGS__, NULL})

// A configuration without problems; the caller destroys it.
static inline fwa_config *config_good(const char *name, const char *const *overrides) {
    fwa_config *config = config_load(name, overrides);
    check_ok(fwa_config_finish(config));
    return config;
}

static inline fwa_config *config_minimal(const char *const *overrides) {
    config_write("minimal.yaml", CONFIG_MINIMAL);
    return config_good("minimal.yaml", overrides);
}

// Loading gives exactly these lines of problems.
static inline void config_expect(const char *name, const char *const *overrides, const char *lines) {
    fwa_config *config = config_load(name, overrides);
    check_status(fwa_config_finish(config), FWA_CONFIG);
    fwa_config_destroy(config);
    assert_string_equal(config_message(), lines);
}

// The same for a file that holds `text`.
static inline void config_expect_text(const char *text, const char *lines) {
    config_write("case.yaml", text);
    config_expect("case.yaml", NULL, lines);
}

#endif
