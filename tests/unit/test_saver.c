// Saving while training goes on: what is written is the state at the start of the save, bit for bit, whatever the steps
// beside it do; a failure reaches the step boundary, and a run may end in the middle.
#include <errno.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "tests/temp_folder.h"
#include "tests/trainer_case.h"

#include "io/checkpoint.h"
#include "train/saver.h"

static fwa_world *world;
static atomic_bool held;        // the disk takes no file to its end
static atomic_bool broken;      // it refuses
static atomic_int milliseconds; // it takes so long for each

// Stands in for that of the C library.
int fsync(int file) {
    if (atomic_load(&broken)) {
        errno = EIO;
        return -1;
    }
    nanosleep(&(struct timespec){.tv_nsec = 1000000L * atomic_load(&milliseconds)}, NULL);
    while (atomic_load(&held)) nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    return (int)syscall(SYS_fsync, file);
}

typedef struct saver_case {
    trainer_case training;
    fwa_run *run;
    fwa_saver *saver;
} saver_case;

static void open_case(saver_case *c) {
    char dir[128];
    snprintf(dir, sizeof dir, "run.dir=%s", temp_folder);
    const char *const overrides[] = {dir, "checkpoint.keep_last=0", NULL};
    char *command[] = {"train", NULL};
    trainer_case_open(&c->training, world, overrides);
    check_ok(fwa_run_create(&c->run, world, c->training.config, "none", 1, command));
    check_ok(fwa_run_open(c->run, c->training.trainer));
    check_ok(fwa_saver_create(&c->saver, c->run, c->training.trainer));
}

static void close_case(saver_case *c) {
    fwa_saver_destroy(c->saver);
    fwa_run_destroy(c->run);
    trainer_case_close(&c->training);
}

// A step as `fwa train` makes it; the status of the save.
static fwa_status step(saver_case *c) {
    c->training.trainer->writing = fwa_saver_works(c->saver);
    trainer_case_step(&c->training);
    return fwa_saver_advance(c->saver);
}

static const char *step_path(int number) {
    char name[64];
    snprintf(name, sizeof name, "step/checkpoints/step_%08d", number);
    return temp_path(name);
}

// Steps until the checkpoint is there.
static void step_until(saver_case *c, int number) {
    for (int i = 0; i < 5000; i++) {
        check_ok(step(c));
        if (fwa_path_exists(step_path(number)) && !fwa_saver_works(c->saver)) return;
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    fail_msg("no checkpoint %s", step_path(number));
}

// The masters of a checkpoint are those in `expected`, one behind the other.
static void check_masters(const fwa_params *params, int number, const char *expected) {
    fwa_checkpoint *checkpoint;
    check_ok(fwa_checkpoint_open(&checkpoint, step_path(number)));
    assert_int_equal(fwa_checkpoint_get_state(checkpoint)->step, number);
    for (int i = 0; i < params->count; i++) {
        fwa_named_tensor named = fwa_param_named(&params->at[i], FWA_PARAM_MASTER);
        const size_t bytes = fwa_tensor_bytes(params->at[i].tensor[FWA_PARAM_MASTER]); // with what is padded
        named.tensor.data = memset(check_alloc(bytes), 0, bytes);
        check_ok(fwa_checkpoint_read(checkpoint, FWA_PART_MASTER, &named));
        assert_memory_equal(named.tensor.data, expected, bytes);
        expected += bytes;
    }
    fwa_checkpoint_close(checkpoint);
}

static void training_goes_on(void **state) {
    (void)state;
    saver_case c;
    size_t bytes;
    open_case(&c);
    for (int i = 0; i < 3; i++) check_ok(step(&c));
    const char *saved = trainer_case_masters(&c.training, &bytes);
    atomic_store(&held, true);
    check_ok(fwa_saver_start(c.saver));
    for (int i = 0; i < 5; i++) check_ok(step(&c));
    while (!fwa_saver_works(c.saver)) check_ok(step(&c)); // making the folder, or between two phases
    check_ok(step(&c));
    assert_int_equal(c.training.trainer->writers, 1);
    assert_false(fwa_path_exists(step_path(3)));
    atomic_store(&held, false);
    step_until(&c, 3);
    check_masters(&c.training.trainer->model->params, 3, saved);
    assert_true(memcmp(saved, trainer_case_masters(&c.training, &bytes), bytes) != 0);
    close_case(&c);
}

static void a_save_waits_for_the_one_before(void **state) {
    (void)state;
    saver_case c;
    size_t bytes;
    open_case(&c);
    atomic_store(&milliseconds, 20);
    const char *saved[4];
    for (int i = 1; i <= 3; i++) {
        check_ok(step(&c));
        saved[i] = trainer_case_masters(&c.training, &bytes);
        check_ok(fwa_saver_start(c.saver));
    }
    assert_true(fwa_path_exists(step_path(1)) && fwa_path_exists(step_path(2)));
    check_ok(fwa_saver_wait(c.saver));
    check_ok(fwa_saver_wait(c.saver)); // nothing under way
    atomic_store(&milliseconds, 0);
    for (int i = 1; i <= 3; i++) check_masters(&c.training.trainer->model->params, i, saved[i]);
    close_case(&c);
}

static void a_failure_comes_to_a_step_boundary(void **state) {
    (void)state;
    saver_case c;
    open_case(&c);
    check_ok(step(&c));
    check_ok(fwa_saver_start(c.saver));
    check_ok(fwa_saver_wait(c.saver));
    check_ok(step(&c));
    atomic_store(&broken, true);
    check_ok(fwa_saver_start(c.saver));
    fwa_status status = FWA_OK;
    for (int i = 0; i < 5000 && status == FWA_OK; i++) {
        status = step(&c);
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    atomic_store(&broken, false);
    check_status(status, FWA_IO);
    check_message("shard.rank00000.h5");
    check_message("Input/output error");
    assert_false(fwa_path_exists(temp_path("step/checkpoints/.step_00000002.tmp")));
    char *newest;
    check_ok(fwa_checkpoint_newest(temp_path("step"), &newest));
    assert_string_equal(newest, step_path(1));
    free(newest);
    check_ok(fwa_saver_start(c.saver)); // the disk is well again
    check_ok(fwa_saver_wait(c.saver));
    assert_true(fwa_path_exists(step_path((int)c.training.trainer->step)));
    close_case(&c);
}

static void a_run_may_end_in_the_middle(void **state) {
    (void)state;
    for (int steps = 0; steps < 4; steps++) {
        saver_case c;
        open_case(&c);
        check_ok(step(&c));
        atomic_store(&milliseconds, 5);
        check_ok(fwa_saver_start(c.saver));
        for (int i = 0; i < steps; i++) check_ok(step(&c));
        close_case(&c);
        atomic_store(&milliseconds, 0);
        assert_false(fwa_path_exists(temp_path("step/checkpoints/.step_00000001.tmp")));
        check_ok(fwa_remove_folder(temp_path("step")));
    }
}

// A value that is not finite is found in the copy: it reaches no checkpoint.
static void what_is_not_finite_is_not_saved(void **state) {
    (void)state;
    saver_case c;
    open_case(&c);
    check_ok(step(&c));
    const fwa_param *p = &c.training.trainer->model->params.at[3];
    ((float *)p->tensor[FWA_PARAM_V].data)[2] = INFINITY;
    check_ok(fwa_saver_start(c.saver));
    check_status(fwa_saver_wait(c.saver), FWA_NONFINITE);
    check_message("a moment of parameter");
    check_message(p->name);
    assert_false(fwa_path_exists(step_path(1)));
    close_case(&c);
}

int main(int argc, char **argv) {
    if (fwa_hdf5_start() != FWA_OK || fwa_world_create(&world, &argc, &argv) != FWA_OK) return 1;
    if (fwa_world_split(world, 1) != FWA_OK) return 1;
    const struct CMUnitTest tests[] = {
        temp_test(training_goes_on),
        temp_test(a_save_waits_for_the_one_before),
        temp_test(a_failure_comes_to_a_step_boundary),
        temp_test(a_run_may_end_in_the_middle),
        temp_test(what_is_not_finite_is_not_saved),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    fwa_world_destroy(world);
    return failed;
}
