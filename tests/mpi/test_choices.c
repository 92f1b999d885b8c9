// Ranks take over what rank 0 has chosen by measurement, whatever they have chosen themselves.
#include "mpi_support.h"

#include <stdlib.h>

#include "train/choices.h"

static fwa_world *world;
static char taken_over[4096];
static fwa_status verdict;

// Texts of different lengths.
static fwa_status own_choices(fwa_backend *backend, char **records) {
    if (verdict != FWA_OK) FWA_FAIL(verdict, "rank %d has no choices", backend->device);
    *records = malloc(4096);
    FWA_CHECK(*records, FWA_MEMORY, "no memory");
    int used = 0;
    for (int i = 0; i < 50 - 10 * backend->device; i++)
        used += snprintf(*records + used, 4096 - (size_t)used, "operator=gemm\tM=%d\tof=%d\n", i, backend->device);
    return FWA_OK;
}

static fwa_status note(fwa_backend *backend, const char *records, int *taken, int *passed_over) {
    (void)backend;
    snprintf(taken_over, sizeof taken_over, "%s", records);
    *taken = *passed_over = 0;
    return FWA_OK;
}

static void ranks_take_over_those_of_the_first(void **state) {
    (void)state;
    fwa_backend first = {.device = 0}, mine = {.kind = FWA_BACKEND_CUDA, .device = world->rank};
    fwa_trainer trainer = {.world = world, .backend = &mine};
    char *expected = NULL;
    mine.choices = own_choices;
    mine.choose = note;
    taken_over[0] = '\0';
    verdict = FWA_OK;
    ASSERT_ALL(own_choices(&first, &expected) == FWA_OK);
    ASSERT_ALL(fwa_choices_share(&trainer) == FWA_OK);
    ASSERT_ALL(strcmp(taken_over, world->rank == 0 ? "" : expected) == 0);
    free(expected);
}

static void a_rank_without_choices_stops_all(void **state) {
    (void)state;
    fwa_backend mine = {.kind = FWA_BACKEND_CUDA, .device = world->rank, .choices = own_choices, .choose = note};
    fwa_trainer trainer = {.world = world, .backend = &mine};
    verdict = world->rank == world->size - 1 ? FWA_BACKEND : FWA_OK;
    ASSERT_ALL(fwa_choices_share(&trainer) == (world->size == 1 ? FWA_OK : FWA_BACKEND));
}

int main(int argc, char **argv) {
    if (fwa_world_create(&world, &argc, &argv) != FWA_OK || fwa_world_split(world, 1) != FWA_OK) return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_take_over_those_of_the_first),
        cmocka_unit_test(a_rank_without_choices_stops_all),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    fwa_world_destroy(world);
    return failed;
}
