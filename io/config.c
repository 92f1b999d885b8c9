// A configuration from its creation to its end: load, parse, the list of problems, destroy.
#include "io/config.h"

#include <limits.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "io/config_schema.h"
#include "io/files.h"

static void store_problem(fwa_config *config, char *key, char *text) {
    fwa_problem *problem = calloc(1, sizeof *problem), **tail = &config->origin->problems;
    if (!problem || !key || !text) {
        config->origin->out_of_memory = true;
        free(problem);
        free(key);
        free(text);
        return;
    }
    problem->key = key;
    problem->text = text;
    while (*tail) tail = &(*tail)->next;
    *tail = problem;
}

static void FWA_PRINTF(5, 0) add_problem(fwa_config *config, const fwa_yaml *node, const char *key, const char *mark,
                                         const char *format, va_list arguments) {
    char place[PATH_MAX + 32];
    char *text = NULL, *line = NULL;
    fwa_yaml_place(node, place, sizeof place);
    if (vasprintf(&text, format, arguments) < 0) text = NULL;
    if (!text || asprintf(&line, "%s: %s%s: %s", place, key, mark, text) < 0) line = NULL;
    free(text);
    store_problem(config, strdup(key), line);
}

void fwa_config_problem_at(fwa_config *config, const fwa_yaml *node, const char *key, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    add_problem(config, node, key, "", format, arguments);
    va_end(arguments);
}

void fwa_config_problem(fwa_config *config, const char *key, const char *format, ...) {
    const fwa_yaml *tree = config->origin->tree, *node = fwa_yaml_deepest(tree, key);
    const fwa_key *known = fwa_key_find(fwa_keys, key);
    bool set = node == fwa_yaml_find(tree, key);
    bool has_default = !known || known->standard;
    va_list arguments;
    va_start(arguments, format);
    add_problem(config, node, key, set || !has_default ? "" : " (default)", format, arguments);
    va_end(arguments);
}

bool fwa_config_has_problem(const fwa_config *config, const char *key) {
    for (const fwa_problem *p = config->origin->problems; p; p = p->next)
        if (!strcmp(p->key, key)) return true;
    return false;
}

fwa_status fwa_config_finish(fwa_config *config) {
    FWA_CHECK(!config->origin->out_of_memory, FWA_MEMORY, "no memory for the problems of a configuration");
    if (!config->origin->problems) return FWA_OK;
    char *lines = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&lines, &bytes);
    FWA_CHECK(out, FWA_MEMORY, "no memory for the problems of a configuration");
    for (const fwa_problem *p = config->origin->problems; p; p = p->next)
        fprintf(out, "%s%s", p->text, p->next ? "\n" : "");
    bool good = fwa_stream_end(out, &lines);
    fwa_status status = fwa_error_raise(good ? FWA_CONFIG : FWA_MEMORY, __FILE__, __LINE__, __func__, "%s",
                                        good ? lines : "no memory for the problems of a configuration");
    free(lines);
    return status;
}

void fwa_config_destroy(fwa_config *config) {
    if (!config) return;
    if (config->origin) {
        fwa_yaml_destroy(config->origin->tree);
        while (config->origin->problems) {
            fwa_problem *next = config->origin->problems->next;
            free(config->origin->problems->key);
            free(config->origin->problems->text);
            free(config->origin->problems);
            config->origin->problems = next;
        }
        free(config->origin);
    }
    free(config);
}

static fwa_status create(fwa_config **out) {
    fwa_config *config = calloc(1, sizeof *config);
    FWA_CHECK(config, FWA_MEMORY, "no memory for a configuration");
    config->origin = calloc(1, sizeof *config->origin);
    if (!config->origin) {
        free(config);
        FWA_FAIL(FWA_MEMORY, "no memory for a configuration");
    }
    *out = config;
    return FWA_OK;
}

// The base name of the file without .yaml or .yml.
static void derive_name(fwa_config *config, const char *path) {
    if (config->run.name[0] || fwa_config_has_problem(config, "run.name")) return;
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    size_t length = strlen(name);
    const char *dot = strrchr(name, '.');
    if (dot && dot > name && (!strcmp(dot, ".yaml") || !strcmp(dot, ".yml"))) length = (size_t)(dot - name);
    snprintf(config->run.name, sizeof config->run.name, "%.*s", (int)length, name);
}

// `text` NULL: what the file `name` holds.
static fwa_status build(fwa_config **out, const char *text, const char *name, const fwa_setting *settings, int count) {
    fwa_config *config;
    fwa_status status = FWA_OK;
    *out = NULL;
    FWA_TRY(create(&config));
    FWA_TRY_GOTO(text ? fwa_config_tree_from_text(config, text, name) : fwa_config_tree_from_file(config, name), fail);
    for (int i = 0; i < count; i++) FWA_TRY_GOTO(fwa_config_tree_override(config, &settings[i]), fail);
    FWA_TRY_GOTO(fwa_config_resolve(config), fail);
    derive_name(config, name);
    *out = config;
    return FWA_OK;
fail:
    fwa_config_destroy(config);
    return status;
}

// The same with words of the command line.
static fwa_status build_from_words(fwa_config **out, const char *text, const char *name, const char *const *words,
                                   int count) {
    *out = NULL;
    fwa_setting *settings = calloc((size_t)count + 1, sizeof *settings);
    FWA_CHECK(settings, FWA_MEMORY, "no memory for %d overrides", count);
    for (int i = 0; i < count; i++) settings[i].text = words[i];
    fwa_status status = build(out, text, name, settings, count);
    free(settings);
    return status;
}

fwa_status fwa_config_load(fwa_config **out, const char *path, const char *const *overrides, int count) {
    FWA_TRY(build_from_words(out, NULL, path, overrides, count));
    return FWA_OK;
}

fwa_status fwa_config_load_settings(fwa_config **out, const char *path, const fwa_setting *settings, int count) {
    FWA_TRY(build(out, NULL, path, settings, count));
    return FWA_OK;
}

fwa_status fwa_config_parse(fwa_config **out, const char *text, const char *name, const char *const *overrides,
                            int count) {
    FWA_TRY(build_from_words(out, text, name, overrides, count));
    return FWA_OK;
}
