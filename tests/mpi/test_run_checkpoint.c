// The checkpoint that rank 0 has found, on every rank: one that others see later is waited for, another one of the same
// name is refused. Every rank looks in a folder of its own, as on disks that are not the same.
#include "mpi_support.h"

#include <pthread.h>
#include <time.h>
#include <unistd.h>

#include "temp_folder.h"

#include "core/clock.h"
#include "train/run.h"

#define LATE_SECONDS 1

static fwa_world *world;

static void in_own_folder(void) {
    assert_int_equal(chdir(temp_folder), 0);
    assert_int_equal(mkdir("run", 0777), 0);
}

static void make(const char *folder, const char *manifest) {
    char path[64];
    assert_int_equal(mkdir(folder, 0777), 0);
    snprintf(path, sizeof path, "%s/manifest.json", folder);
    temp_write(path, manifest, strlen(manifest));
}

static void *rename_late(void *none) {
    nanosleep(&(struct timespec){.tv_sec = LATE_SECONDS}, NULL);
    if (rename("run/made", "run/step") != 0) perror("rename");
    return none;
}

static void one_that_comes_late_is_waited_for(void **state) {
    (void)state;
    pthread_t thread;
    const bool late = world->rank > 0;
    const double start = fwa_clock_seconds();
    in_own_folder();
    make(late ? "run/made" : "run/step", "the same");
    if (late) assert_int_equal(pthread_create(&thread, NULL, rename_late, NULL), 0);
    ASSERT_ALL(fwa_run_same_checkpoint(world, "run/step") == FWA_OK);
    ASSERT_ALL(world->size == 1 || fwa_clock_seconds() - start > 0.9 * LATE_SECONDS);
    if (late) pthread_join(thread, NULL);
}

static void another_one_is_refused(void **state) {
    (void)state;
    const bool other = world->rank > 0 && world->rank == world->size - 1;
    in_own_folder();
    make("run/step", other ? "another" : "the same");
    ASSERT_ALL(fwa_run_same_checkpoint(world, "run/step") == (world->size == 1 ? FWA_OK : FWA_CONFIG));
    ASSERT_ALL(world->size == 1 || strstr(fwa_error_message(), "run/step is another checkpoint"));
}

// Nobody waits for what rank 0 has not.
static void one_that_rank_0_lost_is_not_waited_for(void **state) {
    (void)state;
    const double start = fwa_clock_seconds();
    in_own_folder();
    ASSERT_ALL(fwa_run_same_checkpoint(world, "run/step") == (world->size == 1 ? FWA_OK : FWA_IO));
    ASSERT_ALL(fwa_clock_seconds() - start < 3);
}

int main(int argc, char **argv) {
    if (fwa_world_create(&world, &argc, &argv) != FWA_OK || fwa_world_split(world, 1) != FWA_OK) return 1;
    const struct CMUnitTest tests[] = {
        temp_test(one_that_comes_late_is_waited_for),
        temp_test(another_one_is_refused),
        temp_test(one_that_rank_0_lost_is_not_waited_for),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    fwa_world_destroy(world);
    return failed;
}
