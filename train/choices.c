// Choices by measurement: out of the backend, into it, and from rank to rank.
#include "train/choices.h"

#include <stdlib.h>
#include <string.h>

#include "core/log.h"
#include "io/records.h"

fwa_status fwa_choices_get(const fwa_trainer *t, char **json) {
    char *records = NULL;
    FWA_TRY(t->backend->choices(t->backend, &records));
    fwa_status status = fwa_records_to_json(records, json);
    free(records);
    return status;
}

fwa_status fwa_choices_take(const fwa_trainer *t, const char *json, const char *place) {
    char *records = NULL;
    int taken = 0, passed_over = 0;
    if (t->backend->deterministic || t->backend->kind == FWA_BACKEND_CPU) return FWA_OK; // nothing is measured
    FWA_TRY(fwa_records_from_json(json, place, &records));
    fwa_status status = t->backend->choose(t->backend, records, &taken, &passed_over);
    free(records);
    FWA_TRY(status);
    if (t->world->rank == 0 && taken > 0) fwa_log_info("%d measured algorithms taken over from %s", taken, place);
    if (t->world->rank == 0 && passed_over > 0)
        fwa_log_info("%d measured algorithms in %s are of another GPU, library version or program: measured again",
                     passed_over, place);
    return FWA_OK;
}

// The text of rank 0, everywhere; owned by the caller, also on failure.
static fwa_status broadcast(const fwa_world *world, char **records) {
    fwa_comm *all = world->all;
    int64_t bytes = world->rank == 0 ? (int64_t)strlen(*records) + 1 : 0;
    FWA_TRY(all->broadcast(all, NULL, &bytes, 1, FWA_I64, 0));
    if (world->rank != 0) {
        free(*records);
        *records = malloc((size_t)bytes);
    }
    FWA_CHECK(*records, FWA_MEMORY, "choices: out of memory for %lld bytes", (long long)bytes);
    return all->broadcast(all, NULL, *records, bytes, FWA_U8, 0);
}

fwa_status fwa_choices_share(const fwa_trainer *t) {
    char *records = NULL;
    int taken = 0, passed_over = 0;
    if (t->world->size == 1 || t->backend->kind == FWA_BACKEND_CPU) return FWA_OK;
    fwa_status status = fwa_world_agree(t->world, t->backend->choices(t->backend, &records));
    if (status == FWA_OK) status = broadcast(t->world, &records);
    if (status == FWA_OK && t->world->rank != 0) status = t->backend->choose(t->backend, records, &taken, &passed_over);
    free(records);
    return status;
}
