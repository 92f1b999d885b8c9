// The sections of a sweep file, checked one by one.
#include "io/sweep.h"

#include <limits.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "io/files.h"
#include "io/sweep_builder.h"

const char *fwa_sweep_keep(fwa_sweep_builder *b, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(NULL, 0, format, arguments);
    va_end(arguments);
    struct fwa_sweep_text *kept = length < 0 ? NULL : malloc(sizeof *kept + (size_t)length + 1);
    if (!kept) {
        b->out_of_memory = true;
        return "";
    }
    va_start(arguments, format);
    vsnprintf(kept->text, (size_t)length + 1, format, arguments);
    va_end(arguments);
    kept->next = b->sweep->text;
    b->sweep->text = kept;
    return kept->text;
}

void fwa_sweep_problem(fwa_sweep_builder *b, const fwa_yaml *node, const char *format, ...) {
    char place[PATH_MAX + 32];
    va_list arguments;
    fwa_yaml_place(node, place, sizeof place);
    fprintf(b->problems, "%s%s: ", b->problem_count++ ? "\n" : "", place);
    va_start(arguments, format);
    vfprintf(b->problems, format, arguments);
    va_end(arguments);
}

int fwa_sweep_column(const fwa_sweep_builder *b, const char *key) {
    for (int i = 0; i < b->column_count; i++)
        if (!strcmp(b->axes[i].key, key)) return i;
    return -1;
}

// Plain where a setting's reader takes it as it stands, in quotes otherwise; `nested`: inside a list.
static bool print_scalar(const fwa_yaml *node, bool nested, FILE *out) {
    if (node->kind != FWA_YAML_SCALAR || fwa_yaml_is_null(node)) return false;
    const char *text = node->text;
    bool quote = node->quoted || strchr("[{\"", text[0]) || (nested && strpbrk(text, ",[]{}:#'\""));
    if (quote) fputc('"', out);
    for (; *text; text++) {
        if (quote && (*text == '"' || *text == '\\')) fputc('\\', out);
        if (quote && *text == '\n')
            fputs("\\n", out);
        else
            fputc(*text, out);
    }
    if (quote) fputc('"', out);
    return true;
}

static bool print_value(const fwa_yaml *node, FILE *out) {
    if (node->kind != FWA_YAML_LIST) return print_scalar(node, false, out);
    fputc('[', out);
    for (const fwa_yaml *c = node->child; c; c = c->next) {
        if (!print_scalar(c, true, out)) return false;
        if (c->next) fputs(", ", out);
    }
    fputc(']', out);
    return true;
}

const char *fwa_sweep_value(fwa_sweep_builder *b, const fwa_yaml *node) {
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    if (!out) {
        b->out_of_memory = true;
        return "";
    }
    bool good = print_value(node, out);
    b->out_of_memory |= !fwa_stream_end(out, &text);
    const char *kept = good && text ? fwa_sweep_keep(b, "%s", text) : NULL;
    free(text);
    return kept;
}

// Keys that stand twice in a mapping, in `node` and below it.
static void check_duplicates(fwa_sweep_builder *b, const fwa_yaml *node) {
    for (const fwa_yaml *c = node->child; c; c = c->next) {
        check_duplicates(b, c);
        if (node->kind != FWA_YAML_MAP) continue;
        for (const fwa_yaml *d = node->child; d != c; d = d->next) {
            if (strcmp(c->key, d->key) != 0) continue;
            fwa_sweep_problem(b, c, "%s: given twice; the first stands in line %d", c->key, d->line);
            break;
        }
    }
}

static bool reserved(const char *key) {
    return !strcmp(key, "run") || !strcmp(key, "run.name") || !strcmp(key, "run.dir");
}

// One "key.path: value" of the file.
static bool check_setting(fwa_sweep_builder *b, const fwa_yaml *node) {
    if (reserved(node->key)) {
        fwa_sweep_problem(b, node, "%s: the sweep itself names the run folders; set run.dir on the command line",
                          node->key);
        return false;
    }
    if (!fwa_sweep_value(b, node)) {
        fwa_sweep_problem(b, node,
                          "%s: expected a value or a list of values, with the whole key as in "
                          "model.mixer.rule: falcon1",
                          node->key);
        return false;
    }
    return true;
}

static bool check_settings(fwa_sweep_builder *b, const fwa_yaml *map, const char *what) {
    if (map->kind != FWA_YAML_MAP) {
        fwa_sweep_problem(b, map, "%s: expected a mapping key.path: value", what);
        return false;
    }
    bool good = true;
    for (const fwa_yaml *c = map->child; c; c = c->next) good = check_setting(b, c) && good;
    return good;
}

static void read_set(fwa_sweep_builder *b, const fwa_yaml *set) {
    if (fwa_yaml_is_null(set) || !check_settings(b, set, "set")) return;
    int count = 0;
    for (const fwa_yaml *c = set->child; c; c = c->next) count++;
    b->sweep->common = calloc((size_t)count + 1, sizeof *b->sweep->common);
    if (!b->sweep->common) {
        b->out_of_memory = true;
        return;
    }
    for (const fwa_yaml *c = set->child; c; c = c->next)
        b->sweep->common[b->sweep->common_count++] =
            (fwa_setting){fwa_sweep_keep(b, "%s=%s", c->key, fwa_sweep_value(b, c)), b->sweep->path, c->line};
}

static bool choice_is_new(fwa_sweep_builder *b, const fwa_sweep_axis *axis, const char *value, const fwa_yaml *node) {
    for (int i = 0; i < axis->count; i++)
        if (!strcmp(axis->choices[i].value, value)) {
            fwa_sweep_problem(b, node, "%s: %s stands twice in the list", axis->key, value);
            return false;
        }
    return true;
}

// A value of an axis: an element of a list, or a mapping under its name.
static void read_choice(fwa_sweep_builder *b, fwa_sweep_axis *axis, const fwa_yaml *node) {
    const char *value = axis->word ? node->key : fwa_sweep_value(b, node);
    if (!value) {
        fwa_sweep_problem(b, node, "%s: expected a value or a list of values", axis->key);
        return;
    }
    if (axis->word && !check_settings(b, node, node->key)) return;
    if (!axis->word && !choice_is_new(b, axis, value, node)) return;
    axis->choices[axis->count++] = (fwa_sweep_choice){value, node};
}

static void read_axis(fwa_sweep_builder *b, const fwa_yaml *node) {
    bool word = !strchr(node->key, '.');
    if (reserved(node->key)) {
        check_setting(b, node);
        return;
    }
    if (node->kind != (word ? FWA_YAML_MAP : FWA_YAML_LIST) || !node->child) {
        fwa_sweep_problem(b, node,
                          word ? "axes.%s: expected a mapping of names, each with its settings; a key of the "
                                 "configuration is written in full, as in model.mixer.rule"
                               : "axes.%s: expected a list of values, such as [a, b]",
                          node->key);
        return;
    }
    if (b->axis_count == FWA_SWEEP_AXES) {
        fwa_sweep_problem(b, node, "axes: more than %d", FWA_SWEEP_AXES);
        return;
    }
    int count = 0;
    for (const fwa_yaml *c = node->child; c; c = c->next) count++;
    fwa_sweep_axis *axis = &b->axes[b->axis_count];
    *axis = (fwa_sweep_axis){node->key, word, calloc((size_t)count, sizeof *axis->choices), 0};
    if (!axis->choices) {
        b->out_of_memory = true;
        return;
    }
    b->column_count = ++b->axis_count;
    for (const fwa_yaml *c = node->child; c; c = c->next) read_choice(b, axis, c);
}

static void read_axes(fwa_sweep_builder *b, const fwa_yaml *axes) {
    if (fwa_yaml_is_null(axes)) return;
    if (axes->kind != FWA_YAML_MAP) {
        fwa_sweep_problem(b, axes, "axes: expected a mapping of keys, each with a list of values");
        return;
    }
    for (const fwa_yaml *c = axes->child; c; c = c->next) read_axis(b, c);
}

static bool is_list(fwa_sweep_builder *b, const fwa_yaml *list, const char *expected) {
    if (fwa_yaml_is_null(list)) return false;
    if (list->kind == FWA_YAML_LIST) return true;
    fwa_sweep_problem(b, list, "%s: expected %s", list->key, expected);
    return false;
}

static bool whole_number(const char *text) {
    return *text && strlen(text) <= 18 && !text[strspn(text, "0123456789")];
}

static void read_seeds(fwa_sweep_builder *b, const fwa_yaml *seeds) {
    if (!is_list(b, seeds, "a list of whole numbers, such as [0, 1, 2]")) return;
    for (const fwa_yaml *c = seeds->child; c; c = c->next) {
        if (c->kind != FWA_YAML_SCALAR || c->quoted || !whole_number(c->text)) {
            fwa_sweep_problem(b, c, "seeds: expected whole numbers from 0");
            return;
        }
        for (const fwa_yaml *d = seeds->child; d != c; d = d->next)
            if (strtoll(c->text, NULL, 10) == strtoll(d->text, NULL, 10))
                fwa_sweep_problem(b, c, "seeds: %s stands twice in the list", c->text);
    }
    if (seeds->child) b->seeds = seeds;
    if (seeds->child && fwa_sweep_column(b, "run.seed") >= 0)
        fwa_sweep_problem(b, seeds, "seeds: run.seed is an axis as well; keep one of them");
}

// Lists of points: `exclude` and `include`.
static const fwa_yaml *read_points(fwa_sweep_builder *b, const fwa_yaml *list) {
    if (!is_list(b, list, "a list of mappings, such as [{model.mixer.rule: falcon1}]")) return NULL;
    for (const fwa_yaml *c = list->child; c; c = c->next)
        if (c->kind != FWA_YAML_MAP || !c->child)
            fwa_sweep_problem(b, c, "%s: expected a mapping key.path: value", list->key);
    return list;
}

static void read_base(fwa_sweep_builder *b, const fwa_yaml *base) {
    if (!base || base->kind != FWA_YAML_SCALAR || fwa_yaml_is_null(base) || !base->text[0]) {
        fwa_sweep_problem(b, base ? base : b->tree,
                          "base: expected the path of a configuration, relative to this file");
        return;
    }
    const char *path = b->sweep->path, *slash = base->text[0] == '/' ? NULL : strrchr(path, '/');
    b->sweep->base = fwa_sweep_keep(b, "%.*s%s", slash ? (int)(slash - path) + 1 : 0, path, base->text);
    if (!fwa_path_exists(b->sweep->base)) fwa_sweep_problem(b, base, "base: there is no file %s", b->sweep->base);
}

static void read_name(fwa_sweep_builder *b, const fwa_yaml *node) {
    const char *path = b->sweep->path, *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    const char *dot = strrchr(name, '.');
    size_t length = dot && dot > name ? (size_t)(dot - name) : strlen(name);
    if (node && node->kind == FWA_YAML_SCALAR && !fwa_yaml_is_null(node)) {
        name = node->text;
        length = strlen(name);
    } else if (node) {
        length = 0;
    }
    static const char good[] = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_.+-";
    if (length == 0 || length > 100 || strspn(name, good) < length || name[0] == '.')
        fwa_sweep_problem(b, node ? node : b->tree,
                          "name: expected 1 to 100 letters, digits and _ + - . for a folder's name");
    b->sweep->name = fwa_sweep_keep(b, "%.*s", (int)length, name);
}

static void check_sections(fwa_sweep_builder *b) {
    static const char *const known[] = {"base", "name", "set", "axes", "exclude", "include", "seeds", NULL};
    for (const fwa_yaml *c = b->tree->child; c; c = c->next) {
        int i = 0;
        while (known[i] && strcmp(known[i], c->key) != 0) i++;
        if (!known[i])
            fwa_sweep_problem(b, c,
                              "%s: unknown; a sweep has base, name, set, axes, exclude, include and seeds "
                              "(settings of every point stand under set)",
                              c->key);
    }
}

static void read_sections(fwa_sweep_builder *b) {
    const fwa_yaml *node;
    check_duplicates(b, b->tree);
    check_sections(b);
    read_name(b, fwa_yaml_child(b->tree, "name"));
    read_base(b, fwa_yaml_child(b->tree, "base"));
    if ((node = fwa_yaml_child(b->tree, "set"))) read_set(b, node);
    if ((node = fwa_yaml_child(b->tree, "axes"))) read_axes(b, node);
    if ((node = fwa_yaml_child(b->tree, "seeds"))) read_seeds(b, node);
    if ((node = fwa_yaml_child(b->tree, "exclude"))) b->exclude = read_points(b, node);
    if ((node = fwa_yaml_child(b->tree, "include"))) b->include = read_points(b, node);
    if (!b->problem_count && !b->out_of_memory) fwa_sweep_expand(b);
}

// Every problem as one error.
static fwa_status finish(fwa_sweep_builder *b, char **lines) {
    bool good = fwa_stream_end(b->problems, lines);
    FWA_CHECK(good && !b->out_of_memory, FWA_MEMORY, "no memory for the sweep %s", b->sweep->path);
    FWA_CHECK(!b->problem_count, FWA_CONFIG, "%s", *lines);
    return FWA_OK;
}

static fwa_status build(fwa_sweep *sweep, fwa_yaml *tree) {
    FWA_CHECK(tree->kind == FWA_YAML_MAP, FWA_CONFIG, "%s:%d: expected a mapping with base: and axes:", sweep->path,
              tree->line);
    char *lines = NULL;
    size_t bytes = 0;
    fwa_sweep_builder *b = calloc(1, sizeof *b);
    if (b) b->problems = open_memstream(&lines, &bytes);
    if (!b || !b->problems) {
        free(b);
        FWA_FAIL(FWA_MEMORY, "no memory for the sweep %s", sweep->path);
    }
    b->sweep = sweep;
    b->tree = tree;
    read_sections(b);
    fwa_status status = finish(b, &lines);
    for (int i = 0; i < b->axis_count; i++) free(b->axes[i].choices);
    free(lines);
    free(b);
    return status;
}

fwa_status fwa_sweep_load(fwa_sweep **out, const char *path) {
    fwa_yaml *tree = NULL;
    *out = NULL;
    fwa_status status = fwa_yaml_read(&tree, path);
    FWA_CHECK(status != FWA_IO, FWA_CONFIG, "%s", fwa_error_message());
    FWA_TRY(status);
    fwa_sweep *sweep = calloc(1, sizeof *sweep);
    status = FWA_MEMORY;
    if (sweep) sweep->path = strdup(path);
    if (sweep && sweep->path)
        status = build(sweep, tree);
    else
        fwa_error_raise(FWA_MEMORY, __FILE__, __LINE__, __func__, "no memory for the sweep %s", path);
    fwa_yaml_destroy(tree);
    if (status != FWA_OK) {
        fwa_sweep_destroy(sweep);
        return fwa_error_pass(status, __FILE__, __LINE__, __func__);
    }
    *out = sweep;
    return FWA_OK;
}

void fwa_sweep_destroy(fwa_sweep *sweep) {
    if (!sweep) return;
    for (int i = 0; i < sweep->count; i++) {
        free(sweep->points[i].value);
        free(sweep->points[i].settings);
    }
    free(sweep->points);
    free(sweep->column);
    free(sweep->common);
    free(sweep->path);
    while (sweep->text) {
        struct fwa_sweep_text *next = sweep->text->next;
        free(sweep->text);
        sweep->text = next;
    }
    free(sweep);
}
