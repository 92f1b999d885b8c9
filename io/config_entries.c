// A configuration as a list of keys and values.
#include <stdlib.h>
#include <string.h>

#include "io/config_schema.h"

// Fills the next entry; what there is no memory for stays NULL.
static void add(fwa_config_entry *entries, int *count, const fwa_config *config, const char *prefix, const fwa_key *key,
                const void *base) {
    char path[FWA_KEY_PATH_MAX];
    snprintf(path, sizeof path, "%s%s", prefix, key->path);
    fwa_config_entry *entry = &entries[(*count)++];
    entry->key = strdup(path);
    entry->value = fwa_key_text(key, base);
    entry->changed = fwa_config_changed(config, path);
}

static void add_mixers(fwa_config_entry *entries, int *count, const fwa_config *config) {
    for (int i = 0; i < config->model.mixer_count; i++) {
        const fwa_mixer_config *mixer = &config->model.mixer[i];
        char prefix[64];
        snprintf(prefix, sizeof prefix, "model.mixer.%s.", mixer->name);
        for (const fwa_key *key = fwa_mixer_keys; key->path; key++) add(entries, count, config, prefix, key, mixer);
    }
}

static int length(const fwa_key *table) {
    int n = 0;
    while (table[n].path) n++;
    return n;
}

fwa_status fwa_config_entries(const fwa_config *config, fwa_config_entry **entries, int *count) {
    const int most = length(fwa_keys) + config->model.mixer_count * length(fwa_mixer_keys);
    bool good = true;
    *count = 0;
    *entries = calloc((size_t)most, sizeof **entries);
    FWA_CHECK(*entries, FWA_MEMORY, "no memory for %d keys", most);
    for (const fwa_section *section = fwa_sections; section->name; section++) {
        for (const fwa_key *key = fwa_keys; key->path; key++)
            if (fwa_key_in_section(key, section->name)) add(*entries, count, config, "", key, config);
        if (!strcmp(section->name, "model")) add_mixers(*entries, count, config);
    }
    for (int i = 0; i < *count; i++) good &= (*entries)[i].key && (*entries)[i].value;
    if (good) return FWA_OK;
    fwa_config_entries_free(*entries, *count);
    *entries = NULL;
    FWA_FAIL(FWA_MEMORY, "no memory for %d keys", most);
}

void fwa_config_entries_free(fwa_config_entry *entries, int count) {
    for (int i = 0; entries && i < count; i++) {
        free(entries[i].key);
        free(entries[i].value);
    }
    free(entries);
}
