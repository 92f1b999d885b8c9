// From axes to points: the product, what `exclude` takes away and `include` adds, and each point's name.
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "io/files.h"
#include "io/sweep_builder.h"

// What one point takes of each column; NULL: nothing.
typedef struct selection {
    const fwa_sweep_choice *choice[FWA_SWEEP_AXES];
    fwa_sweep_choice own[FWA_SWEEP_AXES]; // values of `include` that no axis has
    int line;
} selection;

static const fwa_sweep_choice *find_choice(const fwa_sweep_axis *axis, const char *value) {
    for (int i = 0; i < axis->count; i++)
        if (!strcmp(axis->choices[i].value, value)) return &axis->choices[i];
    return NULL;
}

static const char *last_part(const char *key) {
    const char *dot = strrchr(key, '.');
    return dot ? dot + 1 : key;
}

// Columns are called by the last part of their key where that is clear.
static void name_columns(fwa_sweep_builder *b) {
    fwa_sweep *sweep = b->sweep;
    sweep->column_count = b->column_count;
    sweep->column = calloc((size_t)b->column_count + 1, sizeof *sweep->column);
    if (!sweep->column) {
        b->out_of_memory = true;
        return;
    }
    for (int i = 0; i < b->column_count; i++) {
        const char *name = last_part(b->axes[i].key);
        bool clear = strcmp(name, "seed") != 0;
        for (int j = 0; j < b->column_count; j++) clear = clear && (i == j || strcmp(name, last_part(b->axes[j].key)));
        sweep->column[i] = fwa_sweep_keep(b, "%s", clear ? name : b->axes[i].key);
    }
}

// For a folder's name: letters, digits, '.', '+' and '-' as they are, no blanks, quotes and brackets, '_' for the rest.
static void add_part(FILE *out, bool first, const char *name, const char *value) {
    fprintf(out, "%s%s=", first ? "" : ",", name);
    for (; *value; value++) {
        if (strchr(" \"[]", *value)) continue;
        fputc(isalnum((unsigned char)*value) || strchr(".+-", *value) ? *value : '_', out);
    }
}

static const char *point_name(fwa_sweep_builder *b, const selection *s, const char *seed) {
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    if (!out) {
        b->out_of_memory = true;
        return "";
    }
    bool first = true;
    for (int i = 0; i < b->column_count; i++) {
        if (!s->choice[i]) continue;
        add_part(out, first, b->sweep->column[i], s->choice[i]->value);
        first = false;
    }
    if (seed) add_part(out, first, "seed", seed);
    if (first && !seed) fputs("base", out);
    b->out_of_memory |= !fwa_stream_end(out, &text);
    const char *name = fwa_sweep_keep(b, "%s", text ? text : "");
    free(text);
    return name;
}

static void add_setting(fwa_sweep_builder *b, fwa_sweep_point *point, const char *key, const fwa_yaml *node) {
    const char *value = fwa_sweep_value(b, node);
    point->settings[point->setting_count++] =
        (fwa_setting){fwa_sweep_keep(b, "%s=%s", key, value ? value : ""), b->sweep->path, node->line};
}

static void fill_settings(fwa_sweep_builder *b, fwa_sweep_point *point, const selection *s) {
    int count = 1;
    for (int i = 0; i < b->column_count; i++) {
        if (!s->choice[i]) continue;
        if (!b->axes[i].word) count++;
        if (b->axes[i].word)
            for (const fwa_yaml *c = s->choice[i]->node->child; c; c = c->next) count++;
    }
    point->settings = calloc((size_t)count, sizeof *point->settings);
    point->value = calloc((size_t)b->column_count + 1, sizeof *point->value);
    if (!point->settings || !point->value) {
        b->out_of_memory = true;
        return;
    }
    for (int i = 0; i < b->column_count; i++) {
        if (!s->choice[i]) continue;
        point->value[i] = fwa_sweep_keep(b, "%s", s->choice[i]->value);
        if (!b->axes[i].word) add_setting(b, point, b->axes[i].key, s->choice[i]->node);
        if (b->axes[i].word)
            for (const fwa_yaml *c = s->choice[i]->node->child; c; c = c->next) add_setting(b, point, c->key, c);
    }
    if (point->seed)
        point->settings[point->setting_count++] =
            (fwa_setting){fwa_sweep_keep(b, "run.seed=%s", point->seed), b->sweep->path, b->seeds->line};
}

static bool grow(fwa_sweep_builder *b) {
    fwa_sweep *sweep = b->sweep;
    if (sweep->count & (sweep->count - 1)) return true; // room up to the next power of two
    size_t room = sweep->count ? 2 * (size_t)sweep->count : 1;
    fwa_sweep_point *points = realloc(sweep->points, room * sizeof *points);
    b->out_of_memory |= !points;
    if (points) sweep->points = points;
    return points != NULL;
}

// False: there are too many.
static bool add_point(fwa_sweep_builder *b, const selection *s, const char *seed) {
    fwa_sweep *sweep = b->sweep;
    if (sweep->count == FWA_SWEEP_POINTS) {
        fwa_sweep_problem(b, b->tree, "more than %d points", FWA_SWEEP_POINTS);
        return false;
    }
    if (!grow(b)) return false;
    fwa_sweep_point *point = &sweep->points[sweep->count++];
    *point = (fwa_sweep_point){.group = sweep->groups, .line = s->line};
    point->seed = seed ? fwa_sweep_keep(b, "%s", seed) : NULL;
    point->name = point_name(b, s, seed);
    fill_settings(b, point, s);
    return !b->out_of_memory;
}

static bool add_group(fwa_sweep_builder *b, const selection *s) {
    bool good = true;
    if (!b->seeds) good = add_point(b, s, NULL);
    for (const fwa_yaml *c = b->seeds ? b->seeds->child : NULL; c && good; c = c->next) good = add_point(b, s, c->text);
    b->sweep->groups++;
    return good;
}

// Whether a line of `exclude` agrees with the point in all that it says.
static bool agrees(fwa_sweep_builder *b, const fwa_yaml *line, const selection *s) {
    for (const fwa_yaml *c = line->child; c; c = c->next) {
        int column = fwa_sweep_column(b, c->key);
        const char *value = fwa_sweep_value(b, c);
        if (column < 0 || !s->choice[column] || !value || strcmp(value, s->choice[column]->value) != 0) return false;
    }
    return true;
}

static bool excluded(fwa_sweep_builder *b, const selection *s, bool *used) {
    int number = 0;
    for (const fwa_yaml *c = b->exclude ? b->exclude->child : NULL; c; c = c->next, number++) {
        if (!agrees(b, c, s)) continue;
        used[number] = true;
        return true;
    }
    return false;
}

// The next combination, the last axis fastest; false after the last one.
static bool advance(const fwa_sweep_builder *b, int *index) {
    for (int i = b->axis_count - 1; i >= 0; i--) {
        if (++index[i] < b->axes[i].count) return true;
        index[i] = 0;
    }
    return false;
}

static void add_product(fwa_sweep_builder *b, bool *used) {
    int index[FWA_SWEEP_AXES] = {0};
    const fwa_yaml *axes = fwa_yaml_child(b->tree, "axes");
    bool good = true;
    do {
        selection s;
        memset(&s, 0, sizeof s);
        s.line = axes ? axes->line : b->tree->line;
        for (int i = 0; i < b->axis_count; i++) s.choice[i] = &b->axes[i].choices[index[i]];
        if (!excluded(b, &s, used)) good = add_group(b, &s);
    } while (good && advance(b, index));
}

// What a line of `exclude` or `include` names must be there.
static void check_exclude(fwa_sweep_builder *b, const fwa_yaml *line) {
    for (const fwa_yaml *c = line->child; c; c = c->next) {
        int column = fwa_sweep_column(b, c->key);
        const char *value = fwa_sweep_value(b, c);
        if (column < 0 || column >= b->axis_count)
            fwa_sweep_problem(b, c, "exclude: %s is none of the axes", c->key);
        else if (!value || !find_choice(&b->axes[column], value))
            fwa_sweep_problem(b, c, "exclude: the axis %s has no value %s", c->key, value ? value : "of this kind");
    }
}

// The columns that only `include` uses.
static void include_columns(fwa_sweep_builder *b) {
    for (const fwa_yaml *line = b->include ? b->include->child : NULL; line; line = line->next)
        for (const fwa_yaml *c = line->child; c; c = c->next) {
            if (fwa_sweep_column(b, c->key) >= 0) continue;
            if (!strchr(c->key, '.')) {
                fwa_sweep_problem(b, c, "include: %s is neither an axis nor a whole key such as model.mixer.rule",
                                  c->key);
                continue;
            }
            if (b->column_count == FWA_SWEEP_AXES) {
                fwa_sweep_problem(b, c, "include: more than %d keys and axes", FWA_SWEEP_AXES);
                return;
            }
            b->axes[b->column_count++] = (fwa_sweep_axis){.key = c->key};
        }
}

static bool select_included(fwa_sweep_builder *b, const fwa_yaml *line, selection *s) {
    int before = b->problem_count;
    memset(s, 0, sizeof *s);
    s->line = line->line;
    for (const fwa_yaml *c = line->child; c; c = c->next) {
        int column = fwa_sweep_column(b, c->key);
        const fwa_sweep_axis *axis = &b->axes[column];
        const char *value = fwa_sweep_value(b, c);
        bool given = !strcmp(c->key, "run.seed") && b->seeds;
        if (!strcmp(c->key, "run.name") || !strcmp(c->key, "run.dir") || given) {
            fwa_sweep_problem(b, c, "include: %s is given by the sweep itself", c->key);
        } else if (!value) {
            fwa_sweep_problem(b, c, "include: %s: expected a value or a list of values", c->key);
        } else if (axis->word) {
            s->choice[column] = find_choice(axis, value);
            if (!s->choice[column]) fwa_sweep_problem(b, c, "include: the axis %s has no value %s", c->key, value);
        } else {
            s->own[column] = (fwa_sweep_choice){value, c};
            s->choice[column] = &s->own[column];
        }
    }
    return b->problem_count == before;
}

static void add_included(fwa_sweep_builder *b) {
    bool good = true;
    for (const fwa_yaml *c = b->include ? b->include->child : NULL; c && good; c = c->next) {
        selection s;
        if (select_included(b, c, &s)) good = add_group(b, &s);
    }
}

// By name, then in the order of the sweep.
static int by_name(const void *a, const void *b) {
    const fwa_sweep_point *one = *(const fwa_sweep_point *const *)a, *other = *(const fwa_sweep_point *const *)b;
    int order = strcmp(one->name, other->name);
    return order ? order : (one > other) - (one < other);
}

static void check_names(fwa_sweep_builder *b) {
    const fwa_sweep *sweep = b->sweep;
    const fwa_sweep_point **sorted = calloc((size_t)sweep->count + 1, sizeof *sorted);
    if (!sorted) {
        b->out_of_memory = true;
        return;
    }
    for (int i = 0; i < sweep->count; i++) sorted[i] = &sweep->points[i];
    qsort(sorted, (size_t)sweep->count, sizeof *sorted, by_name);
    for (int i = 0; i < sweep->count; i++) {
        const fwa_yaml here = {.file = sweep->path, .line = sorted[i]->line};
        if (strlen(sorted[i]->name) > FWA_SWEEP_NAME)
            fwa_sweep_problem(b, &here,
                              "point %.60s...: its name has %zu bytes, more than %d; name the values by a word",
                              sorted[i]->name, strlen(sorted[i]->name), FWA_SWEEP_NAME);
        if (i && !strcmp(sorted[i]->name, sorted[i - 1]->name))
            fwa_sweep_problem(b, &here, "point %s stands there twice (lines %d and %d)", sorted[i]->name,
                              sorted[i - 1]->line, sorted[i]->line);
    }
    free(sorted);
}

// `used`: lines of `exclude` that took a point away.
static void expand(fwa_sweep_builder *b, bool *used) {
    name_columns(b);
    if (b->out_of_memory) return;
    if (b->axis_count || !b->include) add_product(b, used);
    int number = 0;
    for (const fwa_yaml *c = b->exclude ? b->exclude->child : NULL; c; c = c->next, number++)
        if (!used[number] && !b->problem_count)
            fwa_sweep_problem(b, c, "exclude: no point agrees with this line, or an earlier line took them all");
    if (!b->problem_count) add_included(b);
    if (!b->problem_count && !b->out_of_memory) check_names(b);
    if (!b->problem_count && !b->sweep->count) fwa_sweep_problem(b, b->tree, "no points are left");
}

void fwa_sweep_expand(fwa_sweep_builder *b) {
    int lines = 0;
    for (const fwa_yaml *c = b->exclude ? b->exclude->child : NULL; c; c = c->next, lines++) check_exclude(b, c);
    include_columns(b);
    if (b->problem_count) return;
    bool *used = calloc((size_t)lines + 1, sizeof *used);
    if (used)
        expand(b, used);
    else
        b->out_of_memory = true;
    free(used);
}
