// Choices by measurement: out of the backend, into it, and from rank to rank.
#include "train/choices.h"

#include <stdlib.h>

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
    if (t->world->rank == 0 && taken > 0)
        fwa_log_info("%d measured algorithm%s taken over from %s", taken, fwa_plural(taken), place);
    if (t->world->rank == 0 && passed_over > 0)
        fwa_log_info("%d measured algorithm%s in %s, of another GPU, library version or program: measured again",
                     passed_over, fwa_plural(passed_over), place);
    return FWA_OK;
}

fwa_status fwa_choices_share(const fwa_trainer *t) {
    char *own = NULL, *records = NULL;
    int taken = 0, passed_over = 0;
    if (t->world->size == 1 || t->backend->kind == FWA_BACKEND_CPU) return FWA_OK;
    fwa_status status = fwa_world_agree(t->world, t->backend->choices(t->backend, &own));
    if (status == FWA_OK) status = fwa_world_share_text(t->world, own, &records);
    if (status == FWA_OK && t->world->rank != 0) status = t->backend->choose(t->backend, records, &taken, &passed_over);
    free(own);
    free(records);
    return status;
}
