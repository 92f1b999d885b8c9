// The world under mpirun: places, the data x sequence grid, agreement, texts.
#include "mpi_support.h"

#include <stdbool.h>
#include <stdlib.h>
#include <unistd.h>

#include "dist/world.h"

static fwa_world *world;

static void every_rank_has_its_place(void **state) {
    (void)state;
    int rank, size;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    ASSERT_ALL(world->rank == rank && world->size == size && world->mpi);
    ASSERT_ALL(world->node_rank == rank && world->node_size == size); // all on this host
    ASSERT_ALL(world->host[0] && world->all->rank == rank && world->all->size == size);
    ASSERT_ALL(world->dp_rank == rank && world->dp_size == size && world->sp_rank == 0 && world->sp_size == 1);
}

// Sum of the job's ranks in `group`.
static int64_t sum_of_ranks(fwa_comm *group) {
    int64_t sum = world->rank;
    return group->all_reduce(group, NULL, &sum, 1, FWA_I64, FWA_REDUCE_SUM) == FWA_OK ? sum : -1;
}

static void split_gives_rank_mod_sp_and_rank_div_sp(void **state) {
    (void)state;
    for (int sp = 1; sp <= world->size; sp++) {
        if (world->size % sp) {
            ASSERT_ALL(fwa_world_split(world, sp) == FWA_CONFIG && strstr(fwa_error_message(), "parallel.sp"));
            continue;
        }
        int dp = world->size / sp, s = world->rank % sp, d = world->rank / sp;
        ASSERT_ALL(fwa_world_split(world, sp) == FWA_OK);
        ASSERT_ALL(world->sp_rank == s && world->sp_size == sp && world->dp_rank == d && world->dp_size == dp);
        ASSERT_ALL(world->sp->rank == s && world->sp->size == sp && world->dp->rank == d && world->dp->size == dp);
        ASSERT_ALL(sum_of_ranks(world->sp) == (int64_t)d * sp * sp + sp * (sp - 1) / 2);
        ASSERT_ALL(sum_of_ranks(world->dp) == (int64_t)s * dp + (int64_t)sp * dp * (dp - 1) / 2);
    }
    ASSERT_ALL(fwa_world_split(world, 0) == FWA_CONFIG);
    ASSERT_ALL(fwa_world_split(world, 1) == FWA_OK);
}

static void split_groups_take_the_time_out(void **state) {
    (void)state;
    if (world->size != 4) return;
    fwa_world_set_timeout(world, 1.5); // holds for the groups made next
    ASSERT_ALL(fwa_world_split(world, 2) == FWA_OK);
    bool good = true;
    if (world->rank != 1) { // rank 0 waits for 1; 2 and 3 have each other
        good = world->sp->barrier(world->sp) == (world->rank == 0 ? FWA_TIMEOUT : FWA_OK);
    }
    ASSERT_ALL(good);
    fwa_world_set_timeout(world, 60);
    ASSERT_ALL(fwa_world_split(world, 1) == FWA_OK);
}

static void a_launcher_of_another_mpi_is_refused(void **state) {
    (void)state;
    char right[16], wrong[16];
    snprintf(right, sizeof right, "%d", world->size);
    snprintf(wrong, sizeof wrong, "%d", world->size + 1);
    fwa_world *second = NULL;
    setenv("OMPI_COMM_WORLD_SIZE", wrong, 1);
    ASSERT_ALL(fwa_world_create(&second, NULL, NULL) == FWA_COMM && !second);
    ASSERT_ALL(strstr(fwa_error_message(), wrong) && strstr(fwa_error_message(), "OMPI_COMM_WORLD_SIZE"));
    setenv("OMPI_COMM_WORLD_SIZE", right, 1);
    ASSERT_ALL(sum_of_ranks(world->all) == (int64_t)world->size * (world->size - 1) / 2); // MPI still runs
}

static fwa_status fail_here(fwa_status code) {
    if (code == FWA_OK) return FWA_OK;
    FWA_FAIL(code, "trouble of rank %d", world->rank);
}

static void all_well_stays_well(void **state) {
    (void)state;
    fwa_error_clear();
    ASSERT_ALL(fwa_world_agree(world, FWA_OK) == FWA_OK && fwa_error_message()[0] == '\0');
}

static void one_failure_becomes_everyones(void **state) {
    (void)state;
    for (int bad = 0; bad < world->size; bad++) {
        fwa_error_clear();
        fwa_status mine = fail_here(world->rank == bad ? FWA_IO : FWA_OK);
        bool good = fwa_world_agree(world, mine) == FWA_IO;
        char expected[160];
        if (world->rank == bad)
            snprintf(expected, sizeof expected, "trouble of rank %d", bad);
        else
            snprintf(expected, sizeof expected, "rank %d (host %s): trouble of rank %d", bad, world->host, bad);
        good &= strcmp(fwa_error_message(), expected) == 0;
        if (world->rank == bad) good &= strstr(fwa_error_trace(), "fail_here") != NULL;
        ASSERT_ALL(good);
    }
}

static void the_worst_status_wins(void **state) {
    (void)state;
    if (world->size == 1) return;
    // Rank 0 was told to leave, the last one failed: that is no clean leave.
    fwa_status mine = fail_here(world->rank == 0 ? FWA_PREEMPTED : world->rank == world->size - 1 ? FWA_IO : FWA_OK);
    bool good = fwa_world_agree(world, mine) == FWA_IO;
    char prefix[96], own[96];
    snprintf(prefix, sizeof prefix, "rank %d (host", world->size - 1);
    snprintf(own, sizeof own, "trouble of rank %d", world->rank);
    good &= strstr(fwa_error_message(), mine == FWA_OK ? prefix : own) == fwa_error_message();
    ASSERT_ALL(good);
    // All fail alike: each keeps its own words.
    good = fwa_world_agree(world, fail_here(FWA_FORMAT)) == FWA_FORMAT;
    good &= strcmp(fwa_error_message(), own) == 0;
    ASSERT_ALL(good);
}

static void a_long_message_arrives(void **state) {
    (void)state;
    char long_text[6001];
    memset(long_text, 'x', 6000);
    long_text[6000] = '\0';
    fwa_error_clear();
    fwa_status mine = FWA_OK;
    if (world->rank == 0) mine = fwa_error_raise(FWA_CONFIG, __FILE__, __LINE__, __func__, "%s", long_text);
    bool good = fwa_world_agree(world, mine) == FWA_CONFIG;
    good &= strstr(fwa_error_message(), long_text) != NULL;
    ASSERT_ALL(good);
}

// Whatever the others have, one of them nothing; texts of three lengths.
static void the_text_of_rank_0_is_everyones(void **state) {
    (void)state;
    const size_t lengths[] = {0, 1, 100000};
    for (int i = 0; i < 3; i++) {
        char *text = NULL, *mine = malloc(lengths[i] + 9);
        bool good = mine != NULL;
        memset(mine, 'a' + world->rank, lengths[i] + 8);
        mine[lengths[i] + (world->rank ? 8 : 0)] = '\0';
        good &= fwa_world_share_text(world, world->rank == 1 ? NULL : mine, &text) == FWA_OK && text != mine;
        good &= text && strlen(text) == lengths[i] && strspn(text, "a") == lengths[i];
        ASSERT_ALL(good);
        free(text);
        free(mine);
    }
}

static void agreement_waits_for_a_late_rank(void **state) {
    (void)state;
    if (world->rank == world->size - 1) usleep(300000);
    ASSERT_ALL(fwa_world_agree(world, FWA_OK) == FWA_OK);
    // Where ranks read for as long as it takes, later than any other wait allows.
    fwa_world_set_timeout(world, 0.2);
    if (world->rank == world->size - 1) usleep(500000);
    fwa_status status = fwa_world_agree_late(world, FWA_OK);
    fwa_world_set_timeout(world, 60);
    ASSERT_ALL(status == FWA_OK);
}

// Last: it breaks the world's communicator on all ranks but one.
static void agreement_gives_up_on_a_missing_rank(void **state) {
    (void)state;
    if (world->size == 1) return;
    fwa_world_set_timeout(world, 0.3);
    bool good = true;
    fwa_status mine = fail_here(world->rank == 1 ? FWA_IO : FWA_OK);
    if (world->rank == 1) {
        good &= fwa_world_agree(world, mine) == FWA_IO && strstr(fwa_error_message(), "trouble of rank 1");
    } else if (world->rank > 0) {
        good &= fwa_world_agree(world, mine) == FWA_TIMEOUT && strstr(fwa_error_message(), "rank 0");
    }
    ASSERT_ALL(good);
}

int main(int argc, char **argv) {
    if (fwa_world_create(&world, &argc, &argv) != FWA_OK) {
        fprintf(stderr, "%s\n%s\n", fwa_error_message(), fwa_error_trace());
        return 1;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_rank_has_its_place),
        cmocka_unit_test(split_gives_rank_mod_sp_and_rank_div_sp),
        cmocka_unit_test(split_groups_take_the_time_out),
        cmocka_unit_test(a_launcher_of_another_mpi_is_refused),
        cmocka_unit_test(all_well_stays_well),
        cmocka_unit_test(one_failure_becomes_everyones),
        cmocka_unit_test(the_worst_status_wins),
        cmocka_unit_test(a_long_message_arrives),
        cmocka_unit_test(the_text_of_rank_0_is_everyones),
        cmocka_unit_test(agreement_waits_for_a_late_rank),
        cmocka_unit_test(agreement_gives_up_on_a_missing_rank),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    if (world->size > 1) { // the communicator is broken: MPI is ended here, past the world
        MPI_Barrier(MPI_COMM_WORLD);
        MPI_Finalize();
        return failed;
    }
    fwa_world_destroy(world);
    return failed;
}
