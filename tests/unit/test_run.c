// Two trainings in one run folder: the later one sees what the other has done, however short it was, and leaves alone
// what it is doing.
#include "tests/temp_folder.h"
#include "tests/trainer_case.h"

#include "io/checkpoint.h"
#include "train/run.h"

static fwa_world *world;

static void the_later_of_two_trainings_stays_out(void **state) {
    (void)state;
    trainer_case c;
    fwa_run *run, *late[2], *third;
    char dir[128], *command[] = {"train", NULL};
    snprintf(dir, sizeof dir, "run.dir=%s", temp_folder);
    const char *const overrides[] = {dir, NULL};
    trainer_case_open(&c, world, overrides);
    check_ok(fwa_run_create(&run, world, c.config, "none", 1, command));
    check_ok(fwa_run_create(&late[0], world, c.config, "none", 1, command)); // nothing is there yet
    check_ok(fwa_run_create(&late[1], world, c.config, "auto", 1, command));
    check_ok(fwa_run_open(run, c.trainer));
    check_status(fwa_run_open(late[0], c.trainer), FWA_CONFIG);
    check_message("is in use");
    trainer_case_step(&c);
    check_ok(fwa_run_finish(run, c.trainer));
    fwa_run_destroy(run);
    for (int i = 0; i < 2; i++) {
        check_status(fwa_run_open(late[i], c.trainer), FWA_CONFIG);
        check_message("already holds a run");
        fwa_run_destroy(late[i]);
    }
    check_status(fwa_run_create(&third, world, c.config, "none", 1, command), FWA_CONFIG);
    check_message("already holds a run");
    trainer_case_close(&c);
}

static void a_finished_run_is_cleared_where_nobody_is_in_it(void **state) {
    (void)state;
    trainer_case c;
    fwa_run *run, *late;
    char dir[128], *command[] = {"train", NULL}, left[FWA_PATH_MAX];
    snprintf(dir, sizeof dir, "run.dir=%s", temp_folder);
    const char *const overrides[] = {dir, NULL};
    trainer_case_open(&c, world, overrides);
    check_ok(fwa_run_create(&run, world, c.config, "none", 1, command));
    check_ok(fwa_run_open(run, c.trainer));
    snprintf(left, sizeof left, "%s/checkpoints/.step_00000001.tmp", run->path);
    check_ok(fwa_make_folders(left));
    check_ok(fwa_write_text(temp_path("step/FINISHED"), "1000000\n"));
    for (int alone = 0; alone < 2; alone++) {
        check_ok(fwa_run_create(&late, world, c.config, "auto", 1, command));
        assert_true(late->finished);
        assert_int_equal(fwa_path_exists(left), !alone);
        fwa_run_destroy(late);
        if (!alone) fwa_run_destroy(run);
    }
    trainer_case_close(&c);
}

int main(int argc, char **argv) {
    if (fwa_hdf5_start() != FWA_OK || fwa_world_create(&world, &argc, &argv) != FWA_OK) return 1;
    if (fwa_world_split(world, 1) != FWA_OK) return 1;
    const struct CMUnitTest tests[] = {temp_test(the_later_of_two_trainings_stays_out),
                                       temp_test(a_finished_run_is_cleared_where_nobody_is_in_it)};
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    fwa_world_destroy(world);
    return failed;
}
