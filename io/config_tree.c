// Files with their bases, and the overrides of the command line, become one tree.
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "io/config_schema.h"

#define MAX_BASES 32 // between a file and its last base

static char command_line[] = "command line";

// The files that are being read, innermost first.
typedef struct chain {
    char real[PATH_MAX];
    const struct chain *up;
} chain;

// Keys that stand twice in one mapping: told once each, and the later ones dropped.
static void drop_duplicates(fwa_config *config, fwa_yaml *map, const char *prefix) {
    char path[FWA_KEY_PATH_MAX];
    if (map->kind != FWA_YAML_MAP) return;
    for (fwa_yaml *c = map->child; c; c = c->next) {
        snprintf(path, sizeof path, "%s%s%s", prefix, *prefix ? "." : "", c->key);
        for (fwa_yaml *d = c->next, *next; d; d = next) {
            next = d->next;
            if (strcmp(d->key, c->key) != 0) continue;
            if (c->line)
                fwa_config_problem_at(config, d, path, "given twice; the first stands in line %d", c->line);
            else
                fwa_config_problem_at(config, d, path, "given twice");
            fwa_yaml_detach(map, d);
            fwa_yaml_destroy(d);
        }
        drop_duplicates(config, c, path);
    }
}

// A parsed document as a map.
static fwa_status as_map(fwa_config *config, fwa_yaml **document) {
    fwa_yaml *root = *document;
    if (root->kind != FWA_YAML_MAP) {
        FWA_CHECK(fwa_yaml_is_null(root), FWA_FORMAT,
                  "%s:%d: expected a mapping of sections such as model: and train:", root->file, root->line);
        FWA_TRY(fwa_yaml_create(document, FWA_YAML_MAP, NULL, NULL, root->file, 1));
        fwa_yaml_destroy(root);
    }
    drop_duplicates(config, *document, "");
    return FWA_OK;
}

static fwa_status read_chain(fwa_config *config, const char *path, const chain *up, fwa_yaml **out);

// Puts the file that `node` names under `*root`.
static fwa_status read_base(fwa_config *config, const fwa_yaml *node, const char *path, const chain *up,
                            fwa_yaml **root) {
    char base[PATH_MAX];
    fwa_yaml *tree = NULL;
    const char *slash = node->kind == FWA_YAML_SCALAR && node->text[0] != '/' ? strrchr(path, '/') : NULL;
    bool named = node->kind == FWA_YAML_SCALAR && !fwa_yaml_is_null(node) && node->text[0];
    config->origin->incomplete |= !named;
    if (!named) {
        fwa_config_problem_at(config, node, "base", "expected the path of a file, relative to this one");
        return FWA_OK;
    }
    snprintf(base, sizeof base, "%.*s%s", slash ? (int)(slash - path) + 1 : 0, path, node->text);
    fwa_status status = read_chain(config, base, up, &tree);
    if (status == FWA_IO || status == FWA_FORMAT || status == FWA_CONFIG) {
        fwa_config_problem_at(config, node, "base", "%s", fwa_error_message());
        fwa_error_clear();
        config->origin->incomplete = true;
        return FWA_OK;
    }
    FWA_TRY(status);
    fwa_yaml_merge(tree, *root);
    *root = tree;
    return FWA_OK;
}

// The tree of a file over those of its bases.
static fwa_status read_chain(fwa_config *config, const char *path, const chain *up, fwa_yaml **out) {
    chain here = {.up = up};
    fwa_status status = FWA_OK;
    if (!realpath(path, here.real)) snprintf(here.real, sizeof here.real, "%s", path);
    int bases = 0;
    for (const chain *c = up; c; c = c->up, bases++)
        FWA_CHECK(strcmp(c->real, here.real), FWA_FORMAT, "%s is its own base", path);
    FWA_CHECK(bases <= MAX_BASES, FWA_FORMAT, "%s: more than %d bases, one of the other", path, MAX_BASES);
    fwa_yaml *root = NULL;
    FWA_TRY(fwa_yaml_read(&root, path));
    FWA_TRY_GOTO(as_map(config, &root), fail);
    fwa_yaml *base = fwa_yaml_child(root, "base");
    if (base) {
        fwa_yaml_detach(root, base);
        status = read_base(config, base, path, &here, &root);
        fwa_yaml_destroy(base);
        FWA_TRY_GOTO(status, fail);
    }
    *out = root;
    return FWA_OK;
fail:
    fwa_yaml_destroy(root);
    return status;
}

fwa_status fwa_config_tree_from_file(fwa_config *config, const char *path) {
    fwa_status status = read_chain(config, path, NULL, &config->origin->tree);
    if (status == FWA_IO) status = fwa_error_raise(FWA_CONFIG, __FILE__, __LINE__, __func__, "%s", fwa_error_message());
    FWA_TRY(status);
    return FWA_OK;
}

fwa_status fwa_config_tree_from_text(fwa_config *config, const char *text, const char *name) {
    FWA_TRY(fwa_yaml_parse(&config->origin->tree, text, name));
    FWA_TRY(as_map(config, &config->origin->tree));
    return FWA_OK;
}

// All of a value stands where the setting does.
static fwa_status move_to(fwa_yaml *node, const fwa_yaml *here) {
    for (; node; node = node->next) {
        char *file = strdup(here->file);
        FWA_CHECK(file, FWA_MEMORY, "no memory for a node of %s", here->file);
        free(node->file);
        node->file = file;
        node->line = here->line;
        FWA_TRY(move_to(node->child, here));
    }
    return FWA_OK;
}

// The value of an override: lists, mappings and what begins with a double quote are YAML, all else is taken as it
// stands.
static fwa_status override_value(const fwa_yaml *here, const char *key, const char *value, fwa_yaml **out) {
    if (*value != '[' && *value != '{' && *value != '"')
        return fwa_yaml_create(out, FWA_YAML_SCALAR, key, value, here->file, here->line);
    FWA_TRY(fwa_yaml_parse(out, value, here->file));
    FWA_TRY(move_to(*out, here));
    (*out)->key = strdup(key);
    FWA_CHECK((*out)->key, FWA_MEMORY, "no memory for %s", key);
    return FWA_OK;
}

// "a.b.c" and a value as a tree: a: {b: {c: value}}.
static fwa_status override_tree(const fwa_yaml *here, const char *path, const char *value, fwa_yaml **root) {
    FWA_TRY(fwa_yaml_create(root, FWA_YAML_MAP, NULL, NULL, here->file, 0));
    for (fwa_yaml *at = *root;; at = at->child) {
        char name[FWA_KEY_PATH_MAX];
        size_t length = strcspn(path, ".");
        snprintf(name, sizeof name, "%.*s", (int)length, path);
        if (!path[length]) return override_value(here, name, value, &at->child);
        FWA_TRY(fwa_yaml_create(&at->child, FWA_YAML_MAP, name, NULL, here->file, 0));
        path += length + 1;
    }
}

static fwa_status put(fwa_config *config, const fwa_yaml *here, const char *path, const char *value) {
    fwa_yaml *tree = NULL;
    fwa_status status = override_tree(here, path, value, &tree);
    if (status == FWA_OK) {
        drop_duplicates(config, tree, "");
        fwa_yaml_merge(config->origin->tree, tree);
        return FWA_OK;
    }
    fwa_yaml_destroy(tree);
    if (status != FWA_FORMAT) return fwa_error_pass(status, __FILE__, __LINE__, __func__);
    fwa_config_problem_at(config, here, path, "%s", fwa_error_message());
    fwa_error_clear();
    return FWA_OK;
}

// One setting in every entry of model.mixer, or in `main` where there is none.
static fwa_status put_every(fwa_config *config, const fwa_yaml *here, const fwa_yaml *entries, const char *setting,
                            const char *value) {
    char path[3 * FWA_KEY_PATH_MAX];
    const fwa_yaml *next = entries ? entries->child : NULL;
    snprintf(path, sizeof path, "model.mixer.main.%s", setting);
    if (!next) return put(config, here, path, value);
    while (next) {
        const fwa_yaml *entry = next;
        next = entry->next; // put may replace the entry
        snprintf(path, sizeof path, "model.mixer.%.159s.%s", entry->key, setting);
        FWA_TRY(put(config, here, path, value));
    }
    return FWA_OK;
}

// `rest` is what follows "model.mixer.": a setting for every entry, entry.setting, or an entry with its settings.
static fwa_status put_mixer(fwa_config *config, const fwa_yaml *here, const char *path, const char *rest,
                            const char *value) {
    char text[FWA_KEY_PATH_MAX];
    const fwa_yaml *entries = fwa_yaml_find(config->origin->tree, "model.mixer");
    size_t length = strcspn(rest, ".");
    bool dotted = rest[length] == '.';
    if (!dotted && fwa_key_find(fwa_mixer_keys, rest)) return put_every(config, here, entries, rest, value);
    if (!dotted && *value == '{') return put(config, here, path, value);
    if (!dotted) {
        fwa_key_nearest(path, text);
        fwa_config_problem_at(config, here, path, "unknown key; the nearest is %s", text);
        return FWA_OK;
    }
    snprintf(text, sizeof text, "%.*s", (int)length, rest);
    bool none = !entries || !entries->child;
    if (none ? !strcmp(text, "main") : fwa_yaml_child(entries, text) != NULL) return put(config, here, path, value);
    fwa_config_problem_at(config, here, path, "model.mixer has no entry %s; model.mixer.%s=... sets it in every entry",
                          text, rest + length + 1);
    return FWA_OK;
}

fwa_status fwa_config_tree_override(fwa_config *config, const fwa_setting *setting) {
    static const char mixer[] = "model.mixer.";
    const char *text = setting->text;
    const fwa_yaml place = {.file = setting->file ? (char *)setting->file : command_line, .line = setting->line};
    const fwa_yaml *here = &place;
    char path[FWA_KEY_PATH_MAX];
    size_t length = strcspn(text, "=");
    snprintf(path, sizeof path, "%.*s", (int)length, text);
    if (!length || !text[length] || length >= sizeof path) {
        fwa_config_problem_at(config, here, path, "got \"%s\", expected key.path=value", text);
        return FWA_OK;
    }
    const char *value = text + length + 1;
    const fwa_yaml *old = fwa_yaml_find(config->origin->tree, path);
    if (old && old->kind == FWA_YAML_MAP && *value != '{') {
        fwa_config_problem_at(config, here, path, "holds further keys; set one of them");
        return FWA_OK;
    }
    if (!strncmp(path, mixer, strlen(mixer))) return put_mixer(config, here, path, path + strlen(mixer), value);
    return put(config, here, path, value);
}
