// The schema table, and what the files of the configuration share: values, problems, places. Private to io/config*.c.
#ifndef FWA_IO_CONFIG_SCHEMA_H
#define FWA_IO_CONFIG_SCHEMA_H

#include <stdbool.h>
#include <stdio.h>

#include "core/status.h"
#include "core/types.h"
#include "io/config.h"
#include "io/config_yaml.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum fwa_key_kind {
    FWA_KEY_TEXT, // char[size]
    FWA_KEY_INT,  // int64_t; auto is 0
    FWA_KEY_REAL, // double; auto is -1
    FWA_KEY_BOOL, // bool
    FWA_KEY_ENUM, // int: index into the names of `allowed`
    FWA_KEY_PAIR, // two doubles in a row
    FWA_KEY_NAMES // model.mixers and model.mixers_count
} fwa_key_kind;

// What a resumed run may change.
typedef enum fwa_key_resume {
    FWA_KEY_SAME,  // nothing: the key defines the run
    FWA_KEY_GROWS, // defines the run, but may be larger
    FWA_KEY_FILE,  // the folder in front of the last '/' may change
    FWA_KEY_FREE   // anything: not part of the hash either
} fwa_key_resume;

typedef struct fwa_key {
    const char *path; // "train.steps"; of a mixer's settings the bare name, "rule"
    fwa_key_kind kind;
    fwa_key_resume resume;
    size_t offset, size;  // in fwa_config or fwa_mixer_config
    const char *standard; // default, as YAML; NULL: the key is required
    const char *allowed;  // interval "[1, inf)", "auto or [1, inf)", or names "a|b|c"; of text: "or empty", else ""
    const char *meaning;
} fwa_key;

typedef struct fwa_section {
    const char *name, *meaning;
} fwa_section;

extern const fwa_key fwa_keys[];         // schema order
extern const fwa_key fwa_mixer_keys[];   // settings of one entry of model.mixer
extern const fwa_section fwa_sections[]; // all three end with a NULL name

#define FWA_KEY_PATH_MAX 160

const fwa_key *fwa_key_find(const fwa_key *table, const char *path); // NULL: none
bool fwa_key_in_section(const fwa_key *key, const char *section);
// The known key nearest to `path` by edit distance, into `nearest`.
void fwa_key_nearest(const char *path, char nearest[FWA_KEY_PATH_MAX]);
// Name number `index` of the names "a|b|c"; false past the last.
bool fwa_key_name(const char *names, int index, char name[32]);

// Reads `node` into the key's field of `base` (fwa_config or fwa_mixer_config). False: the field is unchanged and
// `message` says what was got and what was expected.
bool fwa_key_set(const fwa_key *key, void *base, const fwa_yaml *node, char message[512]);
FWA_MUST_CHECK fwa_status fwa_key_set_default(const fwa_key *key, void *base); // nothing for a required key
void fwa_key_print(const fwa_key *key, const void *base, FILE *out);           // the value as YAML
char *fwa_key_text(const fwa_key *key, const void *base); // that; the caller frees. NULL: no memory
void fwa_key_expected(const fwa_key *key, const char *quote,
                      FILE *out); // "an integer in [1, inf)"; names between `quote`s

typedef struct fwa_problem {
    char *key, *text; // text is the whole line
    struct fwa_problem *next;
} fwa_problem;

struct fwa_config_origin {
    fwa_yaml *tree;        // bases, file and overrides, merged
    fwa_problem *problems; // in the order they were found
    bool incomplete;       // a base could not be read: what is missing may stand there
    bool out_of_memory;    // a problem could not be stored
};

// Adds a problem that stands at `node`.
void fwa_config_problem_at(fwa_config *config, const fwa_yaml *node, const char *key, const char *format, ...)
    FWA_PRINTF(4, 5);
bool fwa_config_has_problem(const fwa_config *config, const char *key);
// Fill origin->tree: a file over its bases, text, and one "key.path=value" more. FWA_CONFIG where the file cannot be
// read, FWA_FORMAT where it is not a mapping in YAML.
FWA_MUST_CHECK fwa_status fwa_config_tree_from_file(fwa_config *config, const char *path);
FWA_MUST_CHECK fwa_status fwa_config_tree_from_text(fwa_config *config, const char *text, const char *name);
FWA_MUST_CHECK fwa_status fwa_config_tree_override(fwa_config *config, const fwa_setting *setting);
// Fills the configuration from origin->tree: defaults, values, unknown and missing keys, checks between keys.
FWA_MUST_CHECK fwa_status fwa_config_resolve(fwa_config *config);

#ifdef __cplusplus
}
#endif
#endif
