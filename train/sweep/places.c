// The GPUs and cores of a machine, divided among places.
#include "train/sweep/places.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "io/files.h"

enum { GPUS_MAX = 1024 };

// GPUs by the names that CUDA_VISIBLE_DEVICES has for them: numbers, GPU-... or MIG-...
typedef struct gpus {
    char *text; // own copy of the variable, cut into names
    const char *name[GPUS_MAX];
    int count;
} gpus;

// As CUDA does, up to the first that is no name.
static fwa_status read_names(gpus *g, const char *variable) {
    g->text = strdup(variable);
    FWA_CHECK(g->text, FWA_MEMORY, "no memory for the names of GPUs");
    for (char *at = g->text; at && g->count < GPUS_MAX;) {
        char *next = strchr(at, ',');
        if (next) *next++ = '\0';
        at += strspn(at, " \t");
        at[strcspn(at, " \t")] = '\0';
        if (!*at || *at == '-') break;
        for (int i = 0; i < g->count; i++)
            FWA_CHECK(strcmp(at, g->name[i]) != 0, FWA_USAGE,
                      "CUDA_VISIBLE_DEVICES names GPU %s twice; a GPU is for one place", at);
        g->name[g->count++] = at;
        at = next;
    }
    return FWA_OK;
}

// Of MIG devices CUDA sees the first only, of others those that are there.
static int usable(const gpus *g, const fwa_sweep_machine *m) {
    bool mig = false;
    for (int i = 0; i < g->count; i++) mig |= strncmp(g->name[i], "MIG", 3) == 0;
    return mig || m->devices == 0 || m->devices > g->count ? g->count : m->devices;
}

static fwa_status find_gpus(gpus *g, const fwa_sweep_machine *m) {
    char numbers[8 * GPUS_MAX] = "";
    size_t used = 0;
    for (int i = 0; i < m->devices && i < GPUS_MAX; i++)
        used += (size_t)snprintf(numbers + used, sizeof numbers - used, "%s%d", i ? "," : "", i);
    FWA_TRY(read_names(g, m->variable ? m->variable : numbers));
    g->count = usable(g, m);
    return FWA_OK;
}

static fwa_status count_places(int *count, const fwa_sweep_request *r, int gpus_each, int visible) {
    const char *jobs = r->jobs ? r->jobs : "1";
    const bool by_gpus = strcmp(jobs, "gpus") == 0;
    char *end = NULL;
    errno = 0;
    long wanted = by_gpus ? visible / gpus_each : strtol(jobs, &end, 10);
    FWA_CHECK(!by_gpus || wanted > 0, FWA_USAGE, "--jobs gpus: %d GPU%s visible, and a point has %d", visible,
              visible == 1 ? " is" : "s are", gpus_each);
    if (by_gpus && wanted > FWA_CHILDREN_MAX) wanted = FWA_CHILDREN_MAX;
    FWA_CHECK(by_gpus || (end != jobs && !*end && errno == 0 && wanted >= 1 && wanted <= FWA_CHILDREN_MAX), FWA_USAGE,
              "--jobs '%s': expected a whole number from 1 to %d, or gpus", jobs, FWA_CHILDREN_MAX);
    *count = (int)wanted;
    return FWA_OK;
}

// Names first ... first + count - 1, with commas between them.
static fwa_status join(char **out, const gpus *g, int first, int count) {
    size_t bytes = 0;
    FILE *text = open_memstream(out, &bytes);
    FWA_CHECK(text, FWA_MEMORY, "no memory for the names of GPUs");
    for (int i = 0; i < count; i++) fprintf(text, "%s%s", i ? "," : "", g->name[first + i]);
    FWA_CHECK(fwa_stream_end(text, out), FWA_MEMORY, "no memory for the names of GPUs");
    return FWA_OK;
}

static fwa_status divide(fwa_sweep_places *places, const fwa_sweep_request *r, const fwa_sweep_machine *m,
                         const gpus *g) {
    const int each = r->gpus ? r->gpus : 1;
    FWA_TRY(count_places(&places->count, r, each, g->count));
    places->apart = places->count > 1 || r->gpus || (r->jobs && strcmp(r->jobs, "gpus") == 0);
    if (places->count > r->points) places->count = r->points > 1 ? r->points : 1;
    const bool enough = each <= g->count / places->count;
    FWA_CHECK(!places->apart || !r->wants_gpus || !r->launches || r->gpus, FWA_USAGE,
              "--jobs with --launch: say how many GPUs the processes of a point share, with --gpus-per-job G");
    FWA_CHECK(enough || !places->apart || !(r->wants_gpus || r->gpus), FWA_USAGE,
              "%d point%s at once with %d GPU%s each, and %d %s visible: fewer --jobs, or run.backend=cpu",
              places->count, fwa_plural(places->count), each, fwa_plural(each), g->count, g->count == 1 ? "is" : "are");
    const int granted = (m->granted + places->count - 1) / places->count;
    for (int i = 0; places->apart && i < places->count; i++) {
        fwa_cores_piece(&m->cores, i, places->count, &places->at[i].cores);
        fwa_cores_keep(&places->at[i].cores, granted);
        FWA_TRY(join(&places->at[i].devices, g, i * each, enough ? each : 0));
    }
    return FWA_OK;
}

fwa_status fwa_sweep_places_share(fwa_sweep_places *places, const fwa_sweep_request *request,
                                  const fwa_sweep_machine *machine) {
    gpus *g = calloc(1, sizeof *g);
    memset(places, 0, sizeof *places);
    FWA_CHECK(g, FWA_MEMORY, "no memory for the names of GPUs");
    fwa_status status = find_gpus(g, machine);
    if (status == FWA_OK) status = divide(places, request, machine, g);
    free(g->text);
    free(g);
    if (status != FWA_OK) fwa_sweep_places_free(places);
    return status;
}

void fwa_sweep_places_free(fwa_sweep_places *places) {
    for (int i = 0; i < FWA_CHILDREN_MAX; i++) free(places->at[i].devices);
    memset(places, 0, sizeof *places);
}
