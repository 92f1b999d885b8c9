// Who started us, by the environment alone; and the world without a launcher.
#include "check.h"

#include <unistd.h>

#include "dist/launcher.h"
#include "dist/world.h"

static const char *const all_names[] = {"OMPI_COMM_WORLD_SIZE",
                                        "PMIX_RANK",
                                        "PMIX_NAMESPACE",
                                        "PMI_RANK",
                                        "PMI_SIZE",
                                        "PMI_FD",
                                        "PMI_JOBID",
                                        "SLURM_PROCID",
                                        "SLURM_STEP_ID",
                                        "SLURM_STEP_NUM_TASKS",
                                        "SLURM_NTASKS",
                                        "SLURM_NPROCS",
                                        "FWA_TASKS",
                                        NULL};

static int clear(void **state) {
    (void)state;
    for (int i = 0; all_names[i]; i++) unsetenv(all_names[i]);
    return 0;
}

// "NAME=value" settings, NULL at the end.
static fwa_status detect(fwa_launcher *out, const char *const *settings) {
    clear(NULL);
    for (int i = 0; settings[i]; i++) {
        char name[64];
        const char *equals = strchr(settings[i], '=');
        snprintf(name, sizeof name, "%.*s", (int)(equals - settings[i]), settings[i]);
        setenv(name, equals + 1, 1);
    }
    return fwa_launcher_detect(out);
}
#define DETECT(out, ...) detect((out), (const char *const[]){__VA_ARGS__, NULL})

static void launchers_with_mpi(void **state) {
    (void)state;
    fwa_launcher l;
    check_ok(DETECT(&l, "OMPI_COMM_WORLD_SIZE=4"));
    assert_true(l.mpi && l.tasks == 4);
    // mpirun inside a Slurm job: Slurm speaks of the daemons.
    check_ok(DETECT(&l, "OMPI_COMM_WORLD_SIZE=8", "SLURM_PROCID=0", "SLURM_STEP_ID=0", "SLURM_NTASKS=2"));
    assert_true(l.mpi && l.tasks == 8);
    check_ok(
        DETECT(&l, "PMIX_RANK=1", "SLURM_PROCID=1", "SLURM_STEP_ID=3", "SLURM_NTASKS=16", "SLURM_STEP_NUM_TASKS=6"));
    assert_true(l.mpi && l.tasks == 6);
    check_ok(DETECT(&l, "PMIX_NAMESPACE=job.0"));
    assert_true(l.mpi && l.tasks == 0);
    check_ok(DETECT(&l, "PMI_RANK=0", "PMI_SIZE=3"));
    assert_true(l.mpi && l.tasks == 3);
    check_ok(DETECT(&l, "SLURM_PROCID=0", "SLURM_STEP_ID=0", "SLURM_NTASKS=5", "PMI_FD=7"));
    assert_true(l.mpi && l.tasks == 5);
}

static void an_srun_step_without_pmi_is_refused(void **state) {
    (void)state;
    fwa_launcher l;
    check_status(DETECT(&l, "SLURM_PROCID=2", "SLURM_STEP_ID=0", "SLURM_NTASKS=4"), FWA_COMM);
    assert_non_null(strstr(fwa_error_message(), "4 tasks"));
    assert_non_null(strstr(fwa_error_message(), "--mpi=pmix"));
    check_status(DETECT(&l, "SLURM_PROCID=2", "SLURM_STEP_ID=1", "SLURM_STEP_NUM_TASKS=2"), FWA_COMM);
    // The world passes it on before it touches MPI.
    fwa_world *world = NULL;
    check_status(fwa_world_create(&world, NULL, NULL), FWA_COMM);
    assert_null(world);
}

static void one_process_needs_no_launcher(void **state) {
    (void)state;
    fwa_launcher l;
    check_ok(DETECT(&l, "SLURM_PROCID=0", "SLURM_STEP_ID=0", "SLURM_NTASKS=1"));
    assert_false(l.mpi);
    check_ok(DETECT(&l, "SLURM_NTASKS=8", "SLURM_PROCID=0")); // the batch script itself
    assert_false(l.mpi);
    check_ok(DETECT(&l, "SLURM_NTASKS=8", "SLURM_PROCID=0", "SLURM_STEP_ID=4294967291")); // the same, newer Slurm
    assert_false(l.mpi);
    clear(NULL);
    check_ok(fwa_launcher_detect(&l));
    assert_true(!l.mpi && l.tasks == 0);
}

static void a_world_of_one(void **state) {
    (void)state;
    fwa_world *world = NULL;
    char host[64] = "";
    gethostname(host, sizeof host - 1);
    check_ok(fwa_world_create(&world, NULL, NULL));
    assert_true(!world->mpi && world->rank == 0 && world->size == 1 && world->node_rank == 0 && world->node_size == 1);
    assert_string_equal(world->host, host);
    assert_string_equal(world->all->name, "self");
    fwa_world_set_timeout(world, 1);
    check_ok(fwa_world_split(world, 1));
    assert_true(world->dp_size == 1 && world->sp_size == 1 && world->dp->size == 1 && world->sp->size == 1);
    check_status(fwa_world_split(world, 2), FWA_CONFIG);
    check_ok(fwa_world_agree(world, FWA_OK));
    check_status(fwa_world_agree(world, FWA_IO), FWA_IO);
    fwa_world_destroy(world);
    fwa_world_destroy(NULL);
}

static void tasks_of_the_job(void **state) {
    (void)state;
    fwa_launcher l;
    check_ok(DETECT(&l, "FWA_TASKS=4", "OMPI_COMM_WORLD_SIZE=4"));
    assert_true(l.mpi && l.tasks == 4);
    check_ok(DETECT(&l, "FWA_TASKS=4", "PMIX_RANK=0"));
    assert_true(l.mpi && l.tasks == 4);
    assert_string_equal(l.source, "FWA_TASKS");
    check_ok(DETECT(&l, "FWA_TASKS=1"));
    assert_true(!l.mpi && l.tasks == 1);
    check_status(DETECT(&l, "FWA_TASKS=2"), FWA_USAGE);
    check_status(DETECT(&l, "FWA_TASKS=4", "OMPI_COMM_WORLD_SIZE=2"), FWA_USAGE);
    check_status(DETECT(&l, "FWA_TASKS=1", "PMI_RANK=0", "PMI_SIZE=3"), FWA_USAGE);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(launchers_with_mpi, clear),
        cmocka_unit_test_setup(an_srun_step_without_pmi_is_refused, clear),
        cmocka_unit_test_setup(one_process_needs_no_launcher, clear),
        cmocka_unit_test_setup(tasks_of_the_job, clear),
        cmocka_unit_test_setup(a_world_of_one, clear),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
