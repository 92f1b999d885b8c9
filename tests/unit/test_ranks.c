// Which GPU a rank takes, and who moves its memory.
#include <stdlib.h>

#include "dist/comms.h"
#include "kernels/registry.h"
#include "tests/check.h"
#include "train/ranks.h"

static fwa_world place(int node_rank, int node_size) {
    fwa_world world;
    memset(&world, 0, sizeof world);
    world.node_rank = node_rank;
    world.node_size = node_size;
    snprintf(world.host, sizeof world.host, "n1");
    return world;
}

// -1: refused.
static int device_of(int node_rank, int node_size, int visible, const char *given) {
    fwa_world world = place(node_rank, node_size);
    int device = -1;
    if (given)
        setenv("CUDA_VISIBLE_DEVICES", given, 1);
    else
        unsetenv("CUDA_VISIBLE_DEVICES");
    fwa_status status = fwa_ranks_device(&world, visible, &device);
    if (status == FWA_OK) return device;
    check_status(status, FWA_CONFIG);
    assert_int_equal(fwa_status_exit_code(status), 2);
    return -1;
}

static void ranks_of_a_node_take_its_gpus_in_order(void **state) {
    (void)state;
    assert_int_equal(device_of(0, 1, 1, NULL), 0);
    for (int r = 0; r < 4; r++) {
        assert_int_equal(device_of(r, 4, 4, NULL), r);
        assert_int_equal(device_of(r, 4, 8, "0,1,2,3,4,5,6,7"), r);
    }
}

static void a_task_with_one_gpu_of_its_own_takes_that(void **state) {
    (void)state;
    for (int r = 0; r < 4; r++) {
        assert_int_equal(device_of(r, 4, 1, "3"), 0);
        assert_int_equal(device_of(r, 4, 1, "GPU-8932f937"), 0);
    }
}

static void fewer_gpus_than_ranks_are_refused(void **state) {
    (void)state;
    assert_int_equal(device_of(0, 2, 1, NULL), -1);
    assert_int_equal(device_of(0, 2, 1, ""), -1);
    assert_int_equal(device_of(1, 4, 3, "0,1,2"), -1);
    assert_non_null(strstr(fwa_error_message(), "n1"));
    assert_non_null(strstr(fwa_error_message(), "4 ranks"));
    assert_non_null(strstr(fwa_error_message(), "3 visible GPUs"));
}

static void memory_of_the_cpu_is_moved_by_the_group_of_the_world(void **state) {
    (void)state;
    fwa_world world = place(0, 1);
    fwa_backend *backend;
    fwa_comm *comm;
    const fwa_nccl_options options = {.max_ctas = 8, .timeout_s = 1};
    check_ok(fwa_comm_self_create(&world.dp));
    check_ok(fwa_backend_create(&backend, FWA_BACKEND_CPU, FWA_F32, 0, 1));
    check_ok(fwa_ranks_connect(&comm, world.dp, backend, &options));
    assert_ptr_equal(comm, world.dp);
    fwa_ranks_leave(comm, world.dp);
    fwa_ranks_leave(NULL, world.dp);
    world.dp->destroy(world.dp);
    backend->destroy(backend);
}

static void nccl_is_for_gpus(void **state) {
    (void)state;
    fwa_backend *backend;
    fwa_comm *host, *comm;
    const fwa_nccl_options options = {.timeout_s = 1};
    check_ok(fwa_comm_self_create(&host));
    check_ok(fwa_backend_create(&backend, FWA_BACKEND_CPU, FWA_F32, 0, 1));
    check_status(fwa_comm_nccl_create(&comm, host, backend, &options), FWA_UNSUPPORTED);
    assert_null(comm);
    assert_non_null(strstr(fwa_error_message(), "NCCL"));
    host->destroy(host);
    backend->destroy(backend);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_of_a_node_take_its_gpus_in_order),
        cmocka_unit_test(a_task_with_one_gpu_of_its_own_takes_that),
        cmocka_unit_test(fewer_gpus_than_ranks_are_refused),
        cmocka_unit_test(memory_of_the_cpu_is_moved_by_the_group_of_the_world),
        cmocka_unit_test(nccl_is_for_gpus),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
