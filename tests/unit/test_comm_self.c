// The group of one, and buckets over it: every operation is the identity.
#include "check.h"

#include "dist/buckets.h"
#include "dist/comms.h"

static fwa_comm *comm;

static void results_are_the_inputs(void **state) {
    (void)state;
    float x[3] = {1, 2, 3}, y[3] = {0};
    fwa_comm_request *request = NULL;
    assert_int_equal(comm->size, 1);
    check_ok(comm->all_reduce(comm, NULL, x, 3, FWA_F32, FWA_REDUCE_SUM));
    check_ok(comm->all_reduce_start(comm, NULL, x, 3, FWA_F32, FWA_REDUCE_MAX, &request));
    assert_non_null(request);
    check_ok(comm->wait(comm, NULL, request));
    check_ok(comm->broadcast(comm, NULL, x, 3, FWA_F32, 0));
    check_ok(comm->all_gather(comm, NULL, x, y, 3, FWA_F32));
    assert_memory_equal(x, y, sizeof x);
    check_ok(comm->all_gather(comm, NULL, x, x, 3, FWA_F32));
    memset(y, 0, sizeof y);
    check_ok(comm->reduce_scatter(comm, NULL, x, y, 3, FWA_F32));
    assert_memory_equal(x, y, sizeof x);
    memset(y, 0, sizeof y);
    check_ok(comm->exchange(comm, NULL, x, sizeof x, 0, y, sizeof y, 0));
    assert_memory_equal(x, y, sizeof x);
    check_ok(comm->barrier(comm));
    comm->set_timeout(comm, 1);
    assert_true(x[0] == 1 && x[1] == 2 && x[2] == 3);
}

static void ranks_that_are_not_there_are_refused(void **state) {
    (void)state;
    char x[4] = {0};
    check_status(comm->broadcast(comm, NULL, x, 4, FWA_U8, 1), FWA_ERROR);
    check_status(comm->exchange(comm, NULL, x, 4, 1, NULL, 0, 0), FWA_ERROR);
    check_status(comm->exchange(comm, NULL, x, 4, 0, NULL, 0, 0), FWA_ERROR);
    check_status(comm->all_gather(comm, NULL, x, x, -1, FWA_U8), FWA_ERROR);
    check_status(comm->wait(comm, NULL, NULL), FWA_ERROR);
    check_ok(comm->exchange(comm, NULL, NULL, 0, -1, NULL, 0, -1));
}

static void buckets_of_one_rank_change_nothing(void **state) {
    (void)state;
    float x[6] = {1, 2, 3, 4, 5, 6};
    fwa_tensor tensors[2] = {fwa_tensor_1d(x, FWA_F32, 2), fwa_tensor_2d(x + 2, FWA_F32, 2, 2)};
    fwa_buckets *buckets = NULL;
    check_ok(fwa_buckets_create(&buckets, comm, tensors, 2));
    for (int step = 0; step < 2; step++) {
        check_ok(fwa_buckets_start(buckets, NULL, 1));
        check_status(fwa_buckets_start(buckets, NULL, 1), FWA_ERROR);
        check_ok(fwa_buckets_start(buckets, NULL, 0));
        check_ok(fwa_buckets_wait(buckets, NULL));
    }
    for (int i = 0; i < 6; i++) assert_true(x[i] == (float)(i + 1));
    fwa_buckets_destroy(buckets);
    fwa_buckets_destroy(NULL);
    check_status(fwa_buckets_create(&buckets, comm, tensors, 513), FWA_ERROR);
    check_ok(fwa_buckets_create(&buckets, comm, NULL, 0));
    check_ok(fwa_buckets_wait(buckets, NULL));
    fwa_buckets_destroy(buckets);
}

int main(void) {
    check_ok(fwa_comm_self_create(&comm));
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(results_are_the_inputs),
        cmocka_unit_test(ranks_that_are_not_there_are_refused),
        cmocka_unit_test(buckets_of_one_rank_change_nothing),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    comm->destroy(comm);
    return failed;
}
