// From the merged tree to the fields: defaults, values, unknown and missing keys, and the checks between keys.
#include "io/config_schema.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static void unknown(fwa_config *config, const fwa_yaml *node, const char *path) {
    char nearest[FWA_KEY_PATH_MAX];
    if (!strcmp(path, "base")) {
        fwa_config_problem_at(config, node, path, "stands only at the top of a configuration file");
        return;
    }
    if (strchr(node->key, '.')) {
        fwa_config_problem_at(config, node, path, "dotted keys are for the command line; nest them in a file");
        return;
    }
    fwa_key_nearest(path, nearest);
    fwa_config_problem_at(config, node, path, "unknown key; the nearest is %s", nearest);
}

static void set(fwa_config *config, const fwa_key *key, void *base, const fwa_yaml *node, const char *path) {
    char message[512];
    if (!fwa_key_set(key, base, node, message)) fwa_config_problem_at(config, node, path, "%s", message);
}

// A mapping, or nothing at all; anything else is a problem.
static bool is_map(fwa_config *config, const fwa_yaml *node, const char *path, const char *of) {
    if (node->kind == FWA_YAML_MAP) return true;
    if (!fwa_yaml_is_null(node)) fwa_config_problem_at(config, node, path, "expected a mapping of %s", of);
    return false;
}

static bool name_is_good(const char *name) {
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-";
    size_t length = strlen(name);
    return length && length < sizeof((fwa_mixer_config *)0)->name && name[0] != '-' &&
           strspn(name, letters) == length && !fwa_key_find(fwa_mixer_keys, name);
}

static fwa_status add_mixer(fwa_config *config, const char *name, fwa_mixer_config **out) {
    fwa_mixer_config *mixer = &config->model.mixer[config->model.mixer_count++];
    for (const fwa_key *key = fwa_mixer_keys; key->path; key++) FWA_TRY(fwa_key_set_default(key, mixer));
    snprintf(mixer->name, sizeof mixer->name, "%s", name);
    *out = mixer;
    return FWA_OK;
}

static fwa_status read_mixer(fwa_config *config, const fwa_yaml *entry) {
    char path[FWA_KEY_PATH_MAX];
    fwa_mixer_config *mixer;
    snprintf(path, sizeof path, "model.mixer.%s", entry->key);
    if (!name_is_good(entry->key)) {
        fwa_config_problem_at(config, entry, path,
                              "not the name of an entry: 1 to 31 letters, digits, _ or -, and no setting's name. "
                              "Settings stand inside an entry: mixer: {main: {rule: falcon1a}}");
        return FWA_OK;
    }
    if (config->model.mixer_count == FWA_CONFIG_MIXERS) {
        fwa_config_problem_at(config, entry, path, "more than %d entries", FWA_CONFIG_MIXERS);
        return FWA_OK;
    }
    FWA_TRY(add_mixer(config, entry->key, &mixer));
    if (!is_map(config, entry, path, "mixer settings")) return FWA_OK;
    for (const fwa_yaml *c = entry->child; c; c = c->next) {
        snprintf(path, sizeof path, "model.mixer.%s.%s", entry->key, c->key);
        const fwa_key *key = fwa_key_find(fwa_mixer_keys, c->key);
        if (key)
            set(config, key, mixer, c, path);
        else
            unknown(config, c, path);
    }
    return FWA_OK;
}

static fwa_status read_section(fwa_config *config, const fwa_yaml *section) {
    char path[FWA_KEY_PATH_MAX];
    if (!is_map(config, section, section->key, "keys")) return FWA_OK;
    for (const fwa_yaml *c = section->child; c; c = c->next) {
        snprintf(path, sizeof path, "%s.%s", section->key, c->key);
        const fwa_key *key = fwa_key_find(fwa_keys, path);
        if (key) {
            set(config, key, config, c, path);
        } else if (strcmp(path, "model.mixer") != 0) {
            unknown(config, c, path);
        } else if (is_map(config, c, path, "entries")) {
            for (const fwa_yaml *entry = c->child; entry; entry = entry->next) FWA_TRY(read_mixer(config, entry));
        }
    }
    return FWA_OK;
}

static bool is_section(const char *name) {
    for (const fwa_section *s = fwa_sections; s->name; s++)
        if (!strcmp(s->name, name)) return true;
    return false;
}

static void check_required(fwa_config *config) {
    for (const fwa_key *key = fwa_keys; key->path; key++) {
        if (key->standard || config->origin->incomplete || fwa_yaml_find(config->origin->tree, key->path)) continue;
        char expected[256] = "";
        FILE *out = fmemopen(expected, sizeof expected - 1, "w");
        if (out) {
            fwa_key_expected(key, "", out);
            fclose(out);
        }
        fwa_config_problem(config, key->path, "required, but not given; expected %s", expected);
    }
}

static void check_mixer_names(fwa_config *config) {
    char entries[FWA_CONFIG_MIXERS * 34] = "";
    for (int i = 0; i < config->model.mixer_count; i++) {
        size_t used = strlen(entries);
        snprintf(entries + used, sizeof entries - used, "%s%s", i ? ", " : "", config->model.mixer[i].name);
    }
    for (int i = 0; i < config->model.mixers_count; i++) {
        const char *name = config->model.mixers[i];
        bool found = false, told = false;
        for (int j = 0; j < config->model.mixer_count; j++) found |= !strcmp(name, config->model.mixer[j].name);
        for (int j = 0; j < i; j++) told |= !strcmp(name, config->model.mixers[j]);
        if (!found && !told)
            fwa_config_problem(config, "model.mixers", "model.mixer has no entry %s; entries: %s", name, entries);
    }
}

// Both keys are given, or have defaults, and were read.
static bool both(const fwa_config *config, const char *a, const char *b) {
    const char *keys[] = {a, b};
    for (int i = 0; i < 2; i++) {
        bool given = fwa_key_find(fwa_keys, keys[i])->standard || fwa_yaml_find(config->origin->tree, keys[i]);
        if (!given || fwa_config_has_problem(config, keys[i])) return false;
    }
    return true;
}

static void check_between_keys(fwa_config *config) {
    const int64_t steps = config->train.steps, warmup = config->schedule.warmup;
    const int64_t global = config->train.global_batch, micro = config->train.micro_batch;
    if (both(config, "train.global_batch", "train.micro_batch") && global % micro)
        fwa_config_problem(config, "train.global_batch",
                           "got %" PRId64 ", expected a multiple of train.micro_batch %" PRId64, global, micro);
    if (both(config, "schedule.warmup", "train.steps") && warmup > steps)
        fwa_config_problem(config, "schedule.warmup", "got %" PRId64 ", expected at most train.steps %" PRId64, warmup,
                           steps);
    if (both(config, "schedule.min_lr", "optimizer.lr") && config->schedule.min_lr > config->optimizer.lr)
        fwa_config_problem(config, "schedule.min_lr", "got %g, expected at most optimizer.lr %g",
                           config->schedule.min_lr, config->optimizer.lr);
    if (both(config, "task.width_min", "task.width_max") && config->task.width_min > config->task.width_max)
        fwa_config_problem(config, "task.width_min", "got %" PRId64 ", expected at most task.width_max %" PRId64,
                           config->task.width_min, config->task.width_max);
    if (!fwa_config_has_problem(config, "model.mixers")) check_mixer_names(config);
}

fwa_status fwa_config_resolve(fwa_config *config) {
    const fwa_yaml *tree = config->origin->tree;
    fwa_mixer_config *mixer;
    for (const fwa_key *key = fwa_keys; key->path; key++) FWA_TRY(fwa_key_set_default(key, config));
    for (const fwa_yaml *c = tree->child; c; c = c->next) {
        if (is_section(c->key))
            FWA_TRY(read_section(config, c));
        else
            unknown(config, c, c->key);
    }
    if (!config->model.mixer_count) FWA_TRY(add_mixer(config, "main", &mixer));
    check_required(config);
    check_between_keys(config);
    return FWA_OK;
}
