// Marks of a timed step, and what the intervals between them add up to.
#include "train/bench/profile_rows.h"

#include <stdlib.h>
#include <string.h>

#include "core/clock.h"
#include "core/log.h"
#include "io/files.h"
#include "train/bench/rule_cost.h"

enum { MOST_DEPTH = 16 };

// A point of the stream; what lies between it and the one before belongs to `row`.
typedef struct mark {
    fwa_event *event;
    int row;
} mark;

typedef struct open_range {
    const char *name;
    int number;
} open_range;

struct fwa_profile {
    fwa_ranges ranges; // must stand first: the backend's listener while a step is timed
    fwa_ranges *outer; // the backend's own
    fwa_trainer *trainer;
    fwa_profile_rows rows;
    open_range open[MOST_DEPTH];
    int depth;
    mark *marks; // [room], with events for all of them
    int count, room;
    fwa_status failed; // the first failure in a listener, which cannot return it
};

static fwa_status more_marks(fwa_profile *p) {
    fwa_backend *backend = p->trainer->backend;
    const int room = p->room ? 2 * p->room : 1024;
    mark *marks = realloc(p->marks, (size_t)room * sizeof *marks);
    FWA_CHECK(marks, FWA_MEMORY, "profile: no memory for %d marks", room);
    p->marks = marks;
    while (p->room < room) {
        FWA_TRY(backend->timer_create(backend, &marks[p->room].event));
        p->room++;
    }
    return FWA_OK;
}

static fwa_status put_mark(fwa_profile *p, int row) {
    fwa_backend *backend = p->trainer->backend;
    if (p->count == p->room) FWA_TRY(more_marks(p));
    p->marks[p->count].row = row;
    return backend->event_record(backend, p->marks[p->count++].event, backend->stream);
}

static void add_mark(fwa_profile *p, int row) {
    if (p->failed == FWA_OK) p->failed = put_mark(p, row);
}

// The innermost range; a block is a place, not a part.
static const char *part(const fwa_profile *p) {
    const char *name = p->depth > 0 ? p->open[p->depth - 1].name : FWA_RANGE_BLOCK;
    return strcmp(name, FWA_RANGE_BLOCK) == 0 ? FWA_PROFILE_BETWEEN : name;
}

static int row_of(fwa_profile *p, int op) {
    return fwa_profile_row_find(&p->rows, part(p), op);
}

static void begin(fwa_ranges *ranges, const char *name, int number) {
    fwa_profile *p = (fwa_profile *)ranges;
    if (p->outer) p->outer->begin(p->outer, name, number);
    add_mark(p, row_of(p, FWA_PROFILE_REST));
    if (p->depth < MOST_DEPTH) p->open[p->depth++] = (open_range){name, number};
    p->rows.at[row_of(p, FWA_PROFILE_REST)].calls++;
}

// The rule of the block around the innermost range.
static fwa_cost cost_of_rule(const fwa_profile *p, bool backward) {
    const fwa_trainer *t = p->trainer;
    const fwa_model_spec *spec = &t->model->spec;
    const int layer = p->depth > 1 ? p->open[p->depth - 2].number : -1;
    if (layer < 0 || layer >= spec->L) return (fwa_cost){0, 0};
    const fwa_mixer_spec *mixer = &spec->mixer[spec->layer_mixer[layer]];
    const fwa_mixer_shape shape = fwa_mixer_spec_shape(spec, mixer, t->acts->ctx.B, t->acts->ctx.T);
    return fwa_rule_cost(mixer->rule, &mixer->options, &shape, t->backend, backward);
}

static void end(fwa_ranges *ranges) {
    fwa_profile *p = (fwa_profile *)ranges;
    if (p->outer) p->outer->end(p->outer);
    const int row = row_of(p, FWA_PROFILE_REST);
    const bool forward = strcmp(part(p), FWA_RANGE_RULE_FORWARD) == 0;
    add_mark(p, row);
    if (forward || strcmp(part(p), FWA_RANGE_RULE_BACKWARD) == 0)
        fwa_profile_row_add(&p->rows, row, cost_of_rule(p, !forward));
    if (p->depth > 0) p->depth--;
}

static void count_op(void *user, int op, fwa_cost cost) {
    fwa_profile *p = user;
    const int row = row_of(p, op);
    p->rows.at[row].calls++;
    fwa_profile_row_add(&p->rows, row, cost);
    add_mark(p, row);
}

fwa_status fwa_profile_create(fwa_profile **out, fwa_trainer *trainer) {
    fwa_profile *p = calloc(1, sizeof *p);
    FWA_CHECK(p, FWA_MEMORY, "profile: out of memory");
    p->ranges = (fwa_ranges){begin, end};
    p->trainer = trainer;
    p->rows.backend = trainer->backend;
    // Between steps no activation is needed any more.
    const fwa_arena *acts = trainer->acts->kept;
    const fwa_floor_room room = {fwa_arena_data(acts), fwa_arena_bytes(acts)};
    fwa_status status = fwa_floor_measure(trainer->backend, room, &p->rows.floor);
    if (status != FWA_OK) {
        fwa_profile_destroy(p);
        return fwa_error_pass(status, __FILE__, __LINE__, __func__);
    }
    *out = p;
    return FWA_OK;
}

void fwa_profile_destroy(fwa_profile *p) {
    if (!p) return;
    for (int i = 0; i < p->room; i++) p->trainer->backend->event_destroy(p->trainer->backend, p->marks[i].event);
    free(p->marks);
    free(p);
}

static fwa_status read_marks(fwa_profile *p) {
    fwa_backend *backend = p->trainer->backend;
    FWA_TRY(backend->stream_synchronize(backend, backend->stream));
    for (int i = 1; i < p->count; i++) {
        double seconds;
        FWA_TRY(backend->timer_seconds(backend, p->marks[i - 1].event, p->marks[i].event, &seconds));
        p->rows.at[p->marks[i].row].seconds += seconds;
    }
    p->rows.steps++;
    return FWA_OK;
}

fwa_status fwa_profile_step(fwa_profile *p) {
    fwa_trainer *t = p->trainer;
    fwa_backend *backend = t->backend;
    const bool eager = t->eager;
    p->count = p->depth = 0;
    FWA_TRY(fwa_op_meter_start(backend, count_op, p));
    p->outer = backend->ranges;
    backend->ranges = &p->ranges;
    t->eager = true;
    add_mark(p, row_of(p, FWA_PROFILE_REST));
    const fwa_status status = fwa_trainer_step(t);
    add_mark(p, row_of(p, FWA_PROFILE_REST));
    t->eager = eager;
    backend->ranges = p->outer;
    fwa_op_meter_stop(backend);
    FWA_TRY(status);
    FWA_TRY(p->failed);
    return read_marks(p);
}

char *fwa_profile_table(const fwa_profile *p) {
    return fwa_profile_rows_table(&p->rows);
}

char *fwa_profile_json(const fwa_profile *p) {
    return fwa_profile_rows_json(&p->rows);
}

fwa_status fwa_profile_training_step(fwa_profile **profile, fwa_trainer *t, int64_t given, const char *folder,
                                     double *other) {
    const int64_t timed = t->config->debug.profile, before = given - FWA_PROFILE_WARM_UP; // timed before this one
    if (before < 0 || before >= timed) return fwa_trainer_step(t);
    double start = fwa_clock_seconds();
    if (!*profile) FWA_TRY(fwa_world_agree(t->world, fwa_profile_create(profile, t)));
    *other += fwa_clock_seconds() - start;
    FWA_TRY(fwa_profile_step(*profile));
    start = fwa_clock_seconds();
    if (before + 1 == timed) FWA_TRY(fwa_profile_finish(profile, folder));
    *other += fwa_clock_seconds() - start;
    return FWA_OK;
}

bool fwa_profile_waits_before(const fwa_config *config, int64_t given) {
    const int64_t timed = config->debug.profile;
    return timed > 0 && given >= FWA_PROFILE_WARM_UP && given - FWA_PROFILE_WARM_UP <= timed;
}

static fwa_status publish(const fwa_profile *p, const char *folder) {
    char path[FWA_PATH_MAX], *table = fwa_profile_table(p), *json = fwa_profile_json(p), *rest = table;
    fwa_status status = FWA_OK;
    FWA_CHECK_GOTO(table && json, FWA_MEMORY, done, "profile: out of memory");
    for (char *line; (line = strsep(&rest, "\n")) && rest;) fwa_log_info("%s", line);
    FWA_TRY_GOTO(fwa_path_format(path, "%s/profile.json", folder), done);
    FWA_TRY_GOTO(fwa_write_text(path, json), done);
done:
    free(table);
    free(json);
    return status;
}

fwa_status fwa_profile_finish(fwa_profile **profile, const char *folder) {
    fwa_profile *p = *profile;
    if (!p) return FWA_OK;
    *profile = NULL;
    fwa_status status = p->trainer->world->rank == 0 ? publish(p, folder) : FWA_OK;
    fwa_profile_destroy(p);
    FWA_TRY(status);
    return FWA_OK;
}
