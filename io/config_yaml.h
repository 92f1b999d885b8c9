// YAML as a tree of maps, lists and scalars that remember where they stand. Not collective.
//
// The part of YAML that people write by hand: block and flow style, comments, quotes. Anchors, aliases and several
// documents in one file are refused. Text is kept as written; what it means is decided by who reads it. A tree owns
// everything in it.
#ifndef FWA_IO_CONFIG_YAML_H
#define FWA_IO_CONFIG_YAML_H

#include <stdbool.h>

#include "core/status.h"
#include "core/types.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum fwa_yaml_kind { FWA_YAML_SCALAR, FWA_YAML_LIST, FWA_YAML_MAP } fwa_yaml_kind;

typedef struct fwa_yaml {
    fwa_yaml_kind kind;
    char *key;   // in a map; NULL elsewhere
    char *text;  // of a scalar; NULL elsewhere
    bool quoted; // the scalar stood in quotes: it is text whatever it looks like
    char *file;  // name of the source, for messages
    int line;    // from 1; 0: the source has no lines (command line)
    struct fwa_yaml *child, *next;
} fwa_yaml;

// Parses one document; an empty one gives a null scalar. FWA_FORMAT with file, line and column where it is not YAML.
FWA_MUST_CHECK fwa_status fwa_yaml_parse(fwa_yaml **out, const char *text, const char *file);
// Reads and parses a file; FWA_IO where it cannot be read.
FWA_MUST_CHECK fwa_status fwa_yaml_read(fwa_yaml **out, const char *path);
// A node of one's own; key and text are copied, either may be NULL.
FWA_MUST_CHECK fwa_status fwa_yaml_create(fwa_yaml **out, fwa_yaml_kind kind, const char *key, const char *text,
                                          const char *file, int line);
void fwa_yaml_destroy(fwa_yaml *node);

bool fwa_yaml_is_null(const fwa_yaml *node);                              // nothing, ~ or null, not in quotes
fwa_yaml *fwa_yaml_child(const fwa_yaml *map, const char *key);           // NULL: no such key, or not a map
fwa_yaml *fwa_yaml_find(const fwa_yaml *root, const char *path);          // "a.b.c"; NULL: none
const fwa_yaml *fwa_yaml_deepest(const fwa_yaml *root, const char *path); // the node, or the closest one around it
void fwa_yaml_detach(fwa_yaml *map, fwa_yaml *child);                     // the caller owns the child now
// Lays `from` over `into`, both maps: deeper keys override, an empty value leaves a map as it is. Destroys `from`.
void fwa_yaml_merge(fwa_yaml *into, fwa_yaml *from);
// "file:line", or the file alone where there is no line.
void fwa_yaml_place(const fwa_yaml *node, char *text, size_t bytes);

#ifdef __cplusplus
}
#endif
#endif
