// What makes two runs the same: the hash of the keys that define a run, and what a resumed run must not change.
#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

#include "io/config_schema.h"
#include "io/files.h"

// The value as YAML; of a FILE key without its folder. The caller frees it; NULL: out of memory.
static char *value_text(const fwa_key *key, const void *base) {
    const char *field = (const char *)base + key->offset;
    const char *slash = key->resume == FWA_KEY_FILE ? strrchr(field, '/') : NULL;
    return slash ? strdup(slash + 1) : fwa_key_text(key, base);
}

// Adds the hash of the keys of a table; false without memory.
static bool add_hash(uint64_t *hash, const fwa_key *table, const void *base, const char *name) {
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    if (!out) return false;
    fprintf(out, "%s\n", name);
    bool good = true;
    for (const fwa_key *key = table; key->path && good; key++) {
        if (key->resume == FWA_KEY_FREE) continue;
        char *value = value_text(key, base);
        good = value && fprintf(out, "%s: %s\n", key->path, value) > 0;
        free(value);
    }
    good = fwa_stream_end(out, &text) && good;
    if (good) *hash += XXH3_64bits(text, bytes);
    free(text);
    return good;
}

// Entries of model.mixer are summed: their order means nothing.
uint64_t fwa_config_hash(const fwa_config *config) {
    uint64_t hash = 0;
    bool good = add_hash(&hash, fwa_keys, config, "");
    for (int i = 0; i < config->model.mixer_count; i++)
        good = good && add_hash(&hash, fwa_mixer_keys, &config->model.mixer[i], config->model.mixer[i].name);
    return good ? hash : 0;
}

static bool may_grow(const fwa_key *key, const void *old_base, const void *new_base) {
    if (key->resume != FWA_KEY_GROWS) return false;
    const int64_t *was = (const void *)((const char *)old_base + key->offset);
    const int64_t *is = (const void *)((const char *)new_base + key->offset);
    return *is > *was;
}

static fwa_status compare_keys(const fwa_key *table, const char *prefix, const void *old_base, const void *new_base,
                               FILE *out) {
    for (const fwa_key *key = table; key->path; key++) {
        if (key->resume == FWA_KEY_FREE || may_grow(key, old_base, new_base)) continue;
        char *was = value_text(key, old_base), *is = value_text(key, new_base);
        bool good = was && is;
        if (good && strcmp(was, is) != 0) fprintf(out, "%s%s: %s -> %s\n", prefix, key->path, was, is);
        free(was);
        free(is);
        FWA_CHECK(good, FWA_MEMORY, "no memory to compare configurations");
    }
    return FWA_OK;
}

static const fwa_mixer_config *mixer_of(const fwa_config *config, const char *name) {
    for (int i = 0; i < config->model.mixer_count; i++)
        if (!strcmp(config->model.mixer[i].name, name)) return &config->model.mixer[i];
    return NULL;
}

static fwa_status compare(const fwa_config *old_config, const fwa_config *new_config, FILE *out) {
    FWA_TRY(compare_keys(fwa_keys, "", old_config, new_config, out));
    for (int i = 0; i < old_config->model.mixer_count; i++) {
        const fwa_mixer_config *was = &old_config->model.mixer[i], *is = mixer_of(new_config, was->name);
        char prefix[64];
        snprintf(prefix, sizeof prefix, "model.mixer.%s.", was->name);
        if (is)
            FWA_TRY(compare_keys(fwa_mixer_keys, prefix, was, is, out));
        else
            fprintf(out, "model.mixer.%s: present -> absent\n", was->name);
    }
    for (int i = 0; i < new_config->model.mixer_count; i++)
        if (!mixer_of(old_config, new_config->model.mixer[i].name))
            fprintf(out, "model.mixer.%s: absent -> present\n", new_config->model.mixer[i].name);
    return FWA_OK;
}

fwa_status fwa_config_compare(const fwa_config *old_config, const fwa_config *new_config, char **lines) {
    size_t bytes = 0;
    *lines = NULL;
    FILE *out = open_memstream(lines, &bytes);
    FWA_CHECK(out, FWA_MEMORY, "no memory to compare configurations");
    fwa_status status = compare(old_config, new_config, out);
    if (!fwa_stream_end(out, lines) && status == FWA_OK)
        status = fwa_error_raise(FWA_MEMORY, __FILE__, __LINE__, __func__, "no memory to compare configurations");
    if (status == FWA_OK) return FWA_OK;
    free(*lines);
    *lines = NULL;
    return fwa_error_pass(status, __FILE__, __LINE__, __func__);
}

static bool differs_from_default(const fwa_key *key, const void *base, void *fresh) {
    if (!key->standard || fwa_key_set_default(key, fresh) != FWA_OK) return true;
    char *was = value_text(key, fresh), *is = value_text(key, base);
    bool differs = !was || !is || strcmp(was, is) != 0;
    free(was);
    free(is);
    return differs;
}

bool fwa_config_changed(const fwa_config *config, const char *key) {
    static const char mixers[] = "model.mixer.";
    const char *field = strrchr(key, '.');
    if (!strncmp(key, mixers, sizeof mixers - 1) && field > key + sizeof mixers - 1) {
        char name[sizeof config->model.mixer->name] = "";
        size_t length = (size_t)(field - key) - (sizeof mixers - 1);
        fwa_mixer_config fresh;
        memset(&fresh, 0, sizeof fresh);
        if (length < sizeof name) memcpy(name, key + sizeof mixers - 1, length);
        const fwa_mixer_config *mixer = mixer_of(config, name);
        const fwa_key *found = fwa_key_find(fwa_mixer_keys, field + 1);
        return mixer && found && differs_from_default(found, mixer, &fresh);
    }
    fwa_config *fresh = calloc(1, sizeof *fresh);
    const fwa_key *found = fwa_key_find(fwa_keys, key);
    bool changed = fresh && found && differs_from_default(found, config, fresh);
    free(fresh);
    return changed;
}
