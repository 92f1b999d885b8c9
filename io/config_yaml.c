// libyaml's events to a tree with file and line, and the operations on such trees.
#include "io/config_yaml.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <yaml.h>

#include "io/files.h"

#define MAX_DEPTH 32
#define MAX_KEYS  16384 // of a mapping: all are compared with each other

typedef struct reader {
    yaml_parser_t parser;
    yaml_event_t event; // the current one
    const char *file;
    int depth;
} reader;

fwa_status fwa_yaml_create(fwa_yaml **out, fwa_yaml_kind kind, const char *key, const char *text, const char *file,
                           int line) {
    fwa_yaml *node = calloc(1, sizeof *node);
    FWA_CHECK(node, FWA_MEMORY, "no memory for a node of %s", file);
    node->kind = kind;
    node->line = line;
    node->file = strdup(file);
    node->key = key ? strdup(key) : NULL;
    node->text = text ? strdup(text) : NULL;
    if (!node->file || (key && !node->key) || (text && !node->text)) {
        fwa_yaml_destroy(node);
        FWA_FAIL(FWA_MEMORY, "no memory for a node of %s", file);
    }
    *out = node;
    return FWA_OK;
}

void fwa_yaml_destroy(fwa_yaml *node) {
    while (node) {
        fwa_yaml *next = node->next;
        fwa_yaml_destroy(node->child);
        free(node->key);
        free(node->text);
        free(node->file);
        free(node);
        node = next;
    }
}

static int line_of(yaml_mark_t mark) {
    return (int)mark.line + 1;
}

static fwa_status refuse(const reader *r, const char *what) {
    FWA_FAIL(FWA_FORMAT, "%s:%d:%d: %s", r->file, line_of(r->event.start_mark), (int)r->event.start_mark.column + 1,
             what);
}

static fwa_status advance(reader *r) {
    yaml_event_delete(&r->event);
    if (yaml_parser_parse(&r->parser, &r->event)) return FWA_OK;
    const yaml_parser_t *p = &r->parser;
    const char *problem = p->problem ? p->problem : "unreadable";
    FWA_CHECK(p->error != YAML_MEMORY_ERROR, FWA_MEMORY, "no memory to parse %s", r->file);
    FWA_CHECK(p->error != YAML_READER_ERROR, FWA_FORMAT, "%s: not YAML: %s at byte %zu", r->file, problem,
              p->problem_offset);
    FWA_FAIL(FWA_FORMAT, "%s:%d:%d: not YAML: %s%s%s", r->file, line_of(p->problem_mark),
             (int)p->problem_mark.column + 1, problem, p->context ? ", " : "", p->context ? p->context : "");
}

static fwa_status read_node(reader *r, const char *key, fwa_yaml **out);

// The current event is a scalar.
static fwa_status read_scalar(reader *r, const char *key, fwa_yaml **out) {
    const char *text = (const char *)r->event.data.scalar.value;
    if (strlen(text) != r->event.data.scalar.length) return refuse(r, "a zero byte inside text");
    FWA_TRY(fwa_yaml_create(out, FWA_YAML_SCALAR, key, text, r->file, line_of(r->event.start_mark)));
    (*out)->quoted = r->event.data.scalar.style != YAML_PLAIN_SCALAR_STYLE;
    return FWA_OK;
}

// Children up to the closing event; with `keyed`, each is led by a scalar that names it.
static fwa_status read_children(reader *r, bool keyed, yaml_event_type_t end, fwa_yaml **children) {
    fwa_yaml **tail = children;
    for (int count = 0;; count++) {
        char *key = NULL;
        FWA_TRY(advance(r));
        if (r->event.type == end) return FWA_OK;
        if (keyed && count == MAX_KEYS) return refuse(r, "more than 16384 keys in one mapping");
        int line = line_of(r->event.start_mark);
        if (keyed) {
            if (r->event.type != YAML_SCALAR_EVENT) return refuse(r, "a key must be plain text");
            const char *name = (const char *)r->event.data.scalar.value;
            if (strlen(name) != r->event.data.scalar.length) return refuse(r, "a zero byte inside a key");
            key = strdup(name);
            FWA_CHECK(key, FWA_MEMORY, "no memory to parse %s", r->file);
            fwa_status status = advance(r);
            if (status != FWA_OK) {
                free(key);
                return fwa_error_pass(status, __FILE__, __LINE__, __func__);
            }
        }
        fwa_status status = read_node(r, key, tail);
        free(key);
        FWA_TRY(status);
        (*tail)->line = line;
        tail = &(*tail)->next;
    }
}

// The current event starts the node.
static fwa_status read_node(reader *r, const char *key, fwa_yaml **out) {
    switch (r->event.type) {
    case YAML_SCALAR_EVENT:
        return read_scalar(r, key, out);
    case YAML_MAPPING_START_EVENT:
    case YAML_SEQUENCE_START_EVENT:
        break;
    case YAML_ALIAS_EVENT:
        return refuse(r, "aliases (*name) are not read here; text with a leading * needs quotes");
    default:
        return refuse(r, "a value was expected");
    }
    bool map = r->event.type == YAML_MAPPING_START_EVENT;
    if (++r->depth > MAX_DEPTH) return refuse(r, "nested too deeply");
    FWA_TRY(fwa_yaml_create(out, map ? FWA_YAML_MAP : FWA_YAML_LIST, key, NULL, r->file, line_of(r->event.start_mark)));
    FWA_TRY(read_children(r, map, map ? YAML_MAPPING_END_EVENT : YAML_SEQUENCE_END_EVENT, &(*out)->child));
    r->depth--;
    return FWA_OK;
}

static fwa_status read_stream(reader *r, fwa_yaml **out) {
    FWA_TRY(advance(r)); // stream start
    FWA_TRY(advance(r)); // document start, or the end of an empty stream
    if (r->event.type == YAML_STREAM_END_EVENT) return fwa_yaml_create(out, FWA_YAML_SCALAR, NULL, "", r->file, 1);
    FWA_TRY(advance(r));
    FWA_TRY(read_node(r, NULL, out));
    FWA_TRY(advance(r)); // document end
    FWA_TRY(advance(r));
    if (r->event.type != YAML_STREAM_END_EVENT) return refuse(r, "a second document; one a file");
    return FWA_OK;
}

static fwa_status parse(fwa_yaml **out, const char *text, size_t bytes, const char *file) {
    reader r = {.file = file};
    *out = NULL;
    FWA_CHECK(yaml_parser_initialize(&r.parser), FWA_MEMORY, "no memory to parse %s", file);
    yaml_parser_set_input_string(&r.parser, (const unsigned char *)text, bytes);
    fwa_status status = read_stream(&r, out);
    yaml_event_delete(&r.event);
    yaml_parser_delete(&r.parser);
    if (status == FWA_OK) return FWA_OK;
    fwa_yaml_destroy(*out);
    *out = NULL;
    return fwa_error_pass(status, __FILE__, __LINE__, __func__);
}

fwa_status fwa_yaml_parse(fwa_yaml **out, const char *text, const char *file) {
    return parse(out, text, strlen(text), file);
}

fwa_status fwa_yaml_read(fwa_yaml **out, const char *path) {
    char *text = NULL;
    size_t bytes;
    FWA_TRY(fwa_read_bytes(path, &text, &bytes));
    fwa_status status = parse(out, text, bytes, path);
    free(text);
    FWA_TRY(status);
    return FWA_OK;
}

bool fwa_yaml_is_null(const fwa_yaml *node) {
    return node->kind == FWA_YAML_SCALAR && !node->quoted &&
           (!node->text[0] || !strcmp(node->text, "~") || !strcmp(node->text, "null"));
}

static fwa_yaml *child_of(const fwa_yaml *map, const char *key, size_t length) {
    if (!map || map->kind != FWA_YAML_MAP) return NULL;
    for (fwa_yaml *c = map->child; c; c = c->next)
        if (strlen(c->key) == length && !memcmp(c->key, key, length)) return c;
    return NULL;
}

fwa_yaml *fwa_yaml_child(const fwa_yaml *map, const char *key) {
    return child_of(map, key, strlen(key));
}

// Follows `path` as far as it goes; *rest is what remains.
static const fwa_yaml *follow(const fwa_yaml *node, const char *path, const char **rest) {
    while (*path) {
        size_t length = strcspn(path, ".");
        const fwa_yaml *next = child_of(node, path, length);
        if (!next) break;
        node = next;
        path += length + (path[length] == '.');
    }
    *rest = path;
    return node;
}

fwa_yaml *fwa_yaml_find(const fwa_yaml *root, const char *path) {
    const char *rest;
    const fwa_yaml *node = follow(root, path, &rest);
    return *rest ? NULL : (fwa_yaml *)node;
}

const fwa_yaml *fwa_yaml_deepest(const fwa_yaml *root, const char *path) {
    const char *rest;
    return follow(root, path, &rest);
}

void fwa_yaml_detach(fwa_yaml *map, fwa_yaml *child) {
    fwa_yaml **link = &map->child;
    while (*link != child) link = &(*link)->next;
    *link = child->next;
    child->next = NULL;
}

// Where a child named `key` hangs, or would be appended.
static fwa_yaml **link_of(fwa_yaml *map, const char *key) {
    fwa_yaml **link = &map->child;
    while (*link && strcmp((*link)->key, key) != 0) link = &(*link)->next;
    return link;
}

static void merge_child(fwa_yaml *into, fwa_yaml *child) {
    fwa_yaml **link = link_of(into, child->key);
    fwa_yaml *old = *link;
    if (old && old->kind == FWA_YAML_MAP && (child->kind == FWA_YAML_MAP || fwa_yaml_is_null(child))) {
        fwa_yaml_merge(old, child);
        return;
    }
    if (old) {
        child->next = old->next;
        old->next = NULL;
        fwa_yaml_destroy(old);
    }
    *link = child;
}

void fwa_yaml_merge(fwa_yaml *into, fwa_yaml *from) {
    while (from->child) {
        fwa_yaml *child = from->child;
        from->child = child->next;
        child->next = NULL;
        merge_child(into, child);
    }
    if (from->line > 0) { // the place is that of the latest mention in a file
        char *file = into->file;
        into->file = from->file;
        into->line = from->line;
        from->file = file;
    }
    fwa_yaml_destroy(from);
}

void fwa_yaml_place(const fwa_yaml *node, char *text, size_t bytes) {
    if (node->line > 0)
        snprintf(text, bytes, "%s:%d", node->file, node->line);
    else
        snprintf(text, bytes, "%s", node->file);
}
